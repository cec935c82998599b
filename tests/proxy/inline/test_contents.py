"""What files and batches hold comes back the same, however its bytes are cut."""

import json
import re
from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inline.answers import CallSurrogates
from proxy.inline.bodies import whole_json
from proxy.inline.contents import content_restorer, restored_disposition
from proxy.inline.kept_histories import KeptHistory
from proxy.inline.kept_objects import KeptObject
from proxy.inline.requests import BareRequest
from proxy.inline.restorer import IssuedSurrogates
from trajectory.surrogate import surrogate

KEY = b"k" * 32
VALUES = ['Größe "3"\n', "ada@example.org", "5551234"]
KINDS = ("PERSON", "EMAIL_ADDRESS", "PHONE_NUMBER")
NAMES = [surrogate(KEY, kind, value) for kind, value in zip(KINDS, VALUES, strict=True)]
ISSUED = dict(zip(NAMES, VALUES, strict=True))


def looked_up(known: KeptHistory, requests: dict[str, KeptHistory] | None = None) -> CallSurrogates:
    def find(name: str) -> CallSurrogates | None:
        found = (requests or {}).get(name)
        return None if found is None else looked_up(found)

    request = BareRequest(b"")
    request.before = known
    issued = IssuedSurrogates(known.values, numbers=known.numbers)
    return CallSurrogates(
        request, issued, {"tool:send": None}, b"", earned=known.earned, inner=find
    )


def through(surrogates: CallSurrogates, data: bytes, cuts: list[int]) -> bytes:
    restorer = content_restorer(surrogates)
    assert restorer is not None
    ends = sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    pieces = [restorer.feed(data[a:b]) for a, b in pairwise(ends)]
    return b"".join((*pieces, restorer.close()))


def put(text: str) -> str:
    """Return a text with surrogates for its values."""
    for name, value in ISSUED.items():
        text = text.replace(value, name)
    return text


CUTS = st.lists(st.integers(0, 600), max_size=12)
WORDS = st.lists(st.sampled_from([*VALUES, "a", " ", "Ä", "\n", "_", "EMAIL_b"]), max_size=12)


@given(WORDS, CUTS)
def test_a_text_comes_back_byte_for_byte(words: list[str], cuts: list[int]) -> None:
    text = "".join(words)
    told = through(looked_up(KeptHistory(values=ISSUED)), put(text).encode(), cuts)
    assert told.decode() == text


@given(st.lists(WORDS, max_size=5), CUTS, st.booleans())
def test_lines_of_json_come_back_with_all_that_is_in_them(
    lines: list[list[str]], cuts: list[int], nested: bool
) -> None:
    """The strings of JSON within strings, too."""

    def written(said: str) -> str:
        return json.dumps({"said": json.dumps([said]) if nested else said, "n": 1.50})

    data = "\n".join(written(put("".join(one))) for one in lines).encode()
    told = through(looked_up(KeptHistory(values=ISSUED, in_json=True)), data, cuts)

    def read(line: str) -> object:
        value = json.loads(line)
        return {**value, "said": json.loads(value["said"]) if nested else value["said"]}

    values = [read(one) for one in told.decode().split("\n") if one]
    assert values == [read(written("".join(one))) for one in lines]


def test_every_cut_of_answers_gives_each_its_own_values_alone() -> None:
    def answer(named: str, text: str) -> str:
        calls = [
            {"type": "function", "id": tool, "function": {"name": tool, "arguments": said}}
            for tool in ("send", "fetch", "look_up")
            for said in [json.dumps({"to": text})]
        ]
        message = {"role": "assistant", "content": text, "tool_calls": calls}
        body = {"object": "chat.completion", "choices": [{"index": 0, "message": message}]}
        return json.dumps({"custom_id": named, "response": {"status_code": 200, "body": body}})

    both = " and ".join(NAMES[:2])
    data = "\n".join([answer("one", both), answer("two", both), answer("none", both), "torn"])
    requests = {
        "one": KeptHistory(values={NAMES[0]: VALUES[0]}, earned={"look_up": (NAMES[0],)}),
        "two": KeptHistory(values={NAMES[1]: VALUES[1]}),
    }
    known = KeptHistory(requests="r", is_answers=True)
    whole = through(looked_up(known, requests), data.encode(), [])
    for cut in range(0, len(data), 3):
        assert through(looked_up(known, requests), data.encode(), [cut]) == whole
    one, two, none, torn = whole.decode().split("\n")
    said, calls = _said(one)
    assert said == f"{VALUES[0]} and {NAMES[1]}"
    assert calls == {"send": said, "fetch": both, "look_up": said}
    assert _said(two)[0] == f"{NAMES[0]} and {VALUES[1]}"
    assert _said(two)[1]["look_up"] == both
    assert (none, torn) == (answer("none", both), "torn")


def _said(line: str) -> tuple[str, dict[str, str]]:
    message = json.loads(line)["response"]["body"]["choices"][0]["message"]
    calls = [one["function"] for one in message["tool_calls"]]
    return message["content"], {one["name"]: json.loads(one["arguments"])["to"] for one in calls}


def test_a_number_of_json_comes_back_as_one_and_what_is_unknown_stays() -> None:
    known = KeptHistory(values=ISSUED, numbers=(NAMES[2],), in_json=True)
    data = json.dumps({"phone": NAMES[2], "other": "EMAIL_bcdfghjklmnpqrstvw"}).encode()
    told = json.loads(through(looked_up(known), data, []))
    assert told == {"phone": 5551234, "other": "EMAIL_bcdfghjklmnpqrstvw"}


def test_what_nobody_knows_passes_as_it_is() -> None:
    assert content_restorer(CallSurrogates(BareRequest(b""), IssuedSurrogates({}), {}, b"")) is None


def listing(known: dict[str, KeptHistory], asked: list[str]) -> CallSurrogates:
    """Return the surrogates of a request for a list; ``asked`` gets the ids that are looked up."""

    def find(name: str) -> CallSurrogates | None:
        asked.append(name)
        return looked_up(known[name]) if name in known else None

    request = BareRequest(b"")
    request.about = KeptObject("files", "", "")
    return CallSurrogates(request, IssuedSurrogates({}), {}, b"", inner=find)


def test_an_object_of_a_list_has_its_own_values_and_no_others() -> None:
    both = f"{NAMES[0]} {NAMES[1]}"
    known = {"a": KeptHistory(values={NAMES[0]: VALUES[0]}), "b": KeptHistory(values=ISSUED)}
    listed = [{"id": name, "filename": both} for name in ("a", "b", "c")]
    odd = ["a", {"filename": both}, {"id": 7, "filename": both}]
    value = {"object": "list", "data": [*listed, *odd], "first_id": NAMES[0]}
    surrogates = listing(known, [])
    told = json.loads(whole_json(json.dumps(value).encode(), surrogates))
    assert [one["filename"] for one in told["data"][:3]] == [
        f"{VALUES[0]} {NAMES[1]}",
        f"{VALUES[0]} {VALUES[1]}",
        both,
    ]
    assert told == {**value, "data": [*told["data"][:2], listed[2], *odd]}
    assert surrogates.restored == 3


def test_of_a_long_list_the_newest_are_looked_up() -> None:
    asked: list[str] = []
    names = [str(at) for at in range(1500)]
    known = {name: KeptHistory(values=ISSUED) for name in names}
    body = json.dumps({"data": [{"id": name, "filename": NAMES[1]} for name in names]}).encode()
    told = json.loads(whole_json(body, listing(known, asked)))["data"]
    assert asked == names[:1000]
    assert [one["filename"] for one in told] == [VALUES[1]] * 1000 + [NAMES[1]] * 500


@pytest.mark.parametrize(
    "body", [b'{"error": {"id": "a"}}', b"[]", b'{"data": {}}', b"{", b"EMAIL_"]
)
def test_what_is_no_list_passes_byte_for_byte(body: bytes) -> None:
    asked: list[str] = []
    assert whole_json(body, listing({}, asked)) == body
    assert not asked


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('attachment; filename="{}.txt"; size=7', 'attachment; size=7; filename="{}.txt"'),
        ("attachment; filename={}.txt", 'attachment; filename="{}.txt"'),
        ("attachment; FILENAME*=utf-8''{}.txt", 'attachment; filename="{}.txt"'),
        (
            "inline; filename=\"{}.txt\"; filename*=UTF-8''{}%20%C3%84.txt",
            "inline; filename=\"{} _.txt\"; filename*=UTF-8''ada%40example.org%20%C3%84.txt",
        ),
    ],
)
def test_a_download_gets_its_name_back(before: str, after: str) -> None:
    told = restored_disposition(
        before.replace("{}", NAMES[1]).encode(), looked_up(KeptHistory(values=ISSUED))
    )
    assert told.decode() == after.replace("{}", VALUES[1])


@pytest.mark.parametrize(
    "header", ["attachment", 'attachment; filename="a.txt"', "x; filename=\xe9"]
)
def test_a_name_that_nobody_has_replaced_stays(header: str) -> None:
    raw = header.encode("latin-1")
    assert restored_disposition(raw, looked_up(KeptHistory(values=ISSUED))) == raw


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_no_value_begins_another_header(value: str) -> None:
    known = KeptHistory(values={NAMES[0]: value})
    before = f'attachment; filename="{NAMES[0]}"'.encode()
    told = restored_disposition(before, looked_up(known)).decode()
    assert re.fullmatch("[ -~]*", told)
    plain, mark, encoded = told.partition("; filename*=UTF-8''")
    quoted = plain.removeprefix('attachment; filename="').removesuffix('"')
    assert (unquote(encoded) if mark else re.sub(r"\\(.)", r"\1", quoted)) == value
