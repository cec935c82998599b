"""Conversations that OpenAI keeps: many write to one, and each reads its own values in it."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from governance.redact.pseudonym import subject_id
from headrace.app.inline import InlineSetup
from proxy.inline.kept_histories import KeptHistories
from tests.proxy.gateway_process import GatewayProcess
from tests.support.inline import inline_setup
from tests.support.keeping_provider import KeepingProvider
from tests.support.upstream import Upstream
from trajectory import realistic_surrogate
from trajectory.surrogate import FORM

EMAIL, NAME, CARD = "petra.ostrova@example.org", "Petra Ostrova", "4111 1111 1111 1111"
SAID = f"My name is {NAME}, mail {EMAIL}."
TOOLS: Any = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": None}
    for name in ("send", "fetch", "look_up")
]


@dataclass
class Scene:
    """A policy with surrogates, and the provider behind the gateways that follow it."""

    home: Path
    setup: InlineSetup
    upstream: Upstream
    provider: KeepingProvider

    def gateway(self, name: str = "gateway", **settings: Any) -> GatewayProcess:
        routes = [{"name": "model", "upstream": self.upstream.url}]
        return GatewayProcess(self.home / name, {"routes": routes, **settings}, inline=self.setup)

    def sent(self) -> str:
        """Return all that the provider got, in which no value may be."""
        seen = [*self.upstream.seen]
        told = "\n".join(f"{one.target} {one.headers} {one.body.decode()}" for one in seen)
        for value in (EMAIL, NAME, "Ostrova", CARD):
            assert value not in told
        return told


def made(tmp_path: Path, **terms: Any) -> InlineSetup:
    restore = {"to": ["client", "tool:send"]}
    named: dict[str, Any] = {"restore": restore, "budget_ms": 60_000, **terms}
    return inline_setup(tmp_path / "policy", routes=["model"], **named)


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    provider, kind = KeepingProvider(), getattr(request, "param", "token")
    with Upstream(provider) as upstream:
        yield Scene(tmp_path, made(tmp_path, surrogates=kind), upstream, provider)


kinds = pytest.mark.parametrize("scene", ["token", "realistic"], indirect=True)
"""Of surrogates."""


def client_of(gateway: GatewayProcess, key: str = "") -> openai.OpenAI:
    url = f"{gateway.url}/model/v1"
    return openai.OpenAI(base_url=url, api_key=key or gateway.key, max_retries=0)


def ask(client: openai.OpenAI, said: Any, named: Any, *, stream: bool = False) -> Any:
    asked: dict[str, Any] = {"model": "m", "input": said, "tools": TOOLS, "conversation": named}
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        for _ in events:
            pass
        return events.get_final_response()


def message(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


def texts_of(page: Any) -> list[str]:
    """Return what the items of a list say."""
    return [part["text"] for one in page["data"] for part in one.get("content") or ()]


def calls_of(items: Any) -> dict[str, str]:
    """Return what calls say, by the names of their tools."""
    return {one["name"]: one["arguments"] for one in items if one["type"] == "function_call"}


@kinds
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_values_of_a_conversation_come_back_from_its_provider(scene: Scene, stream: bool) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        kept = client.conversations.create(items=[message(SAID)], metadata={"mail": EMAIL})
        assert kept.metadata == {"mail": EMAIL}
        first = ask(client, "Who am I?", kept.id, stream=stream)
        assert first.output_text == f"You said: {SAID} Who am I?!"
        second = ask(client, f"{EMAIL}, card {CARD}?", {"id": kept.id}, stream=stream)
        assert second.output_text == f"You said: {SAID} Who am I? {EMAIL}, card {CARD}?!"
        listed: Any = client.conversations.items.list(kept.id).to_dict()
        assert texts_of(listed) == [
            *(SAID, "Who am I?", first.output_text),
            *(f"{EMAIL}, card {CARD}?", second.output_text),
        ]
        for called in (calls_of(second.to_dict()["output"]), calls_of(listed["data"])):
            assert EMAIL in called["send"]
            assert EMAIL not in called["fetch"]
        items = client.conversations.items
        one: Any = items.retrieve(listed["data"][0]["id"], conversation_id=kept.id).to_dict()
        assert texts_of({"data": [one]}) == [SAID]
        assert client.conversations.retrieve(kept.id).metadata == {"mail": EMAIL}
        assert client.conversations.update(kept.id, metadata={"n": NAME}).metadata == {"n": NAME}
        scene.sent()
        assert all(one.subjects for one in gateway.exchanges(7))


@kinds
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_that_its_provider_stores_comes_back_for_its_key(scene: Scene, stream: bool) -> None:
    tools = [{"type": "function", "function": {"name": one["name"]}} for one in TOOLS]
    asked: dict[str, Any] = {"model": "m", "tools": tools, "stream": stream, "store": True}
    asked |= {"messages": [{"role": "user", "content": SAID}], "metadata": {"mail": EMAIL}}
    with scene.gateway() as gateway, client_of(gateway) as client:
        chats = client.chat.completions
        answer = chats.create(**asked)
        named: str = [one.id for one in answer][-1] if stream else answer.id
        kept: Any = chats.retrieve(named)
        assert kept.choices[0].message.content == f"You said: {SAID}!"
        assert kept.metadata == {"mail": EMAIL}
        called = {one.function.name: one.function for one in kept.choices[0].message.tool_calls}
        assert json.loads(called["send"].arguments) == {"to": SAID}
        assert EMAIL not in called["fetch"].arguments
        assert [one.content for one in chats.messages.list(named)] == [SAID]
        assert [one.metadata for one in chats.list()] == [{"mail": EMAIL}]
        other = gateway.registry.create(
            tenant_id="acme", app_id="others", environment="ci", purposes=("train_sft",)
        ).secret
        with client_of(gateway, other) as stranger:
            theirs = stranger.chat.completions
            pages = theirs.list().to_json(), theirs.messages.list(named).to_json()
            for told in (*pages, theirs.retrieve(named).to_json()):
                assert EMAIL not in told
                assert NAME not in told
        there = scene.provider.chats[named]
        assert chats.delete(named).deleted
        scene.provider.chats[named] = there
        assert EMAIL not in chats.retrieve(named).to_json()  # what is deleted is forgotten
        scene.sent()


def test_a_tool_may_have_what_it_said_before(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        kept = client.conversations.create().id
        ask(client, f"Find who has card {CARD}.", kept, stream=True)
        result = {"type": "function_call_output", "call_id": "look_up", "output": f"mail {EMAIL}"}
        ask(client, [result], kept)
        called = calls_of(ask(client, "Look again.", kept, stream=True).to_dict()["output"])
        assert EMAIL in called["look_up"]
        assert CARD not in called["look_up"]
        assert EMAIL not in called["fetch"]
        scene.sent()


def test_all_writers_of_a_conversation_give_a_value_one_surrogate(scene: Scene) -> None:
    """Two gateways write at once; whoever reads has all values."""
    mails = [f"person{number}.ostrova@example.org" for number in range(12)]
    with scene.gateway() as one:
        keys = str(scene.home / "gateway" / "keys.json")
        with scene.gateway("other", keys=keys) as other, client_of(one) as client:
            kept = client.conversations.create().id

            def write(number: int) -> None:
                gateway = (one, other)[number % 2]
                said = f"Write to {mails[number]} and {EMAIL}."
                with client_of(gateway, one.key) as mine:
                    mine.conversations.items.create(kept, items=[message(said)])

            with ThreadPoolExecutor(4) as threads:
                list(threads.map(write, range(len(mails))))
            told = texts_of(client.conversations.items.list(kept).to_dict())
    assert sorted(told) == sorted(f"Write to {one} and {EMAIL}." for one in mails)
    sent = [texts_of({"data": [item]})[0] for item in scene.provider.conversations[kept]]
    assert len({one.rpartition(" and ")[2] for one in sent}) == 1
    assert len({one.partition(" and ")[0] for one in sent}) == len(mails)
    assert "person" not in scene.sent()


def test_a_gateway_that_is_killed_before_the_answer_has_lost_no_value(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        key, kept = gateway.key, client.conversations.create().id
        arrived, scene.provider.waits = threading.Event(), threading.Event()
        scene.provider.arrived = arrived
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask, client, SAID, kept)
            assert arrived.wait(60)
            gateway.process.kill()
            gateway.wait()
            with pytest.raises(openai.APIConnectionError):
                asked.result(60)
        scene.provider.waits.set()
    scene.provider.waits = scene.provider.arrived = None
    with scene.gateway() as gateway, client_of(gateway, key) as client:
        told = texts_of(client.conversations.items.list(kept).to_dict())
        assert told == [SAID, f"You said: {SAID}!"]
        assert ask(client, "Who am I?", kept).output_text == f"You said: {SAID} Who am I?!"
    scene.sent()


def test_another_key_reads_surrogates_and_cannot_go_on(scene: Scene) -> None:
    with scene.gateway() as gateway:
        with client_of(gateway) as client:
            kept = client.conversations.create(items=[message(SAID)]).id
        other = gateway.registry.create(
            tenant_id="acme", app_id="others", environment="ci", purposes=("train_sft",)
        ).secret
        before = len(scene.upstream.seen)
        with client_of(gateway, other) as stranger:
            (told,) = texts_of(stranger.conversations.items.list(kept).to_dict())
            assert EMAIL not in told
            assert NAME not in told
            assert [*FORM.findall(told), *realistic_surrogate.SIMILAR.findall(told)]
            for goes_on in (
                lambda: ask(stranger, "Who am I?", kept),
                lambda: stranger.conversations.items.create(kept, items=[message("And?")]),
                lambda: stranger.conversations.update(kept, metadata={"n": "1"}),
            ):
                with pytest.raises(openai.BadRequestError, match="is not known"):
                    goes_on()
        assert len(scene.upstream.seen) == before + 1


def test_what_is_deleted_at_the_provider_is_forgotten(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        kept = client.conversations.create(items=[message(SAID)]).id
        listed: Any = client.conversations.items.list(kept).to_dict()
        (item,) = listed["data"]
        client.conversations.items.delete(item["id"], conversation_id=kept)
        assert ask(client, f"I am {NAME}.", kept).output_text == f"You said: I am {NAME}.!"
        answer: Any = client.conversations.delete(kept)
        assert answer.deleted
        with pytest.raises(openai.BadRequestError, match="is not known"):
            ask(client, "Who am I?", kept)


def test_erasing_a_person_takes_what_is_kept_of_a_conversation(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        hers = client.conversations.create().id
        ask(client, SAID, hers)
        other = client.conversations.create(items=[message("My mail is mia@example.org.")]).id
        histories = KeptHistories(scene.setup.histories, scene.setup.scope_key, seconds=0)
        subject = subject_id(scene.setup.pseudonym_key, "acme", EMAIL)
        assert histories.forget([subject]) == 2  # the conversation, and the response in it
        histories.close()
        with pytest.raises(openai.BadRequestError, match="is not known"):
            ask(client, "Who am I?", hers)
        assert "mia@example.org" in ask(client, "Who am I?", other).output_text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("conversations", {"inputs": SAID, "model": "mistral-small"}),
        ("conversations", {"items": [{"type": "item_reference", "id": "msg_1"}]}),
        ("conversations/conv_1", {"inputs": SAID}),
        ("responses", {"input": SAID, "conversation": {"name": "x"}}),
        ("responses", {"input": SAID, "conversation": "conv_1", "previous_response_id": "resp_1"}),
    ],
)
def test_what_cannot_be_read_is_refused(shared: GatewayProcess, path: str, body: Any) -> None:
    answer = httpx.post(
        f"{shared.url}/model/v1/{path}",
        json=body,
        headers={"authorization": f"Bearer {shared.key}"},
    )
    assert answer.status_code == 400
    assert "cannot be read" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("shared")
    with Upstream(KeepingProvider()) as upstream:
        with Scene(home, made(home), upstream, KeepingProvider()).gateway() as gateway:
            yield gateway
        assert not upstream.seen


def test_where_policy_keeps_nothing_nobody_goes_on(tmp_path: Path) -> None:
    provider = KeepingProvider()
    with Upstream(provider) as upstream:
        scene = Scene(tmp_path, made(tmp_path, history_hours=0), upstream, provider)
        with scene.gateway() as gateway, client_of(gateway) as client:
            kept = client.conversations.create(items=[message(SAID)]).id
            with pytest.raises(openai.BadRequestError, match="is not known"):
                ask(client, "Who am I?", kept)
    assert not (tmp_path / "histories.sqlite").exists()
