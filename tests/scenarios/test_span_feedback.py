"""Feedback about a span of an answer: from the gateway through redaction into the lake's views."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.headrace.spool_governor import govern
from tests.proxy.gateway_process import GatewayProcess
from tests.support.provider.sessions import ModelTurn, SessionProvider
from tests.support.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore")

ANSWER = "Für Jane Miller 🙂 at jane.miller@example.org: the bolts cost 12 Euro."


def span(part: str, unit: str = "characters") -> dict[str, Any]:
    start = ANSWER.index(part)
    return {"unit": unit, "start": start, "end": start + len(part)}


def test_a_span_moves_with_the_text_and_has_no_place_in_what_was_redacted(tmp_path: Path) -> None:
    spans = {
        "before": span("Für"),
        "between": span("🙂 at"),
        "behind": span("the bolts cost 12"),
        "around": span(" Jane Miller 🙂"),
        "end": span("Euro."),
        "inside": span("Miller"),
        "mail": span("jane.miller@example.org"),
        "across": span("example.org: the"),
        "outside": {"start": 10, "end": len(ANSWER) + 1},
        "token": span("Für", "tokens"),
    }
    with Upstream(SessionProvider(lambda *_: ModelTurn(ANSWER))) as upstream:
        settings = {"routes": [{"name": "m", "upstream": upstream.url}]}
        with GatewayProcess(tmp_path, settings) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            body = {"model": "m", "messages": [{"role": "user", "content": "What do bolts cost?"}]}
            url = f"{gateway.url}/m/v1/chat/completions"
            response = httpx.post(url, json=body, headers=headers, timeout=30).json()["id"]
            items = [
                {"response_id": response, "name": name, "value": 1.0, "span": place}
                for name, place in spans.items()
            ]
            items += [
                {"response_id": response, "name": "good", "value": 1.0},
                {"response_id": response, "name": "good", "value": 0.0, "span": spans["before"]},
                {"response_id": response, "name": "good", "value": -1.0, "span": spans["end"]},
            ]
            answer = httpx.post(
                f"{gateway.url}/headrace/v1/feedback", json=items, headers=headers, timeout=30
            )
            assert answer.status_code == 202, answer.text
    lake = govern(tmp_path)
    rows = lake.query("select * from span_signals where name <> 'good'").to_pylist()
    found = {row["name"]: (row["state"], row["span_text"]) for row in rows}
    assert found["before"] == ("exact", "Für")
    assert found["between"] == ("exact", "🙂 at")
    assert found["behind"] == ("exact", "the bolts cost 12")
    assert found["end"] == ("exact", "Euro.")
    assert found["around"][0] == "exact"
    assert found["around"][1].startswith(" <PERSON_")
    assert found["around"][1].endswith("> 🙂")
    for name in ("inside", "across"):
        assert found[name] == ("redacted", None)
    assert found["mail"][0] in ("exact", "redacted")
    assert "miller" not in str(found["mail"][1])
    assert found["outside"] == ("outside", None)
    assert found["token"] == ("no_tokens", None)
    kinds = lake.query("select target_kind, count(*) as n from signals group by all").to_pylist()
    assert {row["target_kind"]: row["n"] for row in kinds}["token_span"] == 12
    good = lake.query("select value from rewards_latest where name = 'good' order by value")
    assert good.column("value").to_pylist() == [-1.0, 0.0, 1.0]
    told = lake.query("select count(*) as n from trajectory_signals where name = 'good'")
    assert told.column("n").to_pylist() == [3]


def test_late_feedback_about_a_span_finds_its_answer(tmp_path: Path) -> None:
    """Feedback of the next day names an answer that the assembly does not remember any more."""
    with Upstream(SessionProvider(lambda *_: ModelTurn("All is well."))) as upstream:
        settings = {"routes": [{"name": "m", "upstream": upstream.url}]}
        with GatewayProcess(tmp_path, settings) as gateway:
            headers = {"authorization": f"Bearer {gateway.key}"}
            item = {"name": "tone", "value": 1.0, "span": {"start": 7, "end": 11}}
            feedback = f"{gateway.url}/headrace/v1/feedback"
            early = {**item, "response_id": "chatcmpl-later"}
            assert httpx.post(feedback, json=early, headers=headers).status_code == 202
            body = {"model": "m", "messages": [{"role": "user", "content": "How is it?"}]}
            url = f"{gateway.url}/m/v1/chat/completions"
            response = httpx.post(url, json=body, headers=headers, timeout=30).json()["id"]
            late = {**item, "response_id": response}
            assert httpx.post(feedback, json=late, headers=headers).status_code == 202
    lake = govern(tmp_path)
    (row,) = lake.query("select state, span_text from span_signals").to_pylist()
    assert row == {"state": "exact", "span_text": "well"}
