"""What this machine's own commands ask of the running gateway, in clear and by its own certificate."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.practice.certificate import make_certificate
from headrace.app import gateway_client
from headrace.app.gateway_client import ask_model, knows_key, post_feedback
from proxy.config import GatewayConfig
from tests.proxy.gateway_process import GatewayProcess
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory.errors import ConfigurationError, WorkError
from trajectory.exchange import Feedback

ITEMS: list[dict[str, Any]] = [{"response_id": "chatcmpl-1", "name": "success", "value": 1.0}]


def config(gateway: GatewayProcess, **settings: Any) -> GatewayConfig:
    return GatewayConfig.model_validate(
        {**gateway.settings, "port": int(gateway.url.rpartition(":")[2]), **settings}
    )


@pytest.mark.parametrize("tls", [False, True], ids=["in clear", "own certificate"])
def test_feedback_reaches_the_gateway_and_a_key_is_known(tmp_path: Path, tls: bool) -> None:
    files = make_certificate(tmp_path / "files")
    settings = {"certificate": str(files.cert), "certificate_key": str(files.key)} if tls else {}
    with GatewayProcess(tmp_path / "home", settings) as gateway:
        found = config(gateway)
        assert post_feedback(found, gateway.key, ITEMS).status_code == 202
        (feedback,) = gateway.records()
        assert isinstance(feedback, Feedback)
        assert knows_key(found, gateway.key)
        assert not knows_key(found, "hr_" + 12 * "0" + "_" + 40 * "0")


def test_nothing_is_said_to_a_gateway_with_another_certificate(tmp_path: Path) -> None:
    files, other = make_certificate(tmp_path / "files"), make_certificate(tmp_path / "other")
    settings = {"certificate": str(files.cert), "certificate_key": str(files.key)}
    with GatewayProcess(tmp_path / "home", settings) as gateway:
        found = config(gateway, certificate=str(other.cert))
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            post_feedback(found, gateway.key, ITEMS)


def test_a_model_is_asked_again_when_it_was_busy_and_its_words_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_client, "_PAUSES", (0.0, 0.0))
    said: list[Any] = [({}, 503), ({"choices": [{"message": {"content": "Be kind."}}]}, 200)]
    said += [({}, 401), ({"choices": []}, 200), ({}, 500), ({}, 500)]

    def answer(_: ReceivedRequest) -> Reply:
        return as_json(*said.pop(0))

    with Upstream(answer) as upstream:
        route = {"name": "big", "prefix": "/big", "upstream": f"http://127.0.0.1:{upstream.port}"}
        with GatewayProcess(tmp_path / "home", {"routes": [route]}) as gateway:
            found = config(gateway)
            assert ask_model(found, "big", gateway.key, "m", "What now?") == "Be kind."
            for told in ("HTTP 401", "does not speak chat completions", "HTTP 500"):
                with pytest.raises(WorkError, match=told):
                    ask_model(found, "big", gateway.key, "m", "What now?")
            assert said == []
            with pytest.raises(ConfigurationError, match="there are: big"):
                ask_model(found, "small", gateway.key, "m", "What now?")
            assert {one.request.body for one in gateway.exchanges(6)} == {b""}
        assert {one.target for one in upstream.seen} == {"/v1/chat/completions"}
