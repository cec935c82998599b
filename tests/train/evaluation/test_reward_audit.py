"""Winners are looked at together: what earned them their reward, and how many say the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.train.lakes import Session, lake_of
from tests.train.substrate.test_build import build
from train.evaluation.reward_audit import audit_rewards, largest_component
from train.substrate.manifest import load_items
from train.substrate.spec import RewardGate, RewardSpec
from train.types import ScoredItem


@pytest.fixture(scope="module")
def item(tmp_path_factory: pytest.TempPathFactory) -> ScoredItem:
    home = tmp_path_factory.mktemp("audit")
    found = load_items(build(lake_of(home / "lake", Session(1)), home / "substrates"))
    return replace(found[0], split="train", rewarded=True)


def winners(item: ScoredItem, *signals: str) -> list[ScoredItem]:
    return [replace(item, signals=one) for one in signals]


PARTS = RewardSpec(signals={"success": 1.0, "called": 0.5})


def test_what_the_outcome_gave_is_no_trick(item: ScoredItem) -> None:
    found = winners(item, '{"success":1,"called":0}', '{"success":1,"called":1}')
    assert largest_component(found, PARTS) == ("called", pytest.approx(0.2))


def test_a_part_that_alone_makes_winners_is_seen(item: ScoredItem) -> None:
    found = winners(item, '{"success":0,"called":1}', '{"success":0,"called":1}')
    assert largest_component(found, PARTS) == ("called", 1.0)


def test_the_outcome_is_the_signal_that_gates_the_others(item: ScoredItem) -> None:
    gated = RewardSpec(
        signals={"paid": 1.0, "success": 1.0}, gate=RewardGate(signal="paid", at_least=1)
    )
    found = winners(item, '{"success":1,"paid":3}')
    assert largest_component(found, gated) == ("success", 0.25)


def test_what_takes_away_earns_nothing(item: ScoredItem) -> None:
    spec = RewardSpec(signals={"success": 1.0, "called": 0.5, "cost": -1.0})
    found = winners(item, '{"success":0.5,"called":1,"cost":9}')
    assert largest_component(found, spec) == ("called", 0.5)


def test_a_reward_of_one_part_has_none_that_is_larger(item: ScoredItem) -> None:
    one = RewardSpec(signals={"called": 1.0})
    assert largest_component(winners(item, '{"called":1}'), one) == (None, 0.0)


def test_winners_that_are_copies_are_counted(tmp_path: Path) -> None:
    said = "How many days may I keep a lamp that I have never even taken out of its cardboard box?"
    same = [Session(n, question=f"{said} Lamp {n}.", answer=f"{said} Fourteen.") for n in range(12)]
    losers = [replace(one, number=one.number + 20, reward=0.0) for one in same]
    lake = lake_of(tmp_path / "lake", *same, *losers)
    made = build(lake, tmp_path / "substrates")
    found = audit_rewards(lake, load_items(made), made.spec.reward)
    assert found.near_duplicates == pytest.approx((found.winners - 1) / found.winners)
    assert found.winners > 2


def test_winners_that_differ_are_none(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *(Session(n) for n in range(12)))
    made = build(lake, tmp_path / "substrates")
    found = audit_rewards(lake, load_items(made), made.spec.reward)
    assert (found.near_duplicates, found.component) == (0.0, None)
