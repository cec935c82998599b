"""AWS event streams come back however they are cut, and what is signed or damaged passes as it is."""

import json
from typing import Any

import pytest

from proxy.inline.answers import CallSurrogates
from proxy.inline.bedrock import ConverseRequest, InvokeRequest
from proxy.inline.bodies import restorer_of, whole_json
from proxy.inline.restorer import IssuedSurrogates
from tests.support.echo import echo
from tests.support.provider.bedrock import event_message
from tests.support.upstream import ReceivedRequest
from trajectory.dialects.event_stream import EventStreamDecoder
from trajectory.surrogate import surrogate

KEY = b"k" * 32
VALUES = ['Größe "3"\n', "ada@example.org"]
NAMES = [surrogate(KEY, "PERSON", VALUES[0]), surrogate(KEY, "EMAIL_ADDRESS", VALUES[1])]
TEXT = f"I am {NAMES[0]}, {NAMES[1]}. {NAMES[1][:-3]}"
KIND = b"application/vnd.amazon.eventstream"
PATHS = ["/model/m/converse-stream", "/model/m/invoke-with-response-stream"]


def surrogates() -> CallSurrogates:
    issued = IssuedSurrogates(dict(zip(NAMES, VALUES, strict=True)))
    request = ConverseRequest(b'{"messages": []}')
    return CallSurrogates(request, issued, {"tool:send": None}, b'{"messages": []}')


def answer(path: str) -> bytes:
    block = {"text": TEXT} if "converse" in path else {"type": "text", "text": TEXT}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [block]}], "tools": [{}]}
    reply = echo(ReceivedRequest("POST", path, [], json.dumps(body).encode()))
    pieces = [piece for piece in reply.pieces[1:] if isinstance(piece, bytes)]
    return b"".join(piece.split(b"\r\n", 1)[1][:-2] for piece in pieces)


def through(path: str, data: bytes, size: int) -> bytes:
    restorer = restorer_of(KIND, path.encode(), surrogates(), None)
    assert restorer is not None
    out = [restorer.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join((*out, restorer.close()))


def texts(path: str, data: bytes) -> dict[int, str]:
    """Return the texts of a stream by their blocks."""
    from base64 import b64decode

    decoder, out = EventStreamDecoder(), dict[int, str]()
    for message in decoder.feed(data):
        value = json.loads(message.payload)
        if "invoke" in path:
            value = json.loads(b64decode(value["bytes"]))
        delta = value.get("delta", {})
        said = delta.get("text", delta.get("partial_json", delta.get("toolUse", {}).get("input")))
        at = value.get("contentBlockIndex", value.get("index"))
        if said is not None:
            out[at] = out.get(at, "") + said
    assert decoder.problem is None
    assert not decoder.cut
    return out


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_may_be_cut_at_every_byte(path: str) -> None:
    data = answer(path)
    told = through(path, data, len(data))
    said = TEXT.replace(NAMES[0], VALUES[0]).replace(NAMES[1], VALUES[1])
    found = texts(path, told)
    assert found[0] == f"You said: {said}!"
    assert json.loads(found[1]) == {"to": said}
    assert json.loads(found[2]) == {"to": TEXT}
    for size in (1, 2, 11, 12, 13, 100):
        assert through(path, data, size) == told


def message(kind: str, value: dict[str, Any]) -> bytes:
    return event_message(
        value, event_type=kind, content_type="application/json", message_type="event"
    )


def test_signed_reasoning_stays_and_citations_of_documents_go() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": NAMES[0], "signature": "c2ln"}}}
    place = {"location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 3}}}
    cited = {"citationsContent": {"content": [{"text": NAMES[1]}], "citations": [place]}}
    body = {"output": {"message": {"role": "assistant", "content": [thought, cited]}}}
    told = json.loads(whole_json(json.dumps(body).encode(), surrogates()))
    first, second = told["output"]["message"]["content"]
    assert first == thought
    assert second == {"citationsContent": {"content": [{"text": VALUES[1]}], "citations": []}}
    streamed = [
        message("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})
        for delta in ({"reasoningContent": {"text": NAMES[0]}}, {"citation": place})
    ]
    assert through(PATHS[0], b"".join(streamed), 9) == streamed[0]


def test_errors_within_a_stream_are_restored() -> None:
    kinds = {"exception_type": "validationException", "message_type": "exception"}
    data = event_message({"message": f"No {NAMES[1]}"}, content_type="application/json", **kinds)
    (told,) = EventStreamDecoder().feed(through(PATHS[0], data, 5))
    assert json.loads(told.payload) == {"message": f"No {VALUES[1]}"}
    assert told.header(":exception-type") == "validationException"


@pytest.mark.parametrize("damage", [b"\0" * 20, b"\xff" * 20, b"HTTP/1.1 500 Oh no"])
def test_after_damage_the_rest_goes_on_as_it_came(damage: bytes) -> None:
    data = message("messageStart", {"role": "assistant"}) + damage + NAMES[0].encode()
    for size in (1, 7, len(data)):
        assert through(PATHS[0], data, size) == data


def test_what_other_models_take_is_not_read() -> None:
    from proxy.inline.requests import UnreadableRequestError

    for body in (b'{"prompt": "x"}', b'{"messages": []}'):
        with pytest.raises(UnreadableRequestError):
            InvokeRequest(body)
