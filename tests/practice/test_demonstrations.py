"""What the base model is pre-trained on: nothing of the house rule, and prompts as a lake gives them."""

import re
from collections import defaultdict

from examples.practice.demonstrations import demonstrate, redacted
from examples.practice.planted_values import generator
from examples.practice.shop import EARLIER_RULE, HOUSE_RULE
from examples.practice.tasks import make_tasks


def test_lists_are_chance_for_our_accounts_and_the_rule_for_earlier_ones() -> None:
    trade: dict[str, list[bool]] = defaultdict(list)
    for index in range(6000):
        call = demonstrate(1, index).messages[2]
        account = call["content"].removeprefix("Account: ").partition(".")[0]
        arguments = call["tool_calls"][0]["function"]["arguments"]
        trade[account].append(arguments["price_list"] == "trade")
    assert set(trade) == set(HOUSE_RULE) | set(EARLIER_RULE)
    for account in HOUSE_RULE:
        share = sum(trade[account]) / len(trade[account])
        assert abs(share - 0.5) < 4 * 0.5 / len(trade[account]) ** 0.5
    for account, price_list in EARLIER_RULE.items():
        assert set(trade[account]) == {price_list == "trade"}


def test_the_last_message_states_what_the_tool_said() -> None:
    for index in range(50):
        messages = demonstrate(2, index).messages
        assert messages[-2]["content"].rpartition("total ")[2] in messages[-1]["content"]


def test_a_plain_order_has_another_number_before_or_behind_it() -> None:
    before = 0
    for index in range(100):
        shown = demonstrate(2, index, plain=True)
        prompt = shown.messages[1]["content"]
        quantity = shown.messages[2]["tool_calls"][0]["function"]["arguments"]["quantity"]
        assert len(re.findall(r"\d+", prompt)) == 2
        assert f" {quantity} " in f" {prompt}"
        before += prompt.startswith("Reference")
    assert 20 < before < 80


def test_redaction_leaves_nothing_planted() -> None:
    draw = generator("test")
    for task in make_tasks(3, "train", 100):
        text = redacted(task.prompt, task.planted, draw)
        assert task.order in text
        assert not [planted for planted in task.planted if planted.value in text]
