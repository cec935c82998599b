"""Near-duplicates: found with known odds, verified exactly, group-aware, incremental."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.near import EvaluationSet, NearDocument, NearIndex
from governance.near.minhash import estimates, signatures
from governance.near.shingles import normalised, shingle_sets, shingles, similarity
from trajectory.errors import IntegrityError

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


def text(dice: random.Random, count: int = 60) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(count))


def edited(dice: random.Random, original: str, changes: int) -> str:
    words = original.split()
    for _ in range(changes):
        words[dice.randrange(len(words))] = dice.choice(WORDS)
    return " ".join(words)


def true_similarity(a: str, b: str, size: int = 8) -> float:
    """Jaccard over unhashed pieces, worked out apart from the package."""

    def pieces(value: str) -> set[bytes]:
        data = normalised(value).encode().ljust(size, b"\0")
        return {data[at : at + size] for at in range(len(data) - size + 1)}

    one, other = pieces(a), pieces(b)
    return len(one & other) / len(one | other)


@given(a=st.text(max_size=80), b=st.text(max_size=80), size=st.integers(4, 16))
def test_similarity_is_that_of_the_unhashed_pieces(a: str, b: str, size: int) -> None:
    found, true = similarity(shingles(a, size), shingles(b, size)), true_similarity(a, b, size)
    assert found == pytest.approx(true, abs=0.02) or "\0" in a + b


@given(texts=st.lists(st.text("ab \n", max_size=30), max_size=6), size=st.integers(4, 16))
def test_many_at_once_give_what_each_gives(texts: list[str], size: int) -> None:
    together = shingle_sets(texts, size)
    assert [one.tolist() for one in together] == [shingles(one, size).tolist() for one in texts]


def test_case_and_white_space_do_not_count() -> None:
    assert similarity(shingles("Hello,\n  WORLD again"), shingles("hello, world again")) == 1


def test_estimates_are_close() -> None:
    dice = random.Random(1)  # noqa: S311 (a fixed seed on purpose)
    originals = [text(dice) for _ in range(200)]
    changed = [edited(dice, one, dice.randrange(12)) for one in originals]
    guess = estimates(
        signatures([shingles(one) for one in originals]),
        signatures([shingles(one) for one in changed]),
    )
    true = [true_similarity(a, b) for a, b in zip(originals, changed, strict=True)]
    assert float(np.abs(guess - np.array(true)).max()) < 0.25
    assert abs(float((guess - np.array(true)).mean())) < 0.01


def test_recall_and_precision_at_the_threshold() -> None:
    dice = random.Random(2)  # noqa: S311 (a fixed seed on purpose)
    index = NearIndex(threshold=0.8)
    originals = [NearDocument(f"o{at}", text(dice)) for at in range(400)]
    assert index.add(originals) == []
    changed = [
        NearDocument(f"c{at}", edited(dice, originals[at % 400].text, dice.randrange(10)))
        for at in range(1200)
    ]
    near = {
        one.document_id
        for at, one in enumerate(changed)
        if true_similarity(one.text, originals[at % 400].text) >= 0.8
    }
    compared = [index.compare([one]) for one in changed]  # nothing is kept
    found = {match.document_id for one in compared for match in one.matches.values()}
    assert 300 < len(near) < 1100
    assert len(found & near) / len(near) >= 0.98
    assert len(found & near) / len(found) >= 0.98


def test_documents_of_one_group_stay() -> None:
    dice = random.Random(3)  # noqa: S311 (a fixed seed on purpose)
    same = text(dice)
    attempts = [NearDocument(f"a{at}", same, groups=("task-1",)) for at in range(4)]
    other = NearDocument("b", same, groups=("task-2",))
    index = NearIndex()
    assert index.add(attempts) == []
    (match,) = index.add([other])
    assert (match.document_id, match.similarity) == ("b", 1.0)
    assert len(index) == 4


def test_a_batch_is_compared_with_itself_and_chains_do_not_vanish() -> None:
    dice = random.Random(4)  # noqa: S311 (a fixed seed on purpose)
    base = text(dice, 80)
    documents = [NearDocument(f"d{at}", base) for at in range(50)]
    matches = NearIndex().add(documents)
    assert [match.document_id for match in matches] == [f"d{at}" for at in range(1, 50)]
    assert {match.kept_id for match in matches} == {"d0"}


def test_the_index_goes_on_where_it_stopped(tmp_path: Path) -> None:
    dice = random.Random(5)  # noqa: S311 (a fixed seed on purpose)
    days = [[NearDocument(f"{day}-{at}", text(dice)) for at in range(30)] for day in range(3)]
    for day in days:
        assert NearIndex(tmp_path / "near").add(day) == []
    index = NearIndex(tmp_path / "near")
    assert len(index) == 90
    again = [NearDocument("x", edited(dice, days[1][7].text, 1))]
    assert [match.kept_id for match in index.add(again)] == ["1-7"]


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    NearIndex(tmp_path / "a").add([NearDocument("a", "hello world")])
    with pytest.raises(IntegrityError, match=r"near index a: made with .* build it again"):
        NearIndex(tmp_path / "a", shingle=9)
    (tmp_path / "a" / "near.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(IntegrityError, match="near index a: cannot be read"):
        NearIndex(tmp_path / "a")
    (tmp_path / "b" / "000001").mkdir(parents=True)
    with pytest.raises(IntegrityError, match="near index b: an earlier version made it"):
        NearIndex(tmp_path / "b")


def test_a_crash_leaves_all_of_an_addition_or_nothing(tmp_path: Path) -> None:
    dice = random.Random(6)  # noqa: S311 (a fixed seed on purpose)
    index = NearIndex(tmp_path)
    index.add([NearDocument("a", text(dice))])
    compared = index.compare([NearDocument("b", text(dice)), NearDocument("c", text(dice))])
    compared.features.texts[1] = None  # type: ignore[call-overload]
    with pytest.raises(AttributeError):
        index.keep(compared, {"b", "c"})
    assert index.names() == ["a"]
    assert NearIndex(tmp_path).names() == ["a"]


def test_short_and_empty_texts_are_compared_too() -> None:
    index = NearIndex()
    found = index.add([NearDocument(str(at), one) for at, one in enumerate(["", "hi", "", "HI "])])
    assert [(match.document_id, match.kept_id) for match in found] == [("2", "0"), ("3", "1")]


def test_contamination_by_runs_of_words() -> None:
    examined = EvaluationSet(words=5)
    question = "what is the total price of three boxes with twelve apples each"
    examined.add("q1", question)
    examined.add("q2", "a wholly different question about the weather in the town of nowhere")
    examined.add("short", "two words")
    examined.add("empty", "")
    (overlap,) = examined.overlaps(f"Please tell me: {question.upper()} — thanks")
    assert overlap.evaluation_id == "q1"
    assert overlap.share > 0.7
    assert examined.overlaps("nothing of the kind is said in here at all") == []
    assert [o.evaluation_id for o in examined.overlaps("these are two words only")] == ["short"]
    half = " ".join(question.split()[:8])
    assert [o.evaluation_id for o in examined.overlaps(half, least=0.4)] == ["q1"]
    assert examined.overlaps(half, least=0.6) == []


def two(name: str, said: str, answer: str, rank: float = 0.0) -> NearDocument:
    return NearDocument(name, said, answer=answer, rank=rank)


def test_the_answer_must_be_as_similar_as_the_text() -> None:
    dice = random.Random(8)  # noqa: S311 (a fixed seed on purpose)
    index = NearIndex(answers=True)
    said, answers = text(dice), [text(dice) for _ in range(60)]
    # One text with many answers: no bucket of the text alone hides the pair that is near.
    assert index.add([two(f"d{at}", said, answer) for at, answer in enumerate(answers)]) == []
    (match,) = index.add([two("x", said, edited(dice, answers[57], 1)), two("y", said, "no")])
    assert (match.document_id, match.kept_id) == ("x", "d57")
    assert 0.8 <= match.similarity < 1


def test_a_better_one_takes_the_place_and_the_old_one_counts_no_more(tmp_path: Path) -> None:
    dice = random.Random(9)  # noqa: S311 (a fixed seed on purpose)
    said, others = text(dice), [text(dice) for _ in range(3)]
    index = NearIndex(tmp_path / "near")
    index.add(
        [NearDocument("old", said), *(NearDocument(f"o{n}", t) for n, t in enumerate(others))]
    )
    compared = index.compare([NearDocument("new", edited(dice, said, 1), rank=1.0)])
    assert (compared.matches, [*compared.beaten]) == ({}, ["old"])
    index.keep(compared, {"new"})
    assert len(index) == 4
    again = NearIndex(tmp_path / "near")
    (match,) = again.add([NearDocument("third", said)])
    assert match.kept_id == "new"
    again.add([NearDocument(f"more{at}", text(dice)) for at in range(9)])
    assert "old" not in again.names()
    assert len(again) == 13


def test_what_is_forgotten_leaves_the_files_and_other_processes_see_it(tmp_path: Path) -> None:
    dice = random.Random(10)  # noqa: S311 (a fixed seed on purpose)
    texts = [text(dice) for _ in range(5)]
    index = NearIndex(tmp_path / "near")
    index.add([NearDocument(f"d{at}", one) for at, one in enumerate(texts)])
    index.add([NearDocument("last", text(dice))])
    assert NearIndex(tmp_path / "near").forget({"d1", "d3", "unknown"}) == 2
    assert sorted(index.names()) == ["d0", "d2", "d4", "last"]
    assert [match.kept_id for match in index.add([NearDocument("x", texts[4])])] == ["d4"]
    assert index.add([NearDocument("y", texts[3])]) == []
    assert index.forget({"y", "last"}) == 2
    held = b"".join(path.read_bytes() for path in (tmp_path / "near").iterdir())
    assert b"last" not in held
    assert b"d1" not in held
    for gone in (texts[1], texts[3]):
        pieces = shingles(gone).tobytes()
        assert all(pieces[at : at + 64] not in held for at in range(0, len(pieces), 64))
    assert len(NearIndex(tmp_path / "near")) == 3
