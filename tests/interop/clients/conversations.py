"""WebSocket conversations: a scripted provider, and the official SDK as its client."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.interop.clients.drivers import Wire
from tests.support.provider.answer import ANSWER, ARGUMENTS, QUESTION, SCHEMA, SYSTEM, adding
from tests.support.provider.openai import response_events, response_object


@contextlib.contextmanager
def conversing() -> Iterator[str]:
    """Serve responses and Realtime conversations; give the address."""
    with serve(_answer, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join(5)


def _answer(connection: ServerConnection) -> None:
    path = connection.request.path.partition("?")[0] if connection.request else ""
    with contextlib.suppress(ConnectionClosed):
        if path.endswith("/responses"):
            _responses(connection)
        elif path.endswith("/realtime"):
            _Realtime(connection).run()
        else:
            for message in connection:
                connection.send(message)


def _responses(connection: ServerConnection) -> None:
    for number, message in enumerate(connection):
        asked = json.loads(message)
        if asked["model"] == "fail":
            error = {"type": "invalid_request_error", "code": "x", "message": "No such model"}
            connection.send(json.dumps({"type": "error", "status": 400, "error": error}))
            continue
        answer = adding(f"resp_{number + 1}", told="previous_response_id" in asked)
        for event in response_events(response_object(answer)):
            connection.send(json.dumps(event, ensure_ascii=False))


class _Realtime:
    """Just enough of a Realtime server for one spoken question, a tool and an answer."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.session: dict[str, Any] = {
            "id": "sess_1",
            "type": "realtime",
            "object": "realtime.session",
            "model": "tiny-realtime",
            "instructions": "",
            "tools": [],
        }
        self.items: list[str] = []
        self.turn = 0

    def send(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": "event", **fields}
        self.connection.send(json.dumps(event, ensure_ascii=False))

    def run(self) -> None:
        self.send("session.created", session=self.session)
        for message in self.connection:
            event = json.loads(message)
            match event["type"]:
                case "session.update":
                    self.session = {**self.session, **event["session"]}
                    self.send("session.updated", session=self.session)
                case "conversation.item.create":
                    self.add(event["item"])
                case "input_audio_buffer.commit":
                    self.speech()
                case "response.create":
                    self.respond()

    def add(self, item: dict[str, Any]) -> str:
        name = item.get("id") or f"item_{len(self.items) + 1}"
        before = self.items[-1] if self.items else None
        self.items.append(name)
        full = {**item, "id": name, "object": "realtime.item", "status": "completed"}
        self.send("conversation.item.added", previous_item_id=before, item=full)
        self.send("conversation.item.done", previous_item_id=before, item=full)
        return name

    def speech(self) -> None:
        sound = {"type": "input_audio", "transcript": None}
        self.spoken = self.add({"type": "message", "role": "user", "content": [sound]})

    def respond(self) -> None:
        self.turn += 1
        name = f"resp_{self.turn}"
        call = {"type": "function_call", "call_id": "call_1", "name": "add"}
        item: dict[str, Any] = {**call, "arguments": json.dumps(ARGUMENTS)}
        if self.turn == 2:
            speech = {"type": "output_audio", "transcript": ANSWER}
            item = {"type": "message", "role": "assistant", "content": [speech]}
        item |= {"id": f"made_{self.turn}", "status": "completed"}
        started = {"id": name, "object": "realtime.response", "status": "in_progress", "output": []}
        self.send("response.created", response=started)
        place = {"response_id": name, "output_index": 0}
        opening = {**item, "status": "in_progress", "content": []}
        self.send("response.output_item.added", **place, item=opening)
        where = {**place, "item_id": item["id"]}
        if self.turn == 2:
            for piece in (ANSWER[:5], ANSWER[5:]):
                kind = "response.output_audio_transcript.delta"
                self.send(kind, **where, content_index=0, delta=piece)
        else:
            kind = "response.function_call_arguments.delta"
            self.send(kind, **where, call_id="call_1", delta=item["arguments"])
            # The words of the user's speech come late.
            kind = "conversation.item.input_audio_transcription.completed"
            self.send(kind, item_id=self.spoken, content_index=0, transcript=QUESTION)
        self.send("response.output_item.done", **place, item=item)
        self.items.append(item["id"])
        usage = {"total_tokens": 14, "input_tokens": 9, "output_tokens": 5}
        usage["input_token_details"] = {"cached_tokens": 3}  # type: ignore[assignment]
        done = {**started, "status": "completed", "output": [item], "usage": usage}
        self.send("response.done", response=done)


def _client(wire: Wire) -> Any:
    import openai

    return openai.OpenAI(base_url=f"{wire.url}/v1", api_key=wire.key, max_retries=0)


def responses_conversation(wire: Wire) -> Any:
    """Two turns and an error over one connection of the responses interface."""
    tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
    said: list[Any] = []
    told = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
    asked: list[dict[str, Any]] = [
        {"input": [{"role": "user", "content": QUESTION}], "instructions": SYSTEM},
        {"input": [told], "previous_response_id": "resp_1"},
        {"input": "x", "model": "fail"},
    ]
    with _client(wire) as api, api.responses.connect() as connection:
        for request in asked:
            connection.response.create(**{"model": "tiny", "tools": tools, **request})
            for event in connection:
                said.append(event.type)
                if event.type in ("response.completed", "error"):
                    break
    return said


def realtime_conversation(wire: Wire) -> Any:
    """A spoken question, a tool call, its result, and the spoken answer."""
    tool: Any = {"type": "function", "name": "add", "parameters": SCHEMA}
    said: list[Any] = []
    with _client(wire) as api, api.realtime.connect(model="tiny-realtime") as connection:
        connection.session.update(
            session={"type": "realtime", "instructions": SYSTEM, "tools": [tool]}
        )
        connection.input_audio_buffer.append(audio="AAAA" * 8)
        connection.input_audio_buffer.commit()
        connection.response.create()
        _until_done(connection, said)
        connection.conversation.item.create(
            item={"type": "function_call_output", "call_id": "call_1", "output": "42"}
        )
        connection.response.create()
        _until_done(connection, said)
    return said


def _until_done(connection: Any, said: list[Any]) -> None:
    for event in connection:
        said.append(event.type)
        if event.type == "response.done":
            return


CONVERSATIONS = {
    "openai_responses_websocket": responses_conversation,
    "openai_realtime": realtime_conversation,
}
