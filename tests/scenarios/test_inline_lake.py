"""What surrogates save for training, and erasure: exact tokens of personal calls, and people found again."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from governance.policy import load_bundle
from headrace.app.inline import InlineSetup
from headrace.cli import run
from lakehouse.lake import Lake
from tests.headrace.installations import PlantedInstallation
from tests.proxy.gateway_process import GatewayProcess
from tests.support.inline import inline_setup
from tests.support.provider.token_ids import with_token_ids
from tests.support.upstream import Upstream

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PEOPLE = [f"{name}@corp.example.org" for name in ("ada", "bo", "cem", "dora", "emil")]


@pytest.mark.parametrize("surrogates", ["token", "realistic"])
def test_tokens_of_personal_calls_stay_exact_and_a_person_can_be_erased(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    surrogates: str,
) -> None:
    monkeypatch.delenv("HEADRACE_MASTER_KEY", raising=False)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    terms: dict[str, Any] = {"routes": ["wire"], "surrogates": surrogates, "budget_ms": 600_000}
    bundle = inline_setup(tmp_path / "policy", **terms).folder
    house = PlantedInstallation(tmp_path / "home", str(bundle))
    inline = InlineSetup.of(load_bundle(bundle), house.home, house.secrets)
    with Upstream(with_token_ids) as upstream:
        routes = [
            {"name": name, "upstream": upstream.url, "capture": "tokens"}
            for name in ("wire", "raw")
        ]
        with GatewayProcess(tmp_path / "gateway", {"routes": routes}, inline=inline) as gateway:
            for person in PEOPLE:
                for route in ("wire", "raw"):
                    url = f"{gateway.url}/{route}/v1/chat/completions"
                    said = [
                        {"role": "system", "content": f"You answer the mail of {person}."},
                        {"role": "user", "content": "How long does a parcel take?"},
                    ]
                    headers = {"authorization": f"Bearer {gateway.key}"}
                    headers["x-headrace-session"] = f"{route} {person.partition('@')[0]}"
                    httpx.post(url, json={"model": "m", "messages": said}, headers=headers)
            exchanges = gateway.exchanges(2 * len(PEOPLE))
    assert house.govern(*exchanges) == {"stored": 2 * len(PEOPLE)}

    def tokens() -> list[tuple[str, str, bool]]:
        rows = Lake.open(str(house.home.lake)).query(
            "SELECT s.route, t.token_fidelity, t.prompt_token_ids IS NOT NULL AS whole FROM tokens t "
            "JOIN steps s USING (tenant_id, step_id) ORDER BY ALL"
        )
        return [(one["route"], one["token_fidelity"], one["whole"]) for one in rows.to_pylist()]

    raw = [("raw", "span_masked", False)] * len(PEOPLE)
    assert tokens() == [*raw, *[("wire", "pseudonymised_inline", True)] * len(PEOPLE)]
    assert house.at_rest(PEOPLE) == {}

    def command(*arguments: str) -> Any:
        assert run([*arguments, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    report = command("erase", PEOPLE[0].upper(), "--tenant", "acme", "--yes")
    assert report["rows"]["steps"] == 2  # one by its surrogate, one by its pseudonym
    assert len(tokens()) == 2 * (len(PEOPLE) - 1)
