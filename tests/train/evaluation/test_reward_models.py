"""A reward model scores in training what it learned and what its gate measured: the same tokens."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import make_model
from tests.train.lakes import lake_of
from tests.train.test_chat_templates import tokenizer_of
from tests.train.test_recipes import attempts, prepared, spec, train
from train.evaluation.environment import tools_key
from train.evaluation.gate import judge_reward_model
from train.evaluation.reward_models import Pair, RewardModel, agreement, load_reward_model
from train.model_folder import load_tokenizer
from train.recipes import recipe_module
from train.recipes.settings import GateSettings
from train.runs.rows import Masker
from train.substrate.content import ContentStore

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model from random weights, with a template that shows tools and goes on after a turn."""
    from transformers import AutoModelForSequenceClassification

    folder = tmp_path_factory.mktemp("scorer")
    base = make_model(folder / "base", tokenizer=tokenizer_of("qwen2_5"), context=2048)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    model.save_pretrained(folder / "model")
    load_tokenizer(base).save_pretrained(folder / "model")
    return folder / "model"


def test_scored_in_training_is_what_was_learned_and_judged(scorer: Path, tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake", *attempts(8))
    used = spec("reward_model")
    items, selection, content = prepared(lake, tmp_path / "out", used)
    model, tokenizer = load_reward_model(scorer)
    rows = recipe_module("reward_model").rows(selection, content, Masker(tokenizer), used)
    learned = {
        item_id: ids
        for name, place in (("chosen_ids", 0), ("rejected_ids", 1))
        for item_ids, ids in zip(rows.item_ids, rows.columns[name], strict=True)
        for item_id in [item_ids.split()[place]]
    }
    assert len(learned) == 8
    prompts, completions, environments, expected = [], [], [], []
    tools: tuple[dict[str, Any], ...] = ()
    for entry in items:
        found = content.conversation(entry.item)
        tools = found.tools
        prompts.append(found.messages[:2])
        completions.append(found.messages[2:])
        environments.append(tools_key(list(tools)))
        ids = learned[entry.item.item_id]
        assert tokenizer.decode(ids[-1:]) == "<|im_end|>"
        assert "<tools>" in tokenizer.decode(ids)
        expected.append(float(model(torch_row(ids)).logits[0, 0]))
    live = RewardModel(scorer, {environments[0]: list(tools)}, "cpu")
    given = live(prompts, completions, environment=environments)
    assert given == pytest.approx(expected, abs=1e-5)

    # The gate counts how often it prefers the rewarded attempt: by these very numbers.
    preferred = [a > b for a, b in pairs_of(selection, items, given)]
    pairs = [Pair(*ids) for ids in zip(*(rows.columns[n] for n in rows.columns), strict=True)]
    judged = agreement(model, [[pair] for pair in pairs], confidence=0.95)
    assert judged.share.estimate == pytest.approx(sum(preferred) / len(preferred))


def test_attempts_at_one_task_count_as_one_observation(scorer: Path) -> None:
    model, _ = load_reward_model(scorer)
    liked, other = sorted(
        ([5, 6, 7], [8, 9, 10]), key=lambda ids: -float(model(torch_row(ids)).logits[0, 0].detach())
    )
    right, wrong = Pair(liked, other), Pair(other, liked)
    four = agreement(model, [[right]] * 4, confidence=0.95)
    one = agreement(model, [[right] * 4], confidence=0.95)
    assert four.share.estimate == one.share.estimate == 1
    assert one.share.low < 0.5 < four.share.low, "four tasks say more than four attempts at one"
    mixed = agreement(model, [[right, wrong, wrong, wrong], [right]], confidence=0.95)
    assert mixed.share.estimate == (0.25 + 1) / 2
    later = agreement(model, [[right]] * 4, confidence=0.95, look=9)
    assert later.share == four.share == four.share_at_look
    assert later.share_at_look.low < 0.5, "the ninth look needs more to tell it from luck"
    assert not judge_reward_model(GateSettings(), later).passed


def torch_row(ids: list[int]) -> Any:
    import torch

    return torch.tensor([ids])


def pairs_of(selection: Any, items: Any, given: Any) -> list[tuple[float, float]]:
    scores = {entry.item.item_id: score for entry, score in zip(items, given, strict=True)}
    found = []
    for unit in selection.units:
        good = [scores[e.item.item_id] for e in unit if e.rewarded]
        bad = [scores[e.item.item_id] for e in unit if not e.rewarded]
        found += list(zip(good, bad, strict=False))
    return found


def test_a_base_whose_tokenizer_alone_names_its_padding_is_taken(
    tiny_model: Path, tmp_path: Path
) -> None:
    """As Qwen and Llama come: their config.json has no pad_token_id."""
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_text())
    config.pop("pad_token_id")
    (base / "config.json").write_text(json.dumps(config))
    lake = lake_of(tmp_path / "lake", *attempts(8))
    used = spec("reward_model", training={"maximum_steps": 1})
    _, selection, content = prepared(lake, tmp_path / "out", used)
    made = train(used, selection, content, base, tmp_path / "run")
    padded = [
        load_reward_model(made.model)[0].config.pad_token_id,
        load_tokenizer(base).pad_token_id,
    ]
    assert padded[0] == padded[1] is not None


def test_what_cannot_be_shown_has_no_score(scorer: Path) -> None:
    live = RewardModel(scorer, {"none": []}, "cpu")
    asked = [{"role": "user", "content": "hi"}]
    said = [{"role": "assistant", "content": "hi"}]
    refused = [{"role": "assistant", "tool_calls": [{}]}]
    scores = live([asked] * 3, [refused, [], said], environment=["none"] * 3)
    assert [score is None for score in scores] == [True, True, False]


@pytest.mark.slow
def test_live_training_takes_the_reward_models_scores(
    scorer: Path, tiny_model: Path, tmp_path: Path
) -> None:
    from train.runs.curves import curve, read_metrics

    options = {"reward_model": str(scorer), "completion_tokens": 12, "group_size": 4}
    used = spec("grpo_live", options=options, training={"maximum_steps": 2})
    lake = lake_of(tmp_path / "lake", *attempts(8))
    _, selection, content = prepared(lake, tmp_path / "out", used)
    assert isinstance(content, ContentStore)
    train(used, selection, content, tiny_model, tmp_path / "run")
    metrics = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert curve(metrics, "rewards/reward_model/mean")
