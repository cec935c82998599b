"""What was found once is looked for everywhere."""

from governance.redact.propagate import Known


def known(*values: tuple[str, str]) -> Known:
    out = Known()
    for entity, value in values:
        out.learn(entity, value)
    out.close()
    return out


def hits(memory: Known, text: str) -> list[tuple[str, str]]:
    return [(text[start:end], value) for _, start, end, value in memory.find(text)]


def test_spellings_of_a_name_stand_for_the_whole_name() -> None:
    memory = known(("PERSON", "Brunhilde Tkachenko"))
    name = "Brunhilde Tkachenko"
    for text in (
        "Brunhilde", "Tkachenko", "BRUNHILDE TKACHENKO", "brunhilde-tkachenko",
        "brunhilde.tkachenko", "brunhildetkachenko", "Tkachenko, Brunhilde",
    ):  # fmt: skip
        assert hits(memory, f"x {text} y") == [(text, name)]


def test_only_whole_words() -> None:
    assert hits(known(("PERSON", "Ann Lee")), "Annual Leeds Anna") == []


def test_everyday_parts_are_not_looked_for() -> None:
    memory = known(("PERSON", "Will May"))
    assert hits(memory, "Will it rain in May?") == []
    assert hits(memory, "ask Will May") == [("Will May", "Will May")]


def test_unsure_single_words_are_not_looked_for() -> None:
    memory = Known()
    memory.learn("PERSON", "Subnormal", sure=False)
    memory.close()
    assert hits(memory, "a Subnormal number") == []


def test_values_by_their_exact_spelling() -> None:
    memory = known(("PASSWORD", "correct7horse"), ("PASSWORD", "abc"))
    assert hits(memory, "typed correct7horse, abc") == [("correct7horse", "correct7horse")]
