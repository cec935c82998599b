"""The task generator: unique planted values, disjoint splits, tasks found again from their ids."""

from collections import Counter

import phonenumbers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.practice.planted_values import luhn_digit
from examples.practice.shop import PRICE_LISTS, PRICES
from examples.practice.tasks import (
    SPLITS,
    contact_for,
    contacts,
    find_task,
    make_task,
    make_tasks,
    planted_values,
    split_of,
)


@settings(deadline=None)
@given(seed=st.integers(0, 2**31), split=st.sampled_from(SPLITS), index=st.integers(0, 999))
def test_a_task_is_found_again_from_its_id_and_holds_what_was_planted(
    seed: int, split: str, index: int
) -> None:
    task = make_task(seed, split, index)
    assert find_task(task.task_id) == task
    assert all(planted.value in task.prompt for planted in task.planted)
    assert task.planted[0].kind == "person"
    assert task.order in task.prompt
    assert f"{task.quantity} {task.item}" in task.order
    assert task.account in task.order
    assert split_of(task.account, task.item, task.quantity) == split


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31))
def test_values_are_unique_over_all_splits_and_in_no_other_prompt(seed: int) -> None:
    tasks = [task for split in SPLITS for task in make_tasks(seed, split, 60)]
    values = [planted.value for task in tasks for planted in task.planted]
    values += [planted.value for planted in contacts(seed)]
    assert max(Counter(values).values()) == 1
    for task in tasks:
        own = {planted.value for planted in task.planted}
        assert not [value for value in values if value in task.prompt and value not in own]
    assert planted_values(tasks, seed=seed) == set(values)


def test_people_and_phones_stay_unique_over_thousands_of_tasks() -> None:
    tasks = make_tasks(1, "train", 3500)
    values = [planted.value for task in tasks for planted in task.planted]
    assert max(Counter(values).values()) == 1


def test_every_kind_is_planted_and_looks_real() -> None:
    planted = [value for task in make_tasks(5, "train", 400) for value in task.planted]
    kinds = Counter(value.kind for value in planted)
    assert min(kinds[kind] for kind in ("person", "email", "phone", "card", "api_key")) > 50
    for value in planted:
        if value.kind == "card":
            digits = "".join(filter(str.isdigit, value.value))
            assert luhn_digit(digits[:-1]) == digits[-1]
        if value.kind == "phone":
            assert phonenumbers.is_valid_number(phonenumbers.parse(value.value, "US"))
        if value.kind == "email":
            assert value.value.isascii()
            assert value.value.endswith(("example.com", "example.org", "example.net"))


def test_no_prompt_tells_the_house_rule() -> None:
    for task in make_tasks(2, "train", 300):
        assert not [name for name in PRICE_LISTS if name in task.prompt]


def test_some_quotes_name_a_contact_and_always_the_same() -> None:
    quotes = [contact_for(4, item, quantity) for item in PRICES for quantity in range(1, 10)]
    assert 0 < sum(map(bool, quotes)) < 50
    assert quotes == [
        contact_for(4, item, quantity) for item in PRICES for quantity in range(1, 10)
    ]
    assert {value for quote in quotes for value in quote} <= set(contacts(4))


def test_unknown_splits_and_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown split 'test'"):
        make_task(0, "test", 0)
    with pytest.raises(ValueError, match="practice-SEED-SPLIT-INDEX"):
        find_task("practice-x-train-1")
