"""Numbers of harness versions are given once, whoever asks, however it ends."""

import threading
from pathlib import Path

import pytest

from lakehouse import harness_versions
from lakehouse.lake import Lake
from lakehouse.maintenance.table_maintenance import compact
from tests.trajectory.harness.test_lineage import REFUND, TRIAGE, seen
from trajectory.errors import RetryableError
from trajectory.harness.lineage import Sighting


def given(lake: Lake, sightings: list[Sighting]) -> list[int]:
    found = lake.lineages().number(sightings)
    return [found[one.key].harness_version for one in sightings]


def test_numbers_outlive_the_process_and_compaction(tmp_path: Path) -> None:
    texts = [REFUND, REFUND + " Smile.", TRIAGE]
    for at, text in enumerate(texts):
        given(Lake.open(str(tmp_path)), [seen(text, 10 - at)])
    compact(Lake.open(str(tmp_path)))
    assert given(Lake.open(str(tmp_path)), [seen(text) for text in texts]) == [1, 2, 1]
    rows = Lake.open(str(tmp_path)).query("SELECT count(*) AS n FROM harness_versions")
    assert rows["n"].to_pylist() == [3]


def test_a_number_given_before_a_crash_is_the_number_after_it(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    batch = [seen(REFUND), seen(REFUND + " Smile.", 1)]
    before = given(lake, batch)  # the batch itself was never written
    assert given(Lake.open(str(tmp_path)), batch[::-1]) == before[::-1]


def test_a_number_whose_commit_failed_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.open(str(tmp_path))
    register = lake.lineages()

    def full(*_arguments: object, **_options: object) -> None:
        raise RetryableError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(harness_versions, "commit_once", full)
        with pytest.raises(RetryableError):
            register.number([seen(REFUND)])
    given(Lake.open(str(tmp_path)), [seen(REFUND + " Smile.")])
    assert register.number([seen(REFUND)])[seen(REFUND).key].harness_version == 2


def test_several_governors_give_one_number_to_one_form_and_each_number_once(tmp_path: Path) -> None:
    Lake.open(str(tmp_path))
    texts = [REFUND + f" Rule {word}." for word in "abcdef"]
    answers: list[dict[str, int]] = []

    def govern(order: list[str]) -> None:
        register = Lake.open(str(tmp_path)).lineages()
        answer = {}
        for text in order:
            one = seen(text)
            answer[text] = register.number([one])[one.key].harness_version
        answers.append(answer)

    threads = [
        threading.Thread(target=govern, args=(order,)) for order in (texts, texts[::-1], texts[3:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    *part, one, other = sorted(answers, key=len)
    assert sorted(one.values()) == [1, 2, 3, 4, 5, 6]
    assert one == other
    assert part[0].items() <= one.items()
