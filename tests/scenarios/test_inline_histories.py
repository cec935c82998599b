"""Responses that go on from one that the provider keeps: the gateway knows what its surrogates stand for."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from governance.redact.pseudonym import subject_id
from headrace.app.inline import InlineSetup
from proxy.inline.kept_histories import KeptHistories
from tests.proxy.gateway_process import GatewayProcess
from tests.support.echo import echo
from tests.support.inline import inline_setup
from tests.support.ports import free_port
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json
from trajectory import realistic_surrogate
from trajectory.surrogate import FORM

EMAIL, NAME, CARD = "petra.ostrova@example.org", "Petra Ostrova", "4111 1111 1111 1111"
SAID = f"My name is {NAME}, mail {EMAIL}."
VALUES = (EMAIL, NAME, "Ostrova", CARD)
TOOLS: Any = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": None}
    for name in ("send", "fetch", "look_up")
]


@dataclass
class Memory:
    """A provider that keeps its responses, and says everything of a conversation again."""

    kept: dict[str, str] = field(default_factory=dict)
    """What was said up to each response."""
    asked: dict[str, ReceivedRequest] = field(default_factory=dict)
    """What each response answers."""

    def __call__(self, request: ReceivedRequest) -> Reply:
        if not request.body or request.method == "GET":
            return self._again(request)
        body = json.loads(request.body)
        before = body.get("previous_response_id")
        if before is not None and before not in self.kept:
            return as_json({"error": {"message": "not found", "type": "x"}}, 404)
        items = body["input"]
        words = [items] if isinstance(items, str) else [_words(one) for one in items]
        told = " ".join([*([self.kept[before]] if before else []), *words])
        number = f"resp_{len(self.kept) + 1}"
        self.kept[number], self.asked[number] = told, request
        if body.get("background") and not body.get("stream"):
            return as_json(_unfinished(number, "queued"))
        return self._answer(number, request)

    def _again(self, request: ReceivedRequest) -> Reply:
        """Answer who looks a response up."""
        path, _, query = request.target.partition("?")
        number, _, of = path.partition("/responses/")[2].partition("/")
        if number not in self.asked:
            return as_json({"error": {"message": "not found", "type": "x"}}, 404)
        if of == "cancel":
            return as_json(_unfinished(number, "cancelled", said=self.kept[number]))
        if of == "input_items":
            content = [{"type": "input_text", "text": self.kept[number]}]
            item = {"type": "message", "id": "m0", "role": "user", "content": content}
            return as_json({"object": "list", "data": [item], "has_more": False})
        body = {**json.loads(self.asked[number].body), "stream": "stream=true" in query}
        asked = replace(self.asked[number], body=json.dumps(body).encode())
        return self._answer(number, asked)

    def _answer(self, number: str, request: ReceivedRequest) -> Reply:
        told = self.kept[number]
        reply = echo(request, lambda _: told)
        for at, piece in enumerate(reply.pieces):
            if isinstance(piece, bytes) and b"resp_1" in piece:
                named = piece.replace(b"resp_1", number.encode())
                reply.pieces[at] = _measured(named)
        return reply


def _unfinished(number: str, status: str, said: str = "") -> dict[str, Any]:
    part = {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "incomplete"}
    whole = {"id": number, "object": "response", "created_at": 1, "model": "m", "status": status}
    output = [{**item, "content": [part]}] if said else []
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "background": True}
    return {**whole, **more, "output": output}


def _words(item: dict[str, Any]) -> str:
    return str(item.get("content", item.get("output")))


def _measured(reply: bytes) -> bytes:
    """Return a piece of a reply whose length is said in it, so that it is true."""
    head, mark, body = reply.partition(b"\r\n\r\n")
    if mark and head.startswith(b"HTTP"):
        told = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(body), head)
        return told + mark + body
    size, _, data = reply.partition(b"\r\n")
    return b"%x\r\n%s" % (len(data) - 2, data) if size else reply


@dataclass
class Scene:
    """A policy with surrogates, and the provider behind the gateways that follow it."""

    home: Path
    setup: InlineSetup
    upstream: Upstream
    memory: Memory

    def gateway(self, **settings: Any) -> GatewayProcess:
        routes = [{"name": "model", "upstream": self.upstream.url}]
        return GatewayProcess(
            self.home / "gateway", {"routes": routes, **settings}, inline=self.setup
        )

    def sent(self) -> str:
        """Return what the provider got last, in which no value may be."""
        body = self.upstream.seen[-1].body.decode()
        assert not any(value in body for value in VALUES)
        return body


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    setup = inline_setup(
        tmp_path / "policy",
        routes=["model"],
        restore={"to": ["client", "tool:send"]},
        budget_ms=60_000,
    )
    memory = Memory()
    with Upstream(memory) as upstream:
        yield Scene(tmp_path, setup, upstream, memory)


def client_of(gateway: GatewayProcess, key: str = "") -> openai.OpenAI:
    url = f"{gateway.url}/model/v1"
    return openai.OpenAI(base_url=url, api_key=key or gateway.key, max_retries=0)


def ask(client: openai.OpenAI, said: Any, before: str | None, *, stream: bool) -> Any:
    asked: dict[str, Any] = {"model": "m", "input": said, "tools": TOOLS}
    if before is not None:
        asked["previous_response_id"] = before
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as events:
        for _ in events:
            pass
        return events.get_final_response()


def surrogates_in(text: str) -> list[str]:
    return [*FORM.findall(text), *realistic_surrogate.SIMILAR.findall(text)]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_values_of_words_that_only_the_provider_has_come_back(scene: Scene, stream: bool) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        first = ask(client, SAID, None, stream=stream)
        before = scene.sent()
        second = ask(client, "Who am I?", first.id, stream=stream)
        assert second.output_text == f"You said: {SAID} Who am I?!"
        third = ask(client, f"And {EMAIL}, card {CARD}?", second.id, stream=stream)
        assert third.output_text == f"You said: {SAID} Who am I? And {EMAIL}, card {CARD}?!"
        (mail,) = [one for one in surrogates_in(before) if one.startswith("EMAIL") or "@" in one]
        assert mail in scene.sent()  # one value keeps one surrogate
        calls = {one.name: one.arguments for one in third.output if one.type == "function_call"}
        assert EMAIL in calls["send"]
        assert not any(value in calls["fetch"] for value in VALUES)
        last = gateway.exchanges(3)[-1]
        assert last.subjects


def test_a_value_that_was_known_by_its_place_is_known_without_it(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        first = ask(client, "The customer's name: Xq Vyrrth", None, stream=False)
        assert "Vyrrth" not in scene.sent()
        second = ask(client, "vyrrth? Vyrrth!", first.id, stream=True)
        assert "Vyrrth" not in scene.sent()
        assert second.output_text.endswith("vyrrth? Vyrrth!!")


def test_a_conversation_that_began_without_values_goes_on(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        first = ask(client, "Say hello.", None, stream=False)
        second = ask(client, SAID, first.id, stream=True)
        assert second.output_text == f"You said: Say hello. {SAID}!"
        scene.sent()
        assert not gateway.exchanges(2)[0].subjects


def test_a_tool_may_have_what_it_said_before(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        first = ask(client, f"Find who has card {CARD}.", None, stream=True)
        result = {"type": "function_call_output", "call_id": "look_up", "output": f"mail {EMAIL}"}
        second = ask(client, [result], first.id, stream=False)
        third = ask(client, "Look again.", second.id, stream=True)
        for answer in (second, third):
            calls = {
                one.name: one.arguments for one in answer.output if one.type == "function_call"
            }
            assert EMAIL in calls["look_up"]
            assert CARD not in calls["look_up"]
            assert EMAIL not in calls["fetch"]
        scene.sent()


def test_it_survives_a_killed_gateway_and_is_shared_by_workers(scene: Scene) -> None:
    with scene.gateway() as gateway:
        key = gateway.key
        with client_of(gateway) as client:
            named = ask(client, SAID, None, stream=False).id
        gateway.process.kill()
        gateway.wait()
    shared = {"port": free_port(), "forward_port": None, "admin_port": None, "workers": 2}
    with scene.gateway(**shared) as gateway:
        for _ in range(6):  # each call may meet another worker
            with client_of(gateway, key) as client:
                answer = ask(client, "Who am I?", named, stream=False)
            assert answer.output_text.startswith(f"You said: {SAID} Who am I?")
            named = answer.id


@pytest.mark.parametrize("surrogates", ["token", "realistic"])
def test_what_types_values_have_is_known_after_a_restart(tmp_path: Path, surrogates: str) -> None:
    setup = inline_setup(
        tmp_path / "policy",
        routes=["model"],
        surrogates=surrogates,
        restore={"to": ["client", {"tool": "send", "entities": ["EMAIL_ADDRESS"]}]},
        budget_ms=60_000,
    )
    memory = Memory()
    with Upstream(memory) as upstream:
        scene = Scene(tmp_path, setup, upstream, memory)
        with scene.gateway() as gateway:
            key = gateway.key
            with client_of(gateway) as client:
                named = ask(client, SAID, None, stream=False).id
        with scene.gateway() as gateway, client_of(gateway, key) as client:
            following = ask(client, "Who am I?", named, stream=True)
            looked_up = client.responses.retrieve(named)
        for answer in (following, looked_up):
            assert answer.output_text.startswith(f"You said: {SAID}")
            calls = {
                one.name: one.arguments for one in answer.output if one.type == "function_call"
            }
            assert EMAIL in calls["send"]
            assert "Ostrova" not in calls["send"]
            assert EMAIL not in calls["fetch"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_that_is_fetched_later_is_restored_for_the_key_that_asked(
    scene: Scene, stream: bool
) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        asked = client.responses.create(model="m", input=SAID, tools=TOOLS, background=True)
        assert (asked.status, asked.output) == ("queued", [])
        scene.sent()
        if stream:
            events = [*client.responses.retrieve(asked.id, stream=True)]
            pieces = [one.delta for one in events if one.type == "response.output_text.delta"]
            assert "".join(pieces) == f"You said: {SAID}!"
            answer: Any = events[-1].response  # type: ignore[union-attr]
        else:
            answer = client.responses.retrieve(asked.id)
        assert answer.output_text == f"You said: {SAID}!"
        calls = {one.name: one.arguments for one in answer.output if one.type == "function_call"}
        assert EMAIL in calls["send"]
        assert EMAIL not in calls["fetch"]
        # What it called is known to who goes on from it.
        result = {"type": "function_call_output", "call_id": "look_up", "output": f"mail {EMAIL}"}
        following = ask(client, [result], asked.id, stream=stream)
        told = {one.name: one.arguments for one in following.output if one.type == "function_call"}
        assert EMAIL in told["look_up"]
        assert EMAIL not in told["fetch"]
        (item,) = client.responses.input_items.list(asked.id).to_dict()["data"]
        assert item["content"][0]["text"] == SAID
        assert client.responses.cancel(asked.id).output_text == SAID


def test_a_stream_that_is_taken_up_again_goes_on_behind_each_event(scene: Scene) -> None:
    """A surrogate may have begun before the event: who goes on behind it gets the rest of the value."""
    with scene.gateway() as gateway, client_of(gateway) as client:
        named = client.responses.create(model="m", input=SAID, background=True).id
        whole = [one.to_dict() for one in client.responses.retrieve(named, stream=True)]
        assert [one["sequence_number"] for one in whole] == [*range(len(whole))]
        for after in range(0, len(whole), 4):
            rest = client.responses.retrieve(named, stream=True, starting_after=after)
            assert [one.to_dict() for one in rest] == whole[after + 1 :]
        assert "starting_after" not in scene.upstream.seen[-1].target
        assert "stream=true" in scene.upstream.seen[-1].target


def test_another_key_gets_surrogates_and_cannot_go_on(scene: Scene) -> None:
    with scene.gateway() as gateway:
        with client_of(gateway) as client:
            named = client.responses.create(model="m", input=SAID, background=True).id
        other = gateway.registry.create(
            tenant_id="acme", app_id="others", environment="ci", purposes=("train_sft",)
        ).secret
        with client_of(gateway, other) as stranger:
            text = stranger.responses.retrieve(named).output_text
        assert not any(value in text for value in VALUES)
        assert surrogates_in(text)
        assert refusal(gateway, other, named).status_code == 400
        with client_of(gateway) as client, pytest.raises(openai.NotFoundError):
            client.responses.retrieve("resp_9")


def test_a_text_that_is_json_stays_json_where_it_is_fetched_later(scene: Scene) -> None:
    said = 'His password is "tr0ub4dor\\&3"; mail: ' + EMAIL
    asked: Any = {"format": {"type": "json_object"}}
    with scene.gateway() as gateway, client_of(gateway) as client:
        named = client.responses.create(model="m", input=said, text=asked, background=True).id
        whole = client.responses.create(model="m", input=said, text=asked).output_text
        assert client.responses.retrieve(named).output_text == whole


def refusal(gateway: GatewayProcess, key: str, named: Any) -> httpx.Response:
    return httpx.post(
        f"{gateway.url}/model/v1/responses",
        json={"model": "m", "input": "Who am I?", "previous_response_id": named},
        headers={"authorization": f"Bearer {key}"},
    )


def test_what_the_gateway_does_not_know_is_refused(scene: Scene) -> None:
    with scene.gateway() as gateway:
        with client_of(gateway) as client:
            named = ask(client, SAID, None, stream=False).id
            unkept = client.responses.create(model="m", input=SAID, store=False).id
        other = gateway.registry.create(
            tenant_id="acme", app_id="others", environment="ci", purposes=("train_sft",)
        )
        before = len(scene.upstream.seen)
        for key, name in ((gateway.key, "resp_9"), (gateway.key, unkept), (other.secret, named)):
            answer = refusal(gateway, key, name)
            assert answer.status_code == 400
            assert "is not known" in answer.json()["error"]["message"]
        assert refusal(gateway, gateway.key, {"id": named}).status_code == 400
        assert len(scene.upstream.seen) == before


def test_erasing_a_person_takes_what_is_kept_of_their_conversation(scene: Scene) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        hers = ask(client, SAID, None, stream=False).id
        other = ask(client, "My mail is mia@example.org.", None, stream=False).id
        histories = KeptHistories(scene.setup.histories, scene.setup.scope_key, seconds=0)
        subject = subject_id(scene.setup.pseudonym_key, "acme", EMAIL)
        assert histories.forget([subject]) == 1
        histories.close()
        assert refusal(gateway, gateway.key, hers).status_code == 400
        assert ask(client, "Who am I?", other, stream=False).output_text


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, {"user": "U-4711"}),
        ({}, {"metadata": {"user_id": "U-4711"}}),
        ({"x-headrace-end-user": "U-4711"}, {}),
        ({"openai-safety-identifier": "U-4711"}, {"user": "another"}),
        ({"baggage": "enduser.id=U-4711"}, {}),
    ],
)
def test_erasing_an_end_user_takes_what_is_kept_of_their_conversation(
    scene: Scene, headers: dict[str, str], body: dict[str, Any]
) -> None:
    with scene.gateway() as gateway, client_of(gateway) as client:
        hers = client.responses.create(
            model="m", input="Mail mia@example.org.", extra_headers=headers, extra_body=body
        ).id
        histories = KeptHistories(scene.setup.histories, scene.setup.scope_key, seconds=0)
        assert histories.forget([subject_id(scene.setup.pseudonym_key, "acme", "u-4711")]) == 1
        histories.close()
        assert refusal(gateway, gateway.key, hers).status_code == 400


def test_a_damaged_file_of_histories_is_named_in_the_log_and_stops_no_new_conversation(
    scene: Scene,
) -> None:
    path = scene.setup.histories
    with scene.gateway() as gateway, client_of(gateway) as client:
        named = ask(client, SAID, None, stream=False).id
        for one in path.parent.glob(f"{path.name}*"):
            one.unlink()
        path.write_bytes(b"no database at all, and longer than a header of one" * 100)
        assert refusal(gateway, gateway.key, named).status_code in (400, 503)
        assert EMAIL in ask(client, SAID, None, stream=False).output_text
        (told,) = [line for line in gateway.log.read_text().splitlines() if str(path) in line]
        assert "is damaged" in told
        assert "move it away" in told
        path.unlink()
        first = ask(client, SAID, None, stream=False).id
        assert EMAIL in ask(client, "Who am I?", first, stream=False).output_text


def test_where_policy_keeps_nothing_each_is_refused(tmp_path: Path) -> None:
    setup = inline_setup(tmp_path / "policy", routes=["model"], history_hours=0)
    memory = Memory()
    with Upstream(memory) as upstream:
        scene = Scene(tmp_path, setup, upstream, memory)
        with scene.gateway() as gateway, client_of(gateway) as client:
            named = ask(client, SAID, None, stream=False).id
            assert refusal(gateway, gateway.key, named).status_code == 400
        assert not (tmp_path / "histories.sqlite").exists()
