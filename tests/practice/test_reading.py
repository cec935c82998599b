"""The model that reads: its demonstrations follow the prompt, and so does it, also for rules never seen."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.artifact_gains import Size, artifact_gains
from examples.practice.house_rules import correction_text, fact_text, rule_text
from examples.practice.model import BATCH
from examples.practice.network import PracticeNetwork
from examples.practice.planted_values import generator
from examples.practice.prompts import SYSTEM_PROMPT, TOOL
from examples.practice.reading import (
    FACTS,
    READING,
    look_up,
    prompt_with,
    reading_texts,
    recite,
    work,
)
from examples.practice.shop import EARLIER_RULE, HOUSE_RULE, PRICE_LISTS
from examples.practice.tasks import ACCOUNTS, ITEMS, make_task
from examples.practice.tokenizer import render, train_tokenizer
from proxy.artifacts.blocks import PreparedArtifact
from proxy.artifacts.bodies import ChatBody
from tests.practice.demo_model import MAKING_SECONDS, demo_model
from trajectory.artifact import ArtifactSpec
from trajectory.assembly.signals import clues_of_message
from trajectory.message import Message, TextPart


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(reading_texts())


def test_words_that_are_recited_are_one_token_each(tokenizer: Any) -> None:
    for word in (*ACCOUNTS, *EARLIER_RULE, *ITEMS, *PRICE_LISTS):
        assert len(tokenizer.encode(f" {word}", add_special_tokens=False)) == 1


def test_the_second_word_of_a_pair_is_to_be_said_and_stands_before(tokenizer: Any) -> None:
    counts = set()
    for index in (0, *range(BATCH * 1000, BATCH * 1000 + 60)):
        ids, labels = recite(tokenizer, 1, index)
        words = tokenizer.decode(ids[1:]).split()
        asked = sum(token != -100 for token in labels)
        pairs = list(zip(words[::2], words[1::2], strict=True))
        count = len(pairs) - asked
        assert labels[2 * count + 2 :: 2] == ids[2 * count + 2 :: 2]
        assert all(token == -100 for token in (*labels[: 2 * count + 1], *labels[1::2]))
        assert set(pairs[count:]) <= set(pairs[:count])
        counts.add(count)
    assert counts == set(range(2, FACTS + 1))


def account_in(call: dict[str, Any]) -> str:
    """Return the account of the rule that an agent says before it calls."""
    return str(call["content"].partition(" every ")[2].split()[0])


def test_a_session_follows_its_prompt_then_its_customer() -> None:
    told = corrected = 0
    for index in range(200):
        system, question, call, _, _, *rest = look_up(1, index).messages
        price_list = call["tool_calls"][0]["function"]["arguments"]["price_list"]
        account = account_in(call)
        assert call["content"].endswith(question["content"])
        assert rule_text(account, price_list) in call["content"]
        told += fact_text(account, price_list) in system["content"]
        assert f"every {account} " not in system["content"].replace(
            fact_text(account, price_list), ""
        )
        if rest:
            corrected += 1
            now = rest[1]["tool_calls"][0]["function"]["arguments"]["price_list"]
            assert now != price_list
            assert rule_text(account, now) in rest[0]["content"]
            assert rule_text(account, now) in rest[1]["content"]
    assert 130 < told < 185
    assert 40 < corrected < 95
    assert work(1, 3).messages == look_up(1, 3).messages
    assert work(1, 3).tools == [TOOL]


def test_prompts_say_nothing_of_the_house_rule() -> None:
    """What the weights see of an account is chance."""
    seen = {account: dict.fromkeys(PRICE_LISTS, 0) for account in ACCOUNTS}
    for index in range(1500):
        call = look_up(1, index).messages[2]
        account = account_in(call)
        if account in seen:
            seen[account][call["tool_calls"][0]["function"]["arguments"]["price_list"]] += 1
    right = sum(seen[account][name] for account, name in HOUSE_RULE.items())
    total = sum(sum(counts.values()) for counts in seen.values())
    assert total > 90
    assert 0.3 < right / total < 0.7


def test_the_block_is_the_gateways_own() -> None:
    facts = [fact_text("bakery", "trade"), fact_text("inn", "retail")]
    memory = {"facts": [{"id": f"f{at}", "text": text} for at, text in enumerate(facts)]}
    spec = {"tenant": "acme", "proposer": "jo", "licence": "CC0-1.0", "memory": memory}
    messages = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": "It is a bakery account."},
    ]
    body = ChatBody(json.dumps({"messages": messages}).encode())
    one = PreparedArtifact("acme-corrections@0001", ArtifactSpec.model_validate(spec))
    assert one.apply(body, None, 1000) is not None
    sent = json.loads(body.sent())["messages"][0]["content"]
    assert sent == prompt_with(facts[:1], "acme-corrections@0001")


def test_a_customers_words_are_seen_as_a_correction() -> None:
    draw = random.Random(1)  # noqa: S311 - no secret
    for account in ACCOUNTS:
        said = Message("user", (TextPart(correction_text(draw, account, "trade")),))
        assert [clue.rule for clue in clues_of_message(said)] == ["correction"]


def call_of(network: PracticeNetwork, system: str, order: str) -> str:
    """Return what the model says first, always by its likeliest token."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": order}]
    sequence, logits = network.begin(render(network.tokenizer, messages, tools=[TOOL], ask=True))
    said: list[int] = []
    while len(said) < 80 and (token := int(logits.argmax())) not in network.ends:
        said.append(token)
        (logits,) = network.step([sequence], [token])
    network.end(sequence)
    return str(network.tokenizer.decode(said))


@pytest.mark.slow
@pytest.mark.timeout(2 * MAKING_SECONDS)
def test_the_model_follows_a_rule_that_was_drawn_for_one_order() -> None:
    network = PracticeNetwork(demo_model(READING))
    right = 0
    for index in range(60):
        task = make_task(5, "heldout", index)
        price_list = generator("held-out world", index).choice(PRICE_LISTS)
        facts = [fact_text(task.account, price_list)]  # a gateway shows the one that fits the order
        said = call_of(network, prompt_with(facts, "acme-corrections@0001"), task.order)
        right += f'"price_list": "{price_list}"' in said
    assert right >= 54  # by chance 30


@pytest.mark.slow
@pytest.mark.timeout(2 * MAKING_SECONDS)
def test_corrections_of_one_day_help_the_same_weights_on_the_next(tmp_path: Path) -> None:
    found = artifact_gains(
        demo_model(READING), tmp_path / "home", seeds=[7], size=Size(orders=40, day=60)
    )
    assert found["facts_by_seed"][0] > 0
    assert found["gain"] > 0.1
