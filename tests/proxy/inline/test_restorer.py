"""Texts come back as they were, however their streams are cut, and nothing else is touched."""

import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.inline.restorer import IssuedSurrogates, TextRestorer, restored
from trajectory.realistic_surrogate import drawn
from trajectory.surrogate import LENGTH, surrogate

KEY = b"k" * 32
VALUES = ["ada@example.invalid", "Ada", 'a "quoted"\nline', "é", "", "PERSON_"]
NAMES = [surrogate(KEY, "PERSON" if at % 2 else "EMAIL_ADDRESS", v) for at, v in enumerate(VALUES)]
ISSUED = IssuedSurrogates(dict(zip(NAMES, VALUES, strict=True)))
FOREIGN = surrogate(b"other" * 8, "PERSON", "Ada")
REAL = {
    str(drawn(KEY, entity, value, check=KEY)): value
    for entity, value in (
        ("PERSON", "Ada"),
        ("PERSON", "ada"),
        ("EMAIL_ADDRESS", "ada@example.org"),
        ("EMAIL_ADDRESS", 'a "quoted"\nline'),
        ("PHONE_NUMBER", "+49 151"),
        ("PHONE_NUMBER", "0151"),
        ("IP_ADDRESS", "10.1.1.1"),
        ("CREDIT_CARD", "5555 4444 3333 1111"),
        ("PERSONAL_URL", "https://x.org"),
        ("PERSONAL_URL", "x.org"),
    )
}
MIXED = IssuedSurrogates({**REAL, NAMES[4]: "", NAMES[2]: VALUES[2]})

TEXTS = st.lists(
    st.one_of(
        st.sampled_from(NAMES),
        st.sampled_from([FOREIGN, NAMES[0][:-1], NAMES[1][3:], "EMAIL_", "PERSON", "_", "E", "x"]),
        st.text(max_size=5),
    ),
    max_size=8,
).map("".join)


def whole(text: str) -> str:
    """Return what comes back of a text, said as simply as can be."""
    for name, value in ISSUED.values.items():
        text = text.replace(name, f"\0{VALUES.index(value)}\0")
    for at, value in enumerate(VALUES):
        text = text.replace(f"\0{at}\0", value)
    return text


@given(TEXTS.filter(lambda text: "\0" not in text), st.data())
def test_a_stream_comes_back_however_it_is_cut(text: str, data: st.DataObject) -> None:
    restorer, out, at = TextRestorer(ISSUED), "", 0
    while at < len(text):
        end = data.draw(st.integers(at + 1, len(text)))
        out += restorer.feed(text[at:end])
        at = end
    assert out + restorer.close() == whole(text) == restored(text, ISSUED)


@given(TEXTS.filter(lambda text: "\0" not in text))
def test_nothing_waits_but_what_may_become_a_surrogate(text: str) -> None:
    restorer, out = TextRestorer(ISSUED), ""
    for at, letter in enumerate(text, 1):
        out += restorer.feed(letter)
        waiting = len(whole(text[:at])) - len(out)
        held = text[at - waiting : at] if waiting else ""
        assert not waiting or any(
            name.startswith(held) and len(held) < LENGTH for name in ISSUED.values
        )


PIECES = st.lists(
    st.one_of(
        st.sampled_from([*MIXED.values]),
        st.sampled_from([name[:-1] for name in MIXED.values]),
        st.sampled_from(
            ["+1", "92-555-01", "240.1", "@mail.invalid", "EMAIL_", "https://", "4000 "]
        ),
        st.text(max_size=5),
    ),
    max_size=8,
).map("".join)


@given(PIECES)
def test_realistic_ones_come_back_however_a_stream_is_cut(text: str) -> None:
    told = restored(text, MIXED)
    for size in range(1, 60):
        restorer = TextRestorer(MIXED)
        out = [restorer.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(out) + restorer.close() == told
    for cut in range(len(text)):
        restorer = TextRestorer(MIXED)
        assert restorer.feed(text[:cut]) + restorer.feed(text[cut:]) + restorer.close() == told


@given(st.lists(st.sampled_from([*MIXED.values, " ", ", ", "\n"]), max_size=9))
def test_all_that_were_issued_come_back(parts: list[str]) -> None:
    assert restored("".join(parts), MIXED) == "".join(MIXED.values.get(one, one) for one in parts)


def test_realistic_ones_that_were_not_issued_are_counted_and_stay() -> None:
    name = next(iter(REAL))
    other = str(drawn(b"o" * 32, "EMAIL_ADDRESS", "eve@x.org", check=KEY))
    issued = IssuedSurrogates(REAL).only(frozenset({name}))
    mail = next(one for one in REAL if one.endswith("@mail.invalid"))
    text = f"{name}: {other}, {mail}. Call 992-555-0100."
    for size in (1, 7, len(text)):
        restorer = TextRestorer(issued)
        out = [restorer.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(out) + restorer.close() == text.replace(name, REAL[name])
        assert (restorer.unknown, restorer.withheld) == (2, 1)
        assert [*restorer.invented] == [other, "992-555-0100"] or size == 1


def test_strings_within_json_stay_json() -> None:
    quoted = NAMES[2]
    restorer = TextRestorer(ISSUED, in_json=True)
    told = restorer.feed(f'{{"a": "{quoted[:7]}') + restorer.feed(f'{quoted[7:]}"}}')
    assert json.loads(told + restorer.close()) == {"a": VALUES[2]}


def test_numbers_come_back_as_numbers_where_the_text_is_json() -> None:
    name, other = surrogate(KEY, "PHONE_NUMBER", "1"), NAMES[0]
    issued = IssuedSurrogates({name: "4915", other: "a"}, numbers={name})
    text = f'{{"n":"{name}", "t": "x{name}y", "in": "{{\\"n\\":\\"{name}\\"}}", "o": "{other}"}}'
    for size in range(1, len(text) + 1):
        restorer = TextRestorer(issued, in_json=True)
        pieces = [restorer.feed(text[at : at + size]) for at in range(0, len(text), size)]
        told = json.loads("".join(pieces) + restorer.close())
        assert told == {"n": 4915, "t": "x4915y", "in": '{"n":"4915"}', "o": "a"}
    assert TextRestorer(issued).feed(f'"{name}"') == '"4915"'


def test_what_was_invented_or_torn_is_counted_and_stays() -> None:
    text = f"{FOREIGN} {NAMES[0]} {NAMES[1][:-2]}, {NAMES[0]}s MAX_LENGTH"
    for size in (1, 5, len(text)):
        restorer = TextRestorer(ISSUED)
        out = [restorer.feed(text[at : at + size]) for at in range(0, len(text), size)]
        told = "".join(out) + restorer.close()
        assert told == f"{FOREIGN} {VALUES[0]} {NAMES[1][:-2]}, {VALUES[0]}s MAX_LENGTH"
        assert restorer.unknown == 2


@given(st.lists(st.sampled_from([*NAMES, "ab", "c"]), max_size=6))
def test_places_move_with_the_text(parts: list[str]) -> None:
    text = "".join(parts)
    restorer = TextRestorer(ISSUED)
    told = restorer.feed(text) + restorer.close()
    at = now = 0
    for part in parts:
        assert restorer.shifted(at) == now
        at, now = at + len(part), now + len(ISSUED.values.get(part, part))
    assert restorer.shifted(at) == now == len(told)
