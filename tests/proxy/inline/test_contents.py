"""What files and batches hold comes back the same, however its bytes are cut."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.inline.answers import CallSurrogates
from proxy.inline.contents import content_restorer
from proxy.inline.kept_histories import KeptHistory
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
        request, issued, frozenset({"tool:send"}), b"", earned=known.earned, requests=find
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
    assert (
        content_restorer(CallSurrogates(BareRequest(b""), IssuedSurrogates({}), frozenset(), b""))
        is None
    )
