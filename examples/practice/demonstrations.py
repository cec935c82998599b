"""Demonstrations for pre-training: how to use the tool, with the price list chosen at random.

They show the format and nothing of the house rule; most of them are about accounts of earlier days
that no task mentions, so that the model knows what a price list may depend on. Half of them carry
placeholders where the prompt had personal data, because that is how a governed lake gives prompts back.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

from examples.practice.planted_values import PlantedValue, generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL, TOOL_NAME
from examples.practice.shop import EARLIER_RULE, PRICE_LISTS, money, total_cents
from examples.practice.tasks import Task, contact_for, make_task
from examples.practice.tools import BUSY, error_text, quote_text

EARLIER_SHARE = 0.96
"""Share of the demonstrations with an account of earlier days, where the price list is right.

The accounts of tasks come seldom, because their price lists are drawn by chance. With 0.7 the model took all six
for one kind of account, and rewarded sessions moved them together. In the demo with seed 21, 46 % of the held-out
tasks became 63 %. With 0.96 it keeps them apart: 48 % became 74 %.
"""

_PLACEHOLDERS = {
    "person": ("PERSON", "PERSON_NAME", "NAME"),
    "email": ("EMAIL_ADDRESS", "EMAIL"),
    "phone": ("PHONE_NUMBER", "PHONE"),
    "card": ("CREDIT_CARD", "CARD"),
    "api_key": ("API_KEY", "SECRET", "REDACTED"),
}


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One conversation to learn from; the last message is the assistant's answer."""

    messages: list[dict[str, Any]] = field(repr=False)
    tools: list[dict[str, Any]] = field(repr=False)
    """What the assistant was told that it may call; a plain one leaves it out."""


def placeholder(draw: random.Random, kind: str) -> str:
    """Return a placeholder such as a redactor puts in the place of a value."""
    name = draw.choice(_PLACEHOLDERS[kind])
    suffix = "".join(draw.choice("0123456789abcdef") for _ in range(draw.choice((0, 6, 6, 8, 12))))
    brackets = draw.choice(("<{}>", "<{}>", "[{}]"))
    return brackets.format(f"{name}_{suffix}" if suffix else name)


def redacted(text: str, planted: tuple[PlantedValue, ...], draw: random.Random) -> str:
    """Return the text with every planted value replaced by a placeholder."""
    for value in planted:
        text = text.replace(value.value, placeholder(draw, value.kind))
    return text


def demonstrate(seed: int, index: int, *, plain: bool = False) -> Demonstration:
    """Return one demonstration; ``plain`` leaves out all but the order and a number beside it."""
    draw = generator(seed, "demonstrate", index)
    task = make_task(seed, "demonstration", index)
    price_list = draw.choice(PRICE_LISTS)
    if draw.random() < EARLIER_SHARE:
        earlier = draw.choice(tuple(EARLIER_RULE))
        task, price_list = _of_account(task, earlier), EARLIER_RULE[earlier]
    contact = contact_for(seed, task.item, task.quantity)
    prompt, result = task.prompt, quote_text(task.item, task.quantity, price_list, contact)
    if plain:
        # Without another number the model might learn to take any digit for the quantity.
        reference = f"Reference {draw.randrange(10, 1_000_000)}."
        prompt = " ".join(draw.sample((task.order, reference), 2))
        result = quote_text(task.item, task.quantity, price_list, ())
    elif draw.randrange(2):
        prompt, result = redacted(prompt, task.planted, draw), redacted(result, contact, draw)
    failures = 1 if draw.randrange(10) == 0 and not plain else 0
    messages = conversation(task, prompt, price_list, result, failures=failures)
    return Demonstration(messages, [] if plain else [TOOL])


def _of_account(task: Task, account: str) -> Task:
    """Return the task as if another type of account had asked."""
    order = task.order.replace(task.account, account)
    prompt = task.prompt.replace(task.order, order)
    return replace(task, prompt=prompt, order=order, account=account)


def conversation(
    task: Task, prompt: str, price_list: str, result: str, *, failures: int = 0
) -> list[dict[str, Any]]:
    """Return the messages of a session that went by the book; a tool that is busy is asked again."""
    arguments = {"item": task.item, "price_list": price_list, "quantity": task.quantity}
    total = money(total_cents(task.item, task.quantity, price_list))
    call: dict[str, Any] = {
        "role": "assistant",
        "content": f"Account: {task.account}.",
        "tool_calls": [{"function": {"name": TOOL_NAME, "arguments": arguments}}],
    }
    busy: dict[str, Any] = {"role": "tool", "content": error_text(BUSY)}
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": prompt},
        *([call, busy] * failures),
        call,
        {"role": "tool", "content": result},
        {"role": "assistant", "content": f"The total is {total}."},
    ]
