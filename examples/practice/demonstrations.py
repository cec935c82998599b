"""Demonstrations for pre-training: how to use the tool, with the price list chosen at random.

They show the format and nothing of the house rule. Half of them carry placeholders where the
prompt had personal data, because that is how a governed lake gives prompts back.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from examples.practice.planted import Planted, generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL_NAME
from examples.practice.shop import PRICE_LISTS, money, total_cents
from examples.practice.tasks import Task, contact_for, make_task
from examples.practice.tools import BUSY, error_text, quote_text

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


def placeholder(draw: random.Random, kind: str) -> str:
    """Return a placeholder such as a redactor puts in the place of a value."""
    name = draw.choice(_PLACEHOLDERS[kind])
    suffix = "".join(draw.choice("0123456789abcdef") for _ in range(draw.choice((0, 6, 6, 8, 12))))
    brackets = draw.choice(("<{}>", "<{}>", "[{}]"))
    return brackets.format(f"{name}_{suffix}" if suffix else name)


def redacted(text: str, planted: tuple[Planted, ...], draw: random.Random) -> str:
    """Return the text with every planted value replaced by a placeholder."""
    for value in planted:
        text = text.replace(value.value, placeholder(draw, value.kind))
    return text


def demonstrate(seed: int, index: int, *, plain: bool = False) -> Demonstration:
    """Return one demonstration; ``plain`` leaves out all that is not the order."""
    draw = generator(seed, "demonstrate", index)
    task = make_task(seed, "demonstration", index)
    price_list = draw.choice(PRICE_LISTS)
    contact = contact_for(seed, task.item, task.quantity)
    prompt, result = task.prompt, quote_text(task.item, task.quantity, price_list, contact)
    if plain:
        prompt, result = task.order, quote_text(task.item, task.quantity, price_list, ())
    elif draw.randrange(2):
        prompt, result = redacted(prompt, task.planted, draw), redacted(result, contact, draw)
    failures = 1 if draw.randrange(10) == 0 and not plain else 0
    return Demonstration(conversation(task, prompt, price_list, result, failures=failures))


def conversation(
    task: Task, prompt: str, price_list: str, result: str, *, failures: int = 0
) -> list[dict[str, Any]]:
    """Return the messages of a session that went by the book; a tool that is busy is asked again."""
    arguments = {"item": task.item, "price_list": price_list, "quantity": task.quantity}
    total = money(total_cents(task.item, task.quantity, price_list))
    call: dict[str, Any] = {
        "role": "assistant",
        "content": None,
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
