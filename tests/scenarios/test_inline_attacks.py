"""Attacks on pseudonymisation as canarywire makes them, in the dialects that it does not know.

Responses, Gemini and the calls of MCP servers that a provider makes itself: values are planted in
texts, tool calls and conversations of several turns, answers are cut at every character, and the
provider fails in each way that a stream can. The provider must see no value, its client all of them,
and no surrogate.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.planting import Planter
from tests.proxy.gateway_process import GatewayProcess
from tests.support.inline import BreakableSetup, inline_setup
from tests.support.upstream import ReceivedRequest, Reply, Upstream, as_json, plain, stream
from trajectory import realistic_surrogate
from trajectory.surrogate import FORM

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

type Body = dict[str, Any]
type Event = dict[str, Any]

KINDS = ("person", "email", "phone", "card", "iban", "ssn", "ipv4", "openai_key", "jwt", "address")
TOOL = "send"
SERVER = "crm"


def strings(value: Any) -> list[str]:
    """Return all texts of a value, its keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in (key, *strings(inner))]
    return [one for inner in value for one in strings(inner)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Turn:
    """What is said before an answer: a question, and what a tool was asked and said."""

    asks: str
    called: Any = None
    result: Any = None


@dataclass
class Heard:
    """What a client reads in an answer."""

    text: str = ""
    arguments: str = ""
    """Of the tool that it is to call, or that the provider has called."""
    result: str = ""
    """Of the tool that the provider has called."""
    error: str = ""


class Dialect:
    """Writes requests and answers of one dialect, and reads answers as clients do."""

    path = ""

    def request(self, system: str, described: str, turns: list[Turn], *, streamed: bool) -> Body:
        raise NotImplementedError

    def items(self, body: Body) -> list[Any]:
        """Return the conversation of a request, in its pieces."""
        raise NotImplementedError

    def whole(self, text: str, arguments: str, result: str) -> Any:
        raise NotImplementedError

    def events(self, pieces: list[str], arguments: list[str], result: str) -> list[Event]:
        raise NotImplementedError

    def failure(self, said: str) -> tuple[int, Body]:
        raise NotImplementedError

    def late_failure(self, said: str) -> Event:
        raise NotImplementedError

    def hear(self, values: list[Any]) -> Heard:
        raise NotImplementedError

    named = True

    def url(self, *, streamed: bool) -> str:
        return self.path


class Responses(Dialect):
    """OpenAI's responses: a function that the client calls."""

    path = "/v1/responses"
    kind = "function_call"
    delta = "response.function_call_arguments"

    def tools(self, described: str) -> list[Body]:
        schema = {
            "type": "object",
            "properties": {"to": {"type": "string", "description": described}},
        }
        return [{"type": "function", "name": TOOL, "description": described, "parameters": schema}]

    def call(self, at: int, arguments: str, result: str) -> Iterator[Body]:
        call = {"type": "function_call", "id": f"fc_{at}", "call_id": f"c{at}", "name": TOOL}
        yield {**call, "arguments": arguments, "status": "completed"}
        yield {"type": "function_call_output", "call_id": f"c{at}", "output": result}

    def request(self, system: str, described: str, turns: list[Turn], *, streamed: bool) -> Body:
        items: list[Body] = []
        for at, turn in enumerate(turns):
            part = {"type": "input_text", "text": turn.asks}
            items.append({"type": "message", "role": "user", "content": [part]})
            if turn.called is not None:
                items += self.call(at, json.dumps(turn.called), json.dumps(turn.result))
        body: Body = {"model": "m", "instructions": system, "input": items, "store": False}
        return body | {"tools": self.tools(described), "stream": streamed}

    def items(self, body: Body) -> list[Any]:
        items: list[Any] = body["input"]
        return items

    def called(self, arguments: str, result: str) -> Body:
        call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": TOOL}
        return {**call, "arguments": arguments, "status": "completed"}

    def output(self, text: str, arguments: str, result: str) -> list[Body]:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
        summary = [{"type": "summary_text", "text": text}]
        return [
            {"type": "reasoning", "id": "r1", "summary": summary},
            {**message, "content": [part]},
            self.called(arguments, result),
        ]

    def whole(self, text: str, arguments: str, result: str) -> Body:
        head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
        return {**head, "status": "completed", "output": self.output(text, arguments, result)}

    def events(self, pieces: list[str], arguments: list[str], result: str) -> list[Event]:
        text, said = "".join(pieces), "".join(arguments)
        whole = self.whole(text, said, result)
        thought, message, called = whole["output"]
        opened = {**whole, "status": "in_progress", "output": []}
        found: list[Event] = [{"type": "response.created", "response": opened}]
        for at, item in enumerate((thought, message)):
            name = "response.output_text" if at else "response.reasoning_summary_text"
            place = {"output_index": at, "item_id": item["id"]}
            place |= {"content_index": 0} if at else {"summary_index": 0}
            found.append(
                {
                    "type": "response.output_item.added",
                    "output_index": at,
                    "item": {**item, "content": [], "summary": []},
                }
            )
            found += [{"type": f"{name}.delta", **place, "delta": one} for one in pieces]
            found.append({"type": f"{name}.done", **place, "text": text})
            found.append({"type": "response.output_item.done", "output_index": at, "item": item})
        empty = {**called, "arguments": ""}
        empty.pop("output", None)
        place = {"output_index": 2, "item_id": called["id"]}
        found.append({"type": "response.output_item.added", "output_index": 2, "item": empty})
        found += [{"type": f"{self.delta}.delta", **place, "delta": one} for one in arguments]
        found.append({"type": f"{self.delta}.done", **place, "arguments": said})
        found.append({"type": "response.output_item.done", "output_index": 2, "item": called})
        found.append({"type": "response.completed", "response": whole})
        return [{**one, "sequence_number": at} for at, one in enumerate(found)]

    def failure(self, said: str) -> tuple[int, Body]:
        return 400, {"error": {"message": said, "type": "invalid_request_error", "param": None}}

    def late_failure(self, said: str) -> Event:
        error = {"code": "server_error", "message": said}
        failed = {
            "id": "resp_1",
            "object": "response",
            "status": "failed",
            "error": error,
            "output": [],
        }
        return {"type": "response.failed", "response": failed}

    def hear(self, values: list[Any]) -> Heard:
        heard, thought = Heard(), ""
        for value in values:
            kind = value.get("type", "")
            if kind == "response.output_text.delta":
                heard.text += value["delta"]
            elif kind == "response.reasoning_summary_text.delta":
                thought += value["delta"]
            elif kind == f"{self.delta}.delta":
                heard.arguments += value["delta"]
            elif kind == f"{self.delta}.done":
                assert value["arguments"] == heard.arguments
            elif kind.endswith("_text.done"):
                assert value["text"] == (heard.text if "output" in kind else thought)
            elif kind == "response.failed":
                heard.error = value["response"]["error"]["message"]
            elif "error" in value and "output" not in value:
                heard.error = value["error"]["message"]
            elif kind == "response.completed" or "output" in value:
                output = value.get("response", value)["output"]
                reasoning, message, called = output
                whole = Heard(
                    message["content"][0]["text"], called["arguments"], called.get("output") or ""
                )
                assert reasoning["summary"][0]["text"] == whole.text
                assert not heard.text or (heard.text, heard.arguments) == (
                    whole.text,
                    whole.arguments,
                )
                heard = whole
        return heard


class ServedMcp(Responses):
    """OpenAI's responses with a server of MCP, whose tools the provider calls."""

    delta = "response.mcp_call_arguments"

    def tools(self, described: str) -> list[Body]:
        place = {"server_label": SERVER, "server_url": "https://crm.invalid/mcp"}
        return [
            {"type": "mcp", **place, "server_description": described, "require_approval": "never"}
        ]

    def call(self, at: int, arguments: str, result: str) -> Iterator[Body]:
        schema = {"type": "object", "properties": {}}
        tool = {"name": TOOL, "description": result, "input_schema": schema, "annotations": None}
        yield {"type": "mcp_list_tools", "id": f"l{at}", "server_label": SERVER, "tools": [tool]}
        asked = {
            "type": "mcp_approval_request",
            "id": f"a{at}",
            "name": TOOL,
            "server_label": SERVER,
        }
        yield {**asked, "arguments": arguments}
        answer = {"type": "mcp_approval_response", "approval_request_id": f"a{at}", "approve": True}
        yield {**answer, "reason": result}
        call = {"type": "mcp_call", "id": f"mc{at}", "name": TOOL, "server_label": SERVER}
        yield {**call, "arguments": arguments, "output": result, "error": None}

    def called(self, arguments: str, result: str) -> Body:
        call = {"type": "mcp_call", "id": "mcp_1", "name": TOOL, "server_label": SERVER}
        return {**call, "arguments": arguments, "output": result, "error": None}


class AskedMcp(ServedMcp):
    """The same, where the client is asked whether a tool of the server may be called."""

    def called(self, arguments: str, result: str) -> Body:
        asked = {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "name": TOOL,
            "server_label": SERVER,
        }
        return {**asked, "arguments": arguments}


class MessagesMcp(Dialect):
    """Anthropic's messages with a server of MCP, whose tools the provider calls."""

    path = "/v1/messages"

    def request(self, system: str, described: str, turns: list[Turn], *, streamed: bool) -> Body:
        messages: list[Body] = []
        for at, turn in enumerate(turns):
            messages.append({"role": "user", "content": [{"type": "text", "text": turn.asks}]})
            if turn.called is not None:
                used = {"type": "mcp_tool_use", "id": f"u{at}", "name": TOOL, "server_name": SERVER}
                part = {"type": "text", "text": json.dumps(turn.result)}
                told = {"type": "mcp_tool_result", "tool_use_id": f"u{at}", "is_error": False}
                blocks = [{**used, "input": turn.called}, {**told, "content": [part]}]
                messages.append({"role": "assistant", "content": blocks})
        server = {"type": "url", "name": SERVER, "url": "https://crm.invalid/mcp"}
        tool = {"name": TOOL, "description": described, "input_schema": {"type": "object"}}
        body: Body = {"model": "m", "max_tokens": 9, "system": system, "stream": streamed}
        return body | {"messages": messages, "mcp_servers": [server], "tools": [tool]}

    def items(self, body: Body) -> list[Any]:
        items: list[Any] = body["messages"]
        return items

    def blocks(self, text: str, arguments: str, result: str) -> list[Body]:
        used = {"type": "mcp_tool_use", "id": "u", "name": TOOL, "server_name": SERVER}
        part = {"type": "text", "text": result}
        told = {"type": "mcp_tool_result", "tool_use_id": "u", "is_error": False, "content": [part]}
        return [{"type": "text", "text": text}, {**used, "input": json.loads(arguments)}, told]

    def whole(self, text: str, arguments: str, result: str) -> Body:
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        return {**head, "content": self.blocks(text, arguments, result), "stop_reason": "end_turn"}

    def events(self, pieces: list[str], arguments: list[str], result: str) -> list[Event]:
        blocks = self.blocks("".join(pieces), "".join(arguments), result)
        found: list[Event] = [{"type": "message_start", "message": {"id": "msg_1", "content": []}}]
        empty = [{**blocks[0], "text": ""}, {**blocks[1], "input": {}}, blocks[2]]
        deltas = [
            [{"type": "text_delta", "text": one} for one in pieces],
            [{"type": "input_json_delta", "partial_json": one} for one in arguments],
            [],
        ]
        for at, block in enumerate(empty):
            found.append({"type": "content_block_start", "index": at, "content_block": block})
            found += [
                {"type": "content_block_delta", "index": at, "delta": one} for one in deltas[at]
            ]
            found.append({"type": "content_block_stop", "index": at})
        return [*found, {"type": "message_stop"}]

    def failure(self, said: str) -> tuple[int, Body]:
        return 400, self.late_failure(said)

    def late_failure(self, said: str) -> Event:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": said}}

    def hear(self, values: list[Any]) -> Heard:
        heard = Heard()
        for value in values:
            if value.get("type") == "error":
                heard.error = value["error"]["message"]
            elif value.get("type") == "message":
                text, used, told = value["content"]
                arguments = json.dumps(used["input"])
                heard = Heard(text["text"], arguments, told["content"][0]["text"])
            elif value.get("type") == "content_block_delta":
                heard.text += value["delta"].get("text", "")
                heard.arguments += value["delta"].get("partial_json", "")
            elif "content" in value.get("content_block", {}):
                heard.result = value["content_block"]["content"][0]["text"]
        return heard


class Gemini(Dialect):
    """Gemini's answers: each event has whole parts."""

    path = "/v1beta/models/m:generateContent"
    named = False

    def url(self, *, streamed: bool) -> str:
        return "/v1beta/models/m:streamGenerateContent?alt=sse" if streamed else self.path

    def request(self, system: str, described: str, turns: list[Turn], *, streamed: bool) -> Body:
        contents: list[Body] = []
        for turn in turns:
            contents.append({"role": "user", "parts": [{"text": turn.asks}]})
            if turn.called is not None:
                call = {"functionCall": {"name": TOOL, "args": {"to": turn.called}}}
                told = {"functionResponse": {"name": TOOL, "response": {"result": turn.result}}}
                contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [told]}]
        schema = {
            "type": "OBJECT",
            "properties": {"to": {"type": "STRING", "description": described}},
        }
        declared = {"name": TOOL, "description": described, "parameters": schema}
        body: Body = {"contents": contents, "systemInstruction": {"parts": [{"text": system}]}}
        return body | {"tools": [{"functionDeclarations": [declared]}]}

    def items(self, body: Body) -> list[Any]:
        items: list[Any] = body["contents"]
        return items

    def chunk(self, parts: list[Body], **more: str) -> Body:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}]}

    def called(self, arguments: str, result: str) -> list[Body]:
        call = {"functionCall": {"name": TOOL, "args": json.loads(arguments)}}
        run = {"executableCode": {"language": "PYTHON", "code": f"say({result!r})"}}
        return [call, run, {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": result}}]

    def whole(self, text: str, arguments: str, result: str) -> Any:
        parts: list[Body] = [
            {"text": text, "thought": True},
            {"text": text},
            *self.called(arguments, result),
        ]
        return self.chunk(parts, finishReason="STOP")

    def events(self, pieces: list[str], arguments: list[str], result: str) -> list[Event]:
        found = [self.chunk([{"text": one, "thought": True}]) for one in pieces]
        found += [self.chunk([{"text": one}]) for one in pieces]
        found.append(self.chunk(self.called("".join(arguments), result)))
        return [*found, self.chunk([{"text": ""}], finishReason="STOP")]

    def failure(self, said: str) -> tuple[int, Body]:
        return 400, self.late_failure(said)

    def late_failure(self, said: str) -> Event:
        return {"error": {"code": 400, "message": said, "status": "INVALID_ARGUMENT"}}

    def hear(self, values: list[Any]) -> Heard:
        heard, thought = Heard(), ""
        for value in values:
            if "error" in value:
                heard.error = value["error"]["message"]
                continue
            for part in value["candidates"][0]["content"]["parts"]:
                if part.get("thought"):
                    thought += part["text"]
                elif "functionCall" in part:
                    heard.arguments = json.dumps(part["functionCall"]["args"])
                elif "codeExecutionResult" in part:
                    heard.result = part["codeExecutionResult"]["output"]
                heard.text += "" if part.get("thought") else part.get("text", "")
        assert heard.error or not thought or thought == heard.text
        return heard


class GeminiArray(Gemini):
    """Gemini's other stream: one array of JSON."""

    def url(self, *, streamed: bool) -> str:
        return self.path.replace(":g", ":streamG") if streamed else self.path


DIALECTS = {
    "responses": Responses(),
    "responses-mcp": ServedMcp(),
    "responses-mcp-asked": AskedMcp(),
    "messages-mcp": MessagesMcp(),
    "gemini": Gemini(),
    "gemini-array": GeminiArray(),
}


@dataclass
class Provider:
    """Says everything again that it was told, cut as it is told, or fails as it is told."""

    dialect: Dialect = field(default_factory=Dialect)
    streamed: bool = False
    cut: int | None = None
    """Where in its text a stream is cut; else every seven characters."""
    fault: str = ""

    def pieces(self, text: str) -> list[str]:
        if self.cut is None:
            return [text[at : at + 7] for at in range(0, len(text), 7)]
        return [one for one in (text[: self.cut], text[self.cut :]) if one]

    def __call__(self, request: ReceivedRequest) -> Reply:
        said = " | ".join(strings(json.loads(request.body)))
        dialect, arguments = self.dialect, json.dumps({"to": said})
        if self.fault == "refuses":
            status, body = dialect.failure(said)
            return as_json(body, status)
        if self.fault == "no JSON":
            return plain(502, f"<p>{said}</p>".encode(), ("Content-Type", "text/html"))
        if not self.streamed:
            data = json.dumps(dialect.whole(said, arguments, said)).encode()
            kind = ("Content-Type", "application/json; charset=utf-8")
            if self.fault == "compresses":
                return plain(200, gzip.compress(data), kind, ("Content-Encoding", "gzip"))
            return plain(200, data, kind)
        events = dialect.events(self.pieces(said), self.pieces(arguments), said)
        if isinstance(dialect, GeminiArray):
            return stream([json.dumps(events).encode()], kind="application/json")
        return self._stream(events, said)

    def _stream(self, events: list[Event], said: str) -> Reply:
        end = "\r\n" if self.fault == "line ends" else "\n"
        if self.fault in ("ends", "breaks off", "late failure"):
            events = events[: len(events) // 2]
        if self.fault == "late failure":
            events.append(self.dialect.late_failure(said))
        parts = []
        for event in events:
            name = f"event: {event['type']}{end}" if self.dialect.named else ""
            parts.append(f"{name}data: {json.dumps(event)}{end}{end}".encode())
            if self.fault == "keep-alives":
                parts.append(f": ping{end}{end}".encode())
        if self.fault == "bytes":
            parts = [bytes([one]) for one in b"".join(parts)]
        reply = stream(parts)
        if self.fault == "breaks off":
            return replace(reply, pieces=reply.pieces[:-1], abort=True)
        return reply


@dataclass
class Scene:
    """A gateway, its provider, and values to plant."""

    gateway: GatewayProcess
    upstream: Upstream
    provider: Provider
    client: httpx.Client
    broken: Path
    planter: Planter = field(default_factory=lambda: Planter(7))

    def turns(self, count: int) -> tuple[list[Turn], list[str]]:
        """Return turns with values in each place, and the values."""
        turns, values = [], []
        for at in range(count):
            some = [self.planter.one(KINDS[(at * 4 + place) % len(KINDS)]) for place in range(4)]
            asked, called, found, nested = some
            result = {"found": [found.sentence], "raw": json.dumps({nested.key: nested.sentence})}
            turns.append(Turn(asked.sentence, {called.key: called.sentence}, result))
            values += [one.value for one in some]
        return turns, values

    def ask(self, dialect: Dialect, body: Body, *, streamed: bool) -> httpx.Response:
        self.provider.dialect, self.provider.streamed = dialect, streamed
        url = f"/model{dialect.url(streamed=streamed)}"
        return self.client.post(url, json=body)

    def sent(self, values: list[str]) -> Body:
        """Return what the provider got last, in which none of the values may be."""
        request = self.upstream.seen[-1]
        self.upstream.seen.clear()
        told = json.loads(request.body)
        texts = " ".join(strings(told))
        assert not [one for one in values if one in texts or one in request.target]
        found: Body = told
        return found


@pytest.fixture(scope="module", params=["token", "realistic"])
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("attacks")
    setup = inline_setup(
        home / "policy",
        routes=["model"],
        restore={"to": ["client", "tool:*"]},
        budget_ms=120_000,
        surrogates=request.param,
    )
    provider, broken = Provider(), home / "broken"
    with Upstream(provider) as upstream:
        settings = {"routes": [{"name": "model", "upstream": upstream.url}]}
        inline = BreakableSetup(setup, broken)
        with GatewayProcess(home / "gateway", settings, inline=inline) as gateway:
            key = {"x-headrace-key": gateway.key}
            with httpx.Client(base_url=gateway.url, headers=key, timeout=300) as client:
                yield Scene(gateway, upstream, provider, client, broken)


@pytest.fixture(autouse=True)
def as_usual(scene: Scene) -> Iterator[None]:
    yield
    scene.provider.cut, scene.provider.fault = None, ""
    scene.broken.unlink(missing_ok=True)


def values_of(answer: httpx.Response) -> list[Any]:
    """Return what an answer says, however it comes."""
    text = answer.text.replace("\r\n", "\n")
    if answer.headers["content-type"].startswith("text/event-stream"):
        return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def surrogates_in(text: str) -> list[str]:
    return [*FORM.findall(text), *realistic_surrogate.SIMILAR.findall(text)]


def check(scene: Scene, dialect: Dialect, body: Body, values: list[str], *, streamed: bool) -> Body:
    """Ask; return what the provider got, once both ends are as they must be."""
    answer = scene.ask(dialect, body, streamed=streamed)
    assert answer.status_code == 200, answer.text
    sent = scene.sent(values)
    heard = dialect.hear(values_of(answer))
    said = " | ".join(strings(body))
    assert heard.text == said
    assert json.loads(heard.arguments) == {"to": said}
    assert heard.result in ("", said)
    assert not surrogates_in(answer.text)
    return sent


STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
EVERY_DIALECT = pytest.mark.parametrize("name", DIALECTS)


@STREAMED
@EVERY_DIALECT
def test_values_in_every_place(scene: Scene, name: str, streamed: bool) -> None:
    dialect = DIALECTS[name]
    for kind in KINDS:
        system, described = scene.planter.one(kind), scene.planter.one(kind)
        turns, values = scene.turns(1)
        values += [system.value, described.value]
        body = dialect.request(system.sentence, described.sentence, turns, streamed=streamed)
        check(scene, dialect, body, values, streamed=streamed)


@EVERY_DIALECT
def test_a_stream_may_be_cut_at_every_character(scene: Scene, name: str) -> None:
    dialect = DIALECTS[name]
    one = scene.planter.one("email")
    body = dialect.request("", "", [Turn(f"Mail {one.value}.")], streamed=True)
    said = " | ".join(strings(body))
    start = said.index("Mail ")
    for cut in range(start, start + len("Mail ") + 40):
        scene.provider.cut = cut
        check(scene, dialect, body, [one.value], streamed=True)


@EVERY_DIALECT
def test_a_conversation_keeps_its_surrogates_over_turns(scene: Scene, name: str) -> None:
    dialect = DIALECTS[name]
    turns, values = scene.turns(4)
    system = scene.planter.one("person")
    before: list[Any] = []
    for count in range(1, len(turns) + 1):
        streamed = bool(count % 2)
        body = dialect.request(system.sentence, "Sends.", turns[:count], streamed=streamed)
        sent = check(scene, dialect, body, [*values, system.value], streamed=streamed)
        items = dialect.items(sent)
        assert items[: len(before)] == before
        before = items


STREAM_FAULTS = ("line ends", "keep-alives", "bytes")


@pytest.mark.parametrize("fault", ["compresses", *STREAM_FAULTS])
@EVERY_DIALECT
def test_answers_of_every_form(scene: Scene, name: str, fault: str) -> None:
    dialect = DIALECTS[name]
    turns, values = scene.turns(1)
    streamed = fault in STREAM_FAULTS
    scene.provider.fault = fault
    body = dialect.request("Be kind.", "Sends.", turns, streamed=streamed)
    check(scene, dialect, body, values, streamed=streamed)


@STREAMED
@EVERY_DIALECT
def test_what_a_provider_says_of_its_failure_is_restored(
    scene: Scene, name: str, streamed: bool
) -> None:
    dialect = DIALECTS[name]
    turns, values = scene.turns(1)
    body = dialect.request("Be kind.", "Sends.", turns, streamed=streamed)
    said = " | ".join(strings(body))
    for fault in ("refuses", "no JSON", *(["late failure"] if streamed else [])):
        if fault == "late failure" and isinstance(dialect, GeminiArray):
            continue
        scene.provider.fault = fault
        answer = scene.ask(dialect, body, streamed=streamed)
        scene.sent(values)
        assert not surrogates_in(answer.text)
        if fault == "no JSON":
            assert answer.text == f"<p>{said}</p>"
        else:
            assert dialect.hear(values_of(answer)).error == said


@pytest.mark.parametrize("fault", ["ends", "breaks off"])
@EVERY_DIALECT
def test_a_stream_that_ends_too_soon_leaves_no_surrogate(
    scene: Scene, name: str, fault: str
) -> None:
    dialect = DIALECTS[name]
    if isinstance(dialect, GeminiArray):
        pytest.skip("an array has no event that could be the last one")
    turns, values = scene.turns(1)
    body = dialect.request("Be kind.", "Sends.", turns, streamed=True)
    scene.provider.dialect, scene.provider.streamed, scene.provider.fault = dialect, True, fault
    got = b""
    try:
        with scene.client.stream(
            "POST", f"/model{dialect.url(streamed=True)}", json=body
        ) as answer:
            for piece in answer.iter_bytes():
                got += piece
    except httpx.RemoteProtocolError:
        assert fault == "breaks off"
    scene.sent(values)
    assert not surrogates_in(got.decode())
    assert got.count(b"data: ") > 3


@STREAMED
@EVERY_DIALECT
def test_while_detectors_are_broken_nothing_passes(scene: Scene, name: str, streamed: bool) -> None:
    dialect = DIALECTS[name]
    turns, _ = scene.turns(1)
    scene.broken.touch()
    body = dialect.request("Be kind.", "Sends.", turns, streamed=streamed)
    answer = scene.ask(dialect, body, streamed=streamed)
    assert answer.status_code >= 400
    assert scene.upstream.seen == []
