"""Uploads: a form is read in one way only, and written as it came but for what was replaced."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inline.files import FileRequest, TrainingLine, boundary_of, training_line
from proxy.inline.openai import ChatRequest
from proxy.inline.requests import UnreadableRequestError

MARK = b"b0undary"


def form(content: bytes, *more: bytes, name: str = "a.txt", purpose: str = "user_data") -> bytes:
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n'.encode()
    fields = [
        b'Content-Disposition: form-data; name="purpose"\r\n\r\n' + purpose.encode(),
        head + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + content,
        *more,
    ]
    return b"".join(b"--%s\r\n%s\r\n" % (MARK, one) for one in fields) + b"--%s--\r\n" % MARK


TEXTS = st.text(
    st.one_of(
        st.sampled_from('\r\n-{}[]"\\, '), st.characters(exclude_characters="\0", codec="utf-8")
    ),
    max_size=40,
).filter(lambda text: f"\r\n--{MARK.decode()}" not in f"\r\n{text}" and not text.startswith("%PDF"))


@given(TEXTS, st.sampled_from(["user_data", "assistants", "evals"]))
def test_a_form_is_written_as_it_came(text: str, purpose: str) -> None:
    body = form(text.encode(), purpose=purpose)
    read = FileRequest(body, MARK)
    assert not read.inner
    assert read.written(read.text, []) == body


@given(st.lists(st.sampled_from(["", " ", '{"messages": []}', '{"prompt": "a\\nb"}\r'])))
def test_lines_are_requests_and_empty_ones_stay(lines: list[str]) -> None:
    body = form("\n".join(lines).encode(), purpose="fine-tune")
    read = FileRequest(body, MARK)
    assert [one.raw.decode() for one in read.inner] == [one for one in lines if one.strip()]
    assert read.written(read.text, [one.raw for one in read.inner]) == body
    told = read.written(read.text, [b"{}" for _ in read.inner])
    assert told == form(
        "\n".join("{}" if one.strip() else one for one in lines).encode(), purpose="fine-tune"
    )


def test_a_name_is_replaced_where_it_stands() -> None:
    read = FileRequest(form(b"file", name="file"), MARK)
    told = json.dumps({"name": "PERSON_b", "text": "EMAIL_b"})
    assert read.written(told, []) == form(b"EMAIL_b", name="PERSON_b")
    assert read.place(("name",), "string", "Ostrova") is not None


SETTING = b'Content-Disposition: form-data; name="%s"\r\n\r\n%s'


@pytest.mark.parametrize(
    "body",
    [
        form(b"x") + b"more",
        b"before\r\n" + form(b"x"),
        form(b"x").replace(MARK, b"another"),
        form(b"x").replace(b"--\r\n", b"\r\n"),
        form(b"x", SETTING % (b"note", b"x")),
        form(b"x", SETTING % (b"expires_after[seconds]", b"a b@c.d")),
        form(b"x", SETTING % (b"purpose", b"batch") + b"\r\n--" + MARK + b"x"),
        form(b"x").replace(b"filename=", b"filename*="),
        form(b"x").replace(b"charset=utf-8", b"charset=utf-16"),
        form(b"x").replace(b"Content-Type", b"Content-Transfer-Encoding"),
        form(b"\xff"),
        form(b"a\0b"),
        form(b"%PDF-1.4"),
        b"",
    ],
)
def test_a_form_that_can_be_read_in_two_ways_is_refused(body: bytes) -> None:
    with pytest.raises(UnreadableRequestError):
        FileRequest(body, MARK)


def test_no_boundary_reads_nothing() -> None:
    with pytest.raises(UnreadableRequestError):
        FileRequest(form(b"x"), b"")
    assert boundary_of(b'multipart/form-data; boundary="b0undary"') == MARK
    assert boundary_of(b"multipart/form-data") == b""


def test_a_line_that_fine_tunes_is_a_chat_or_nothing_but_data() -> None:
    assert isinstance(training_line(b'{"messages": []}'), ChatRequest)
    data = training_line(b'{"name": "Ostrova"}')
    assert isinstance(data, TrainingLine)
    assert data.place(("name",), "string", "Ostrova") is not None
