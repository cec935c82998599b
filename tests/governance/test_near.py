"""Near-duplicates: found with known odds, verified exactly, group-aware, incremental."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.near import EvaluationSet, NearDocument, NearIndex
from governance.near.minhash import estimates, signatures
from governance.near.shingles import normalised, shingles, similarity
from trajectory.errors import IntegrityError

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]


def text(dice: random.Random, count: int = 60) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(count))


def edited(dice: random.Random, original: str, changes: int) -> str:
    words = original.split()
    for _ in range(changes):
        words[dice.randrange(len(words))] = dice.choice(WORDS)
    return " ".join(words)


def true_similarity(a: str, b: str) -> float:
    """Jaccard over unhashed pieces, worked out apart from the package."""

    def pieces(value: str) -> set[bytes]:
        data = normalised(value).encode().ljust(8, b"\0")
        return {data[at : at + 8] for at in range(len(data) - 7)}

    one, other = pieces(a), pieces(b)
    return len(one & other) / len(one | other)


@given(a=st.text(max_size=80), b=st.text(max_size=80))
def test_similarity_is_that_of_the_unhashed_pieces(a: str, b: str) -> None:
    assert (
        similarity(shingles(a), shingles(b)) == pytest.approx(true_similarity(a, b), abs=0.02)
        or "\0" in a + b
    )


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
    fresh = NearIndex(threshold=0.8)
    fresh.add(originals)
    found = set()
    for one in changed:
        other = NearIndex(threshold=0.8)
        other._segments = list(fresh._segments)
        found |= {match.document_id for match in other.add([one])}
    assert 300 < len(near) < 1100
    assert len(found & near) / len(near) >= 0.98
    assert len(found & near) / len(found) >= 0.98


def test_documents_of_one_group_stay() -> None:
    dice = random.Random(3)  # noqa: S311 (a fixed seed on purpose)
    same = text(dice)
    attempts = [NearDocument(f"a{at}", same, group="task-1") for at in range(4)]
    other = NearDocument("b", same, group="task-2")
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
    assert [path.name for path in sorted((tmp_path / "near").iterdir())] == ["000002", "000003"]
    again = [NearDocument("x", edited(dice, days[1][7].text, 1))]
    assert [match.kept_id for match in index.add(again)] == ["1-7"]


def test_segments_that_were_joined_no_longer_count(tmp_path: Path) -> None:
    dice = random.Random(6)  # noqa: S311 (a fixed seed on purpose)
    NearIndex(tmp_path).add([NearDocument("a", text(dice))])
    shutil.copytree(tmp_path / "000001", tmp_path / "kept")
    NearIndex(tmp_path).add([NearDocument("b", text(dice))])
    (tmp_path / "kept").rename(tmp_path / "000001")
    (tmp_path / "000009.part").mkdir()
    assert len(NearIndex(tmp_path)) == 2
    sizes = [NearIndex(tmp_path).add([NearDocument(f"{at}", text(dice))]) for at in range(9)]
    assert sizes == [[]] * 9
    assert len(NearIndex(tmp_path)) == 11


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    NearIndex(tmp_path).add([NearDocument("a", "hello world")])
    about = tmp_path / "000001" / "about.json"
    about.write_text(about.read_text().replace("minhash-14x5-1", "minhash-9"))
    with pytest.raises(IntegrityError, match="build it again"):
        NearIndex(tmp_path)
    about.write_text("{")
    with pytest.raises(IntegrityError, match="cannot be read"):
        NearIndex(tmp_path)


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
