"""What was found once is looked for everywhere."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.redact import RedactionError
from governance.redact.propagate import KnownValues


def known(*values: tuple[str, str]) -> KnownValues:
    out = KnownValues()
    for entity, value in values:
        out.learn(entity, value)
    out.close()
    return out


def hits(memory: KnownValues, text: str) -> list[tuple[str, str]]:
    return [(text[start:end], value) for _, start, end, value in memory.find(text)]


def test_spellings_of_a_name_stand_for_the_whole_name() -> None:
    memory = known(("PERSON", "Brunhilde Tkachenko"))
    name = "Brunhilde Tkachenko"
    for text in (
        "Brunhilde", "Tkachenko", "BRUNHILDE TKACHENKO", "brunhilde-tkachenko",
        "brunhilde.tkachenko", "brunhildetkachenko", "Tkachenko, Brunhilde",
    ):  # fmt: skip
        assert hits(memory, f"x {text} y") == [(text, name)]


@pytest.mark.parametrize("part", ["Ouyang", "Xiaoling", "ouyang"])
def test_a_part_that_was_told_alone_stands_for_the_name_that_is_told_later(part: str) -> None:
    memory = known(("PERSON", part), ("PERSON", "Xiaoling Ouyang"), ("PERSON", "Berit Ouyang"))
    assert hits(memory, f"x {part} y") == [(part, "Xiaoling Ouyang")]
    assert memory.whole(part) == "Xiaoling Ouyang"


def test_an_address_after_a_name_is_no_first_name_of_it() -> None:
    memory = known(("PERSON", "Leonie Hartwig"))
    for text in (
        "Leonie Hartwig, leonie.hartwig@example.com",
        "Leonie Hartwig, leonie@example.com",
        "Leonie Hartwig, leonie_h@example.com",
    ):
        assert hits(memory, text)[0] == ("Leonie Hartwig", "Leonie Hartwig")
    assert hits(memory, "ask Hartwig, Leonie.") == [("Hartwig, Leonie", "Leonie Hartwig")]


def test_only_whole_words() -> None:
    assert hits(known(("PERSON", "Ann Lee")), "Annual Leeds Anna") == []


def test_everyday_parts_are_not_looked_for() -> None:
    memory = known(("PERSON", "Will May"))
    assert hits(memory, "Will it rain in May?") == []
    assert hits(memory, "ask Will May") == [("Will May", "Will May")]


def test_unsure_single_words_are_not_looked_for() -> None:
    memory = KnownValues()
    memory.learn("PERSON", "Subnormal", sure=False)
    memory.close()
    assert hits(memory, "a Subnormal number") == []


def test_unsure_names_that_stand_alone_need_their_capital() -> None:
    memory = KnownValues()
    memory.learn("PERSON", "Jenkins", sure=False)
    memory.close()
    assert hits(memory, "edit jenkins.yaml, ask Jenkins") == [("Jenkins", "Jenkins")]


def test_values_by_their_exact_spelling() -> None:
    memory = known(("PASSWORD", "correct7horse"), ("PASSWORD", "abc"))
    assert hits(memory, "typed correct7horse, abc") == [("correct7horse", "correct7horse")]


def test_parts_handles_and_other_spellings_in_any_case() -> None:
    memory = known(("PERSON", "Priya Raghunathan"))
    for text in (
        "raghunathan", "priya", "PRIYA", "@priya", "RAGHUNATHAN, PRIYA", "Raghunathan, Priya",
        "PriyaRaghunathan", "priyaraghunathan", "PRIYA_RAGHUNATHAN", "raghunathan.priya", "praghunathan",
        "priyar", "p.raghunathan", "Priya%20Raghunathan", "RaghunathanPriya", "P. Raghunathan",
    ):  # fmt: skip
        found = hits(memory, f"x {text} y")
        assert [(one.strip("@"), value) for one, value in found] == [
            (text.strip("@"), "Priya Raghunathan")
        ], text


def test_parts_that_are_words_need_their_capital() -> None:
    memory = known(("PERSON", "Grace Klein"), ("PERSON", "Will Stark"), ("PERSON", "Rose Petit"))
    for text in (
        "the grace period", "ein klein wenig", "it will rain", "stark im kommen", "petit rose", "THE WILL OF",
    ):  # fmt: skip
        assert hits(memory, text) == [], text
    assert hits(memory, "Klein paid, Stark too") == [
        ("Klein", "Grace Klein"),
        ("Stark", "Will Stark"),
    ]


def test_names_are_found_in_plain_letters() -> None:
    memory = known(("PERSON", "Jürgen Zölßner"), ("PERSON", "Małgorzata Brøndum"))
    for text in ("Zoelssner", "Zolssner", "juergen.zoelssner", "Jurgen", "jzoelssner"):
        assert hits(memory, f"x {text} y") == [(text, "Jürgen Zölßner")]
    for text in ("Malgorzata", "Broendum", "malgorzata_brondum", "M. Brondum"):
        assert hits(memory, f"x {text} y") == [(text, "Małgorzata Brøndum")]


def test_names_without_capitals_or_spaces() -> None:
    memory = known(("PERSON", "\u738b\u5c0f\u660e"))
    assert hits(memory, "\u8bf7\u95ee\u738b\u5c0f\u660e\u5728\u5417") == [
        ("\u738b\u5c0f\u660e",) * 2
    ]


def test_places_stay_where_they_are_beside_letters_that_grow_in_small() -> None:
    memory = known(("PERSON", "Priya Raghunathan"))
    assert hits(memory, "\u0130\u0130 raghunathan") == [("raghunathan", "Priya Raghunathan")]


def test_thousands_of_names_are_looked_for() -> None:
    names = [f"Zor{first}na Quib{last}ax" for first in _SYLLABLES for last in _SYLLABLES]
    memory = known(*[("PERSON", name) for name in names])
    text = "\n".join(f"{name.split()[1]} paid" for name in names)
    assert len(hits(memory, text)) == len(names) == 2500


def test_too_many_values_are_refused_and_never_passed_in_silence() -> None:
    with pytest.raises(RedactionError, match="too many"):
        known(*[("USERNAME", f"user_{number}") for number in range(200_000)])


@pytest.mark.parametrize("size", [99, 100, 101, 102, 500])
def test_long_values_are_found_whole_and_the_longest_of_those_that_begin_alike(size: int) -> None:
    key = ("k3y-" * size)[:size]
    longer, other = key + "-and-more", key[:-1] + "9"
    memory = known(("API_KEY", key), ("API_KEY", longer), ("API_KEY", other))
    assert hits(memory, f"{key}, {longer} {other}; {key[:-1]} x{key} {key}x") == [
        (value, value) for value in (key, longer, other)
    ]


@given(
    st.lists(st.text("a1 -", min_size=6, max_size=160), min_size=1, max_size=4),
    st.lists(st.text("a1 -", max_size=9), max_size=3),
    st.integers(1, 30),
)
def test_values_are_found_where_a_search_for_each_finds_them(
    values: list[str], between: list[str], times: int
) -> None:
    values = [value * times for value in values]
    text = "; ".join([*values, *between, *values, values[0] + values[-1]])
    memory = known(*[("API_KEY", value) for value in values])
    looked_for = {value for value in values if not value.isalpha()}
    covered = set()
    for value in looked_for:
        at = text.find(value)
        while at >= 0:
            end = at + len(value)
            if not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
                covered.update(range(at, end))
            at = text.find(value, at + 1)
    found = {at for _, start, end, _ in memory.find(text) for at in range(start, end)}
    assert found == covered


def test_a_long_value_in_text_that_repeats_itself_costs_little() -> None:
    text = "Apt 4 " * 50_000
    memory = known(("STREET_ADDRESS", text[4:-1]))
    start = time.process_time()
    assert hits(memory, text) == [(text[4:-1], text[4:-1])]
    assert time.process_time() - start < 3  # takes hundredths; what is not linear takes longer


_SYLLABLES = [a + b for a in "bdfgklmnpr" for b in "aeiou"]
