"""Requests in batches: each is found as it stands, and the rest stays byte for byte."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inline.batches import BatchLine, MessageBatchRequest
from proxy.inline.requests import UnreadableRequestError

SPACES = st.sampled_from(["", " ", "\n", "\r\n  ", "\t"])
ASKED = st.fixed_dictionaries(
    {
        "custom_id": st.text(max_size=8),
        "params": st.fixed_dictionaries(
            {"messages": st.lists(st.just({"role": "user"}), max_size=2)}
        ),
    }
)


@given(st.lists(ASKED, max_size=4), st.data())
def test_a_batch_is_written_as_it_came(requests: list[dict[str, Any]], data: Any) -> None:
    def space() -> str:
        return str(data.draw(SPACES))

    listed = ",".join(f"{space()}{json.dumps(one)}{space()}" for one in requests) or space()
    body = f'{space()}{{{space()}"x"{space()}:[{{}}],"requests"{space()}:{space()}[{listed}]{space()}}}'
    read = MessageBatchRequest(body.encode())
    raw = [one.raw for one in read.inner]
    assert [json.loads(one) for one in raw] == requests
    assert read.written(read.text, raw) == body.encode()
    others = [b'{"custom_id":"EMAIL_b"}' for _ in raw]
    told = read.written(read.text.replace('"x"', '"longer"'), others)
    assert json.loads(told) == {"longer": [{}], "requests": [{"custom_id": "EMAIL_b"}] * len(raw)}


@pytest.mark.parametrize(
    "body",
    [
        b'{"requests": [{}], "requests": []}',
        b'{"requests": [{} {}]}',
        b'{"requests": [{},]}',
        b'{"requests": {}}',
        b'{"requests": [{}]',
        b'{"requests": [NaN], "x": NaN}',
        b'{"other": []}',
        b"[]",
        b"",
        b"\xff",
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError):
        MessageBatchRequest(body)


def line(url: str = "/v1/responses", **body: Any) -> bytes:
    return json.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body}).encode()


def test_a_line_is_read_by_the_interface_that_it_names() -> None:
    read = BatchLine(line(input="Who?", previous_response_id="resp_1"))
    assert read.said() == [(("body", "input"), "Who?")]
    assert read.goes_on_from() == "resp_1"
    assert read.place(("body", "input"), "string", "Who?") == ("parts", "0", "text")
    assert read.place(("custom_id",), "string", "a") is None
    assert read.place(("custom_id",), "string", "a@x.org") is not None
    assert read.named(line(input="EMAIL_b").decode()) == "a"


@pytest.mark.parametrize(
    "raw",
    [
        line(input="Who?", conversation="conv_1"),  # it would change at an unknown time
        line("/v1/embeddings", input="Who?"),
        line("/v1/chat/completions", input="Who?"),
        b'{"url": "/v1/responses", "body": {"input": "Who?"}}',
        b'{"custom_id": "a", "url": "/v1/responses", "body": []}',
    ],
)
def test_a_line_that_nobody_can_vouch_for_is_refused(raw: bytes) -> None:
    with pytest.raises(UnreadableRequestError):
        BatchLine(raw)
