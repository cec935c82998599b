"""JSON of requests: a few megabytes of it can hold the event loop for seconds, so it is not read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.api.feedback import FeedbackError, read_feedback_items
from proxy.artifacts.bodies import ChatBody
from proxy.artifacts.shelf import RouteArtifacts, Shelf
from proxy.config import Route
from proxy.inline.openai import ChatRequest
from proxy.inline.requests import UnreadableRequestError
from proxy.recording.tokens import ask
from proxy.request_json import MOST_VALUES, TooManyValuesError, parsed
from proxy.routes.model_versions import with_model
from proxy.telemetry.counters import Counters

DENSE = b'{"model":"m","messages":[' + b"{}," * (MOST_VALUES // 2) + b"{}]}"


@pytest.mark.parametrize("piece", [b"{},", b"0,", b"[],", b"[["])
def test_millions_of_values_are_not_read(piece: bytes) -> None:
    with pytest.raises(TooManyValuesError):
        parsed(b"[" + piece * MOST_VALUES)


def test_long_texts_and_pictures_are_read() -> None:
    picture = {
        "url": "data:image/png;base64," + "iVBORw0KGgo/" * 400_000,
        "text": "So, what? " * 9000,
    }
    assert parsed(json.dumps(picture).encode()) == picture


def test_token_capture_asks_nothing_of_them() -> None:
    assert ask(DENSE) is None


def test_the_version_that_serves_is_not_put_into_them() -> None:
    assert with_model(DENSE, "shop@0001") is DENSE


def test_pseudonymisation_does_not_vouch_for_them() -> None:
    with pytest.raises(UnreadableRequestError):
        ChatRequest(DENSE)


def test_feedback_says_why() -> None:
    with pytest.raises(FeedbackError):
        read_feedback_items(DENSE, tenant_id="acme")


def test_artefacts_leave_them_alone_and_count(tmp_path: Path) -> None:
    home = tmp_path / "style" / "0001"
    home.mkdir(parents=True)
    (home / "artifact.json").write_text(
        json.dumps({"proposer": "jo", "licence": "CC0-1.0", "harness": {"append": "Be brief."}})
    )
    (home.parent / "live.json").write_text('{"version": "0001"}')
    route = Route.model_validate(
        {"name": "shop", "upstream": "http://a.test", "evolve": {"artifacts": ["style"]}}
    )
    counters = Counters()
    applied: Callable[..., object] = RouteArtifacts(route, Shelf(tmp_path, ["style"])).apply
    told = {"tenant": "acme", "agent": None, "session": None, "counters": counters}
    assert applied(ChatBody, DENSE, **told) is None
    assert counters.artifacts["shop", "-", "unreadable"] == 1
    assert applied(ChatBody, b'{"messages":[{"role":"user","content":"Hi"}]}', **told) is not None
