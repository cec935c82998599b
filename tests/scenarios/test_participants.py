"""Names of participants: from an SDK through gateway, governance and lake into every format."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.services.exports import export_trajectories, portable
from lakehouse.maintenance.table_maintenance import compact
from lakehouse.maintenance.verify import verify
from tests.headrace.spool_governor import MESSAGE_KEY, govern
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.sessions import ModelTurn, SessionProvider
from tests.support.upstream import Upstream
from trajectory.formats.catalog import FORMATS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NATIVE = ("openai-messages", "trl-conversational", "trl-prompt-only", "rlds", "otel-genai", "adp")
"""Formats that have a place of their own for a name."""


def test_names_come_back_and_personal_ones_are_redacted(tmp_path: Path) -> None:
    from openai import OpenAI

    with Upstream(SessionProvider(lambda *_: ModelTurn("Noted."))) as upstream:
        routes = [{"name": "model", "upstream": upstream.url}]
        with GatewayProcess(tmp_path, {"routes": routes}) as gateway:
            key = gateway.registry.create(
                tenant_id="acme", app_id="shop", purposes=("debug", "eval", "train_sft")
            ).secret
            messages: list[Any] = [
                {"role": "system", "content": "Three talk.", "name": "moderator"},
                {"role": "user", "content": "We need bolts.", "name": "Alice_Smith"},
                {"role": "assistant", "content": "How many?", "name": "purchasing-agent"},
                {"role": "user", "content": "Sixty-two.", "name": "planner"},
            ]
            with OpenAI(base_url=f"{gateway.url}/model/v1", api_key=key) as client:
                said = client.chat.completions.create(model="m", messages=messages)
                messages += [said.choices[0].message, {"role": "user", "content": "We need bolts."}]
                client.chat.completions.create(model="m", messages=messages)
    lake = govern(tmp_path)

    rows = lake.query("select role, name, parts from messages order by name nulls last, parts")
    stored = [(row["role"], row["name"]) for row in rows.to_pylist()]
    pseudonym = next(name for role, name in stored if name and name.startswith("<PERSON"))
    assert sorted(stored, key=str) == sorted(
        [
            ("system", "moderator"),
            ("user", pseudonym),
            ("assistant", "purchasing-agent"),
            ("user", "planner"),
            ("assistant", None),
            ("user", None),
        ],
        key=str,
    ), "the same words of another participant are another message"
    (decision,) = lake.query(
        "select redaction_counts from governance order by started_at limit 1"
    ).to_pylist()
    assert dict(decision["redaction_counts"])["PERSON"] == 1
    compact(lake)
    assert verify(lake, message_key=MESSAGE_KEY).ok
    assert lake.query(
        "select name from conversation where role = 'user' order by step_index, position"
    )["name"].to_pylist() == [pseudonym, "planner", None]

    (found,) = lake.query("select distinct trajectory_id as id from steps")["id"].to_pylist()
    (told,) = portable(lake, [found])
    names = [message.name for message in told.messages()]
    assert names == ["moderator", pseudonym, "purchasing-agent", "planner", None, None, None]
    for name, form in FORMATS.items():
        if name == "openenv":  # it holds steps with exact tokens only
            continue
        target = tmp_path / f"{name}.jsonl"
        export_trajectories(lake, target, where="true", purpose="train_sft", document_format=name)
        text = target.read_text(encoding="utf-8")
        assert "Alice" not in text
        assert "Smith" not in text
        for line in text.splitlines():
            document = json.loads(line)
            (back,) = form.read(document, name)
            assert [one.name for one in back.messages()][:4] == names[:4], name
            if name in NATIVE:
                bare = json.dumps(document | {"headrace": None, "details": None})
                assert "purchasing-agent" in bare, name
