"""Routes that name a registered model: what is published answers, without a restart."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from proxy.config import CredentialSource, GatewayConfig, Route
from proxy.routes.model_versions import (
    Publication,
    PublishedVersion,
    ServedModel,
    lot,
    with_model,
)
from tests.proxy.gateway_process import GatewayProcess
from tests.support.ports import free_port
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, stream
from trajectory.dialects.registry import read_exchange
from trajectory.exchange import Exchange, ExchangeOutcome

LIVE, NEXT = "shop@0001", "shop@0002"


def engine(request: ReceivedRequest) -> Reply:
    """Answer with the model that was asked for, as an engine that calls itself something else."""
    if request.method == "GET":
        return as_json({"object": "list", "data": []})
    body = json.loads(request.body)
    if body["messages"][0]["content"] == "fail" and body["model"] == NEXT:
        return Reply([], abort=True)
    base = {"id": f"chatcmpl-{body['model']}", "created": 1, "model": "tiny"}
    if body.get("stream"):
        delta = {"index": 0, "delta": {"role": "assistant", "content": body["model"]}}
        chunk = {**base, "object": "chat.completion.chunk", "choices": [delta]}
        return stream([f"data: {json.dumps(chunk)}\n\n".encode(), b"data: [DONE]\n\n"])
    message = {"role": "assistant", "content": body["model"]}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return as_json({**base, "object": "chat.completion", "choices": [choice]})


@dataclass
class Deployment:
    """A gateway whose route names a model, and the server of its versions."""

    gateway: GatewayProcess
    engine: Upstream
    file: Path

    def publish(self, **places: str) -> None:
        """Publish versions, and wait until the gateway says that they serve."""
        write(self.file, {name: (label, self.engine.url) for name, label in places.items()})
        until = time.monotonic() + 60
        while self.serving() != places:
            assert time.monotonic() < until
            time.sleep(0.02)

    def serving(self) -> dict[str, str]:
        text = httpx.get(f"{self.gateway.admin}/metrics", trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith("headrace_serving{")]
        return {line.split('"')[3]: line.split('"')[5] for line in lines}

    def ask(self, text: str = "hi", *, session: str = "", route: str = "shop") -> str:
        client = openai.OpenAI(
            base_url=f"{self.gateway.url}/{route}/v1", api_key=self.gateway.key, max_retries=0
        )
        headers = {"x-headrace-session": session} if session else {}
        answer = client.chat.completions.create(
            model="whatever",
            messages=[{"role": "user", "content": text}],
            extra_headers=headers,
        )
        return answer.choices[0].message.content or ""


def write(file: Path, places: dict[str, tuple[str, str]]) -> None:
    named = {name: {"label": label, "url": url} for name, (label, url) in places.items()}
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({"models": {"shop": named}}))
    fresh.replace(file)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    home = tmp_path_factory.mktemp("serving")
    (home / "engine.key").write_text("sk-engine")
    key = {"file": str(home / "engine.key")}
    routes = [
        {"name": "shop", "model": "shop", "canary": 0.3, "credential": key},
        {"name": "copied", "model": "shop", "shadow": 1.0, "credential": key},
    ]
    file = home / "serving.json"
    with Upstream(engine) as behind:
        settings = {"routes": routes, "forward_port": None, "serving": str(file)}
        with GatewayProcess(home, settings) as gateway:
            yield Deployment(gateway, behind, file)


def test_before_anything_serves_calls_are_refused_in_the_providers_shape(place: Deployment) -> None:
    with pytest.raises(openai.InternalServerError, match="no version of this route's model"):
        place.ask()
    assert place.gateway.exchange().outcome is ExchangeOutcome.REFUSED


def test_what_is_published_answers_and_every_step_says_which_version(place: Deployment) -> None:
    place.publish(live=LIVE)
    assert place.ask() == LIVE
    place.publish(live=NEXT)
    assert place.ask() == NEXT
    place.publish(live=LIVE)
    assert place.ask() == LIVE
    exchanges = place.gateway.exchanges(3)
    calls = [read_exchange(exchange) for exchange in exchanges]
    assert [call.model_served for call in calls] == [LIVE, NEXT, LIVE]
    assert [call.model_requested for call in calls] == ["whatever"] * 3
    assert place.engine.seen[-1].header("authorization") == "Bearer sk-engine"


def test_streams_and_other_paths_pass_as_they_are(place: Deployment) -> None:
    place.publish(live=LIVE)
    client = openai.OpenAI(base_url=f"{place.gateway.url}/shop/v1", api_key=place.gateway.key)
    chunks = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == LIVE
    assert client.models.list().data == []
    assert [e.served for e in place.gateway.exchanges(2)] == [LIVE, ""]


def test_a_canary_answers_its_share_of_the_sessions_and_each_session_keeps_its_version(
    place: Deployment,
) -> None:
    place.publish(live=LIVE, canary=NEXT)
    names = [f"s{number}" for number in range(40)]
    first = {name: place.ask(session=name) for name in names}
    assert {name: place.ask(session=name) for name in names} == first
    assert 4 <= Counter(first.values())[NEXT] <= 22
    served = Counter(exchange.served for exchange in place.gateway.exchanges(80))
    assert served[NEXT] == 2 * Counter(first.values())[NEXT]
    metrics = httpx.get(f"{place.gateway.admin}/metrics", trust_env=False).text
    assert f'headrace_served_total{{route="shop",version="{NEXT}"}}' in metrics


def test_a_capture_says_what_a_session_was_drawn_for_whatever_answers(place: Deployment) -> None:
    """A canary that cannot be reached loses its sessions to the live version, not their arm."""
    place.publish(live=LIVE, canary=NEXT)
    names = [f"drawn-{number}" for number in range(30)]
    answered = {name: place.ask(session=name) for name in names}
    arms = [exchange.artifacts for exchange in place.gateway.exchanges(30)]
    drawn = dict(zip(names, arms, strict=True))
    assert drawn == {
        name: (f"^{NEXT} {'canary' if label == NEXT else 'control'}",)
        for name, label in answered.items()
    }
    dead = f"http://127.0.0.1:{free_port()}"
    write(place.file, {"live": (LIVE, place.engine.url), "canary": (NEXT, dead)})
    of_canary = next(name for name, label in answered.items() if label == NEXT)
    served = []
    for _ in range(100):
        with suppress(openai.InternalServerError):
            served.append(place.ask(session=of_canary))
        exchange = place.gateway.exchange()
        assert exchange.artifacts == (f"^{NEXT} canary",)
        if served and served[-1] == LIVE:
            break
        time.sleep(0.05)
    assert exchange.served == LIVE


def test_a_trial_may_have_a_share_of_its_own() -> None:
    route = Route(name="shop", model="shop")
    serving = ServedModel(route)
    versions = {
        "live": PublishedVersion(LIVE, "http://127.0.0.1:9"),
        "canary": PublishedVersion(NEXT, "http://127.0.0.1:9"),
    }
    for share, drawn in ((None, {LIVE}), (1.0, {NEXT}), (0.5, {LIVE, NEXT})):
        serving.use(versions, (), share)
        chosen = [serving.choose(b"s%d" % n) for n in range(40)]
        assert {one.label for one in chosen if one} == drawn


def test_a_shadow_gets_a_copy_and_nobody_gets_its_answer(place: Deployment) -> None:
    place.publish(live=LIVE, shadow=NEXT)
    assert place.ask(route="copied") == LIVE
    own, copy = sorted(place.gateway.exchanges(2), key=lambda e: bool(e.shadow_of))
    assert (own.served, own.shadow_of) == (LIVE, "")
    assert (copy.served, copy.shadow_of) == (NEXT, own.exchange_id)
    assert copy.client == own.client
    assert copy.request.body == own.request.body
    assert _said(copy) == NEXT
    assert _said(own) == LIVE
    assert "sk-engine" not in str(copy.request.headers)


def test_a_shadow_that_fails_is_nobodys_failure(place: Deployment) -> None:
    place.publish(live=LIVE, shadow=NEXT)
    assert place.ask("fail", route="copied") == LIVE
    copy = next(e for e in place.gateway.exchanges(2) if e.shadow_of)
    assert copy.outcome is ExchangeOutcome.UPSTREAM_ABORT


def test_who_opted_out_is_not_copied(place: Deployment) -> None:
    place.publish(live=LIVE, shadow=NEXT)
    before = len(place.engine.seen)
    url = f"{place.gateway.url}/copied/v1/chat/completions"
    headers = {"authorization": f"Bearer {place.gateway.key}", "x-headrace-capture": "metadata"}
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    answer = httpx.post(url, json=body, headers=headers, trust_env=False)
    assert answer.json()["choices"][0]["message"]["content"] == LIVE
    time.sleep(0.2)
    assert len(place.engine.seen) == before + 1
    place.gateway.exchange()


def test_a_damaged_publication_changes_nothing(place: Deployment) -> None:
    place.publish(live=LIVE)
    place.file.write_text("{")
    time.sleep(0.6)
    assert place.ask() == LIVE
    place.gateway.exchange()


def _said(exchange: Exchange) -> object:
    assert exchange.response is not None
    return json.loads(exchange.response.body)["choices"][0]["message"]["content"]


def serving(canary: float = 0.5, **places: str) -> ServedModel:
    found = ServedModel(Route(name="r", model="shop", canary=canary, shadow=1.0))
    url = "http://127.0.0.1:9"
    found.use({name: PublishedVersion(label, url) for name, label in places.items()})  # type: ignore[misc]
    return found


def test_calls_whose_body_cannot_name_a_version_go_to_the_one_that_is_live() -> None:
    one = serving(canary=1.0, live=LIVE, canary_=NEXT)
    assert one.choose(None).label == LIVE  # type: ignore[union-attr]


def test_a_canary_that_cannot_be_reached_is_passed_over_a_while() -> None:
    one = ServedModel(Route(name="r", model="shop", canary=1.0))
    one.use(
        {
            "live": PublishedVersion(LIVE, "http://a:1"),
            "canary": PublishedVersion(NEXT, "http://b:1"),
        }
    )
    (_, target) = one.targets()
    assert one.choose(b"s") is not None
    assert one.choose(b"s").label == NEXT  # type: ignore[union-attr]
    target.shunned_until = time.monotonic() + 10
    assert one.choose(b"s").label == LIVE  # type: ignore[union-attr]


def test_a_version_is_not_copied_to_itself() -> None:
    one = ServedModel(Route(name="r", model="shop", canary=1.0, shadow=1.0))
    url = "http://a:1"
    one.use({place: PublishedVersion(NEXT, url) for place in ("live", "shadow")})
    live = one.choose(b"s")
    assert live is not None
    assert one.copies_to(live) is None


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ({}, "exactly one of: upstream, model"),
        ({"model": "shop", "upstream": "http://a"}, "exactly one of: upstream, model"),
        ({"upstream": "http://a", "canary": 0.1}, "canary and shadow belong"),
        ({"model": "shop", "kind": "tool"}, "kind: model"),
    ],
)
def test_routes_that_make_no_sense_are_refused(route: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        GatewayConfig.model_validate({"routes": [{"name": "r", **route}]})


def test_a_body_that_is_not_understood_stays() -> None:
    for body in (b"", b"{", b"[1]", b"\xff"):
        assert with_model(body, LIVE) == body
    half = with_model(b'{"a":"\\ud83d","model":"x"}', LIVE)
    assert json.loads(half.decode()) == {"a": "\ud83d", "model": LIVE}


def test_a_file_that_is_not_a_publication_is_told_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "serving.json"
    one = ServedModel(Route(name="r", model="shop", credential=CredentialSource(env="HOME")))
    publication = Publication(file, [one])
    write(file, {"live": (LIVE, "http://a:1")})
    publication.refresh()
    for text in ("[]", '{"models": {"shop": {"live": 1}}}', '{"models": []}'):
        file.write_text(text)
        publication.refresh()
        assert one.choose(None).label == LIVE  # type: ignore[union-attr]
    assert "what served before goes on" in caplog.text


@pytest.mark.parametrize("name", ["shop", "s" * 63])
def test_each_trial_draws_other_sessions(name: str) -> None:
    sessions = [b"session-%d" % number for number in range(200)]
    first, second = (
        {one for one in sessions if lot(one, f"{name}@{version}") < 0.5}
        for version in ("0001", "0002")
    )
    assert first
    assert first - second
    assert second - first
