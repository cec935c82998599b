"""``headrace feedback --file`` with more lines than one request of the gateway's API may carry."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.cli import run
from proxy.api.feedback import MAX_ITEMS
from tests.proxy.gateway_process import GatewayProcess


def test_a_long_file_is_sent_in_several_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"session_id": f"s{n}", "name": "x", "value": n} for n in range(MAX_ITEMS + 5)]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    with GatewayProcess(tmp_path / "gateway", {"forward_port": None}) as gateway:
        monkeypatch.setenv("HEADRACE_GATEWAY_PORT", str(urlsplit(gateway.url).port))
        arguments = ["feedback", "--file", str(file), "--key", gateway.key, "--json"]
        assert run(arguments) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["accepted"] == len(said["feedback_ids"]) == MAX_ITEMS + 5
        assert len(gateway.records(MAX_ITEMS + 5)) == MAX_ITEMS + 5
