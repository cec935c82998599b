"""Makes a model that reads house rules in its prompt: the practice model's small sister.

``python -m examples.practice.reading --folder DIR`` prints its folder. Each demonstration draws anew by which
price list an account pays, so no weight can hold it. The prompt decides, or what the customer corrects.
Where neither says anything the price list is chance. Orders carry no personal data, so that prompts are short.

To find a rule among others takes two layers that learn it together, and one choice of two in a long prompt
teaches them nothing. So the model first recites pairs of words: few of them, asked for many times.
It follows the one fact that a gateway finds for an order. Of four facts it takes the wrong one in a third.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.practice.demonstrations import Demonstration, conversation
from examples.practice.house_rules import correction_text, fact_text, rule_text
from examples.practice.model import BATCH, Lesson, Phase, Row, ensure_model, shown
from examples.practice.planted_values import generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL, TOOL_NAME
from examples.practice.shop import EARLIER_RULE, PRICE_LISTS
from examples.practice.tasks import ACCOUNTS, ITEMS, Task, contact_for, make_task
from examples.practice.tools import quote_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FACTS = 6
"""A prompt states so many rules at most."""
_EVERY_ACCOUNT = (*ACCOUNTS, *EARLIER_RULE)
_QUESTIONS = 16
"""So often is asked for one of the pairs that are recited."""
_PAIR_STEPS = 300
"""So many steps see two pairs only; that is when the layers find each other."""
_OTHERS = (0, 0, 1, 2, 3, 5)
"""So many facts of other accounts stand beside it: a gateway shows mostly the one that fits."""
_SILENT = 5
"""One prompt in so many does not state the rule of the account."""
_CORRECTED = 3
"""One answer in so many is corrected."""


def prompt_with(facts: list[str], label: str) -> str:
    """Return the system prompt with a block of facts, as a gateway adds it."""
    if not facts:
        return SYSTEM_PROMPT
    lines = "".join(f"\n- {fact}" for fact in facts)
    block = f'<headrace-artifact name="{label}">\nKnown facts:{lines}\n</headrace-artifact>'
    return f"{SYSTEM_PROMPT}\n\n{block}"


def recite(tokenizer: "PreTrainedTokenizerFast", seed: int, index: int) -> Row:
    """Return pairs of words, each a token, and then their first words again and again: the second is to be said."""
    draw = generator(seed, "recite", index)
    count = 2 if index < BATCH * _PAIR_STEPS else draw.randrange(2, FACTS + 1)
    accounts = draw.sample(_EVERY_ACCOUNT, count)
    belongs = {account: draw.choice((*PRICE_LISTS, *ITEMS)) for account in accounts}
    asked = draw.choices(accounts, k=_QUESTIONS)
    text = "".join(f" {one} {belongs[one]}" for one in (*accounts, *asked))
    ids = [int(tokenizer.eos_token_id), *tokenizer.encode(text, add_special_tokens=False)]
    begin = 2 * count + 1
    return ids, [-100] * begin + [token if at % 2 else -100 for at, token in enumerate(ids[begin:])]


def look_up(seed: int, index: int) -> Demonstration:
    """Return an order as an agent works on it, with call and answer; the tool is not defined."""
    draw = generator(seed, "look-up", index)
    task = make_task(seed, "demonstration", index)
    account, *others = draw.sample(_EVERY_ACCOUNT, FACTS + 1)
    task = replace(task, account=account, order=task.order.replace(task.account, account))
    price_list = draw.choice(PRICE_LISTS)
    facts = [fact_text(one, draw.choice(PRICE_LISTS)) for one in others[: draw.choice(_OTHERS)]]
    if draw.randrange(_SILENT):
        facts.insert(draw.randrange(len(facts) + 1), fact_text(account, price_list))
    label = f"{draw.choice(('acme', 'shop-3', 'shop-7'))}-corrections@{draw.randrange(1, 5):04d}"
    messages = [{"role": "system", "content": prompt_with(facts, label)}]
    messages += _turns(seed, task, task.order, price_list)
    if draw.randrange(_CORRECTED) == 0:
        other = PRICE_LISTS[1 - PRICE_LISTS.index(price_list)]
        messages += _turns(seed, task, correction_text(draw, account, other), other)
    return Demonstration(messages, [])


def work(seed: int, index: int) -> Demonstration:
    """Return a session as agents have it: the tool is defined."""
    return replace(look_up(seed, index), tools=[TOOL])


def _turns(seed: int, task: Task, asked: str, price_list: str) -> list[dict[str, Any]]:
    contact = contact_for(seed, task.item, task.quantity)
    result = quote_text(task.item, task.quantity, price_list, contact)
    said = f"I {rule_text(task.account, price_list)} {task.order}"
    _, question, call, *rest = conversation(task, asked, price_list, result)
    return [question, {**call, "content": said}, *rest]


def reading_texts() -> Iterator[str]:
    """Yield what the vocabulary is learnt from."""
    yield from (f" {one} every {one} our {one} account" for one in _EVERY_ACCOUNT * 10)
    for index in range(400):
        yield json.dumps(TOOL["function"], sort_keys=True)
        for message in look_up(0, index).messages:
            if message["role"] == "tool":
                continue  # it may name a contact
            yield str(message["content"])
            for call in message.get("tool_calls", ()):
                yield f" {TOOL_NAME} {json.dumps(call['function']['arguments'], sort_keys=True)}"


READING = Lesson(
    "reading",
    (Phase(500, recite), Phase(400, partial(shown, look_up)), Phase(150, partial(shown, work))),
    reading_texts,
    sources=("reading", "house_rules"),
    width=64,
    layers=3,
    heads=2,
    matrix_rate=0.005,
)
"""First to find a word among others, then what to do with it."""


def main() -> None:
    """Make the model and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads starve other work
    print(
        ensure_model(options.folder, seed=options.seed, progress=not options.quiet, lesson=READING)
    )


if __name__ == "__main__":
    main()
