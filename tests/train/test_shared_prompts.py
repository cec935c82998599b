"""Equal prompts are read once: what is drawn, the loss and its gradient are those of the whole rows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from train.model_folder import load_model
from train.shared_prompts import share_prompts, sharing_forward

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("adapter", [False, True])
def test_a_prompt_of_several_rows_is_read_once_and_draws_what_each_would(
    tiny_model: Path, *, adapter: bool
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import GenerationConfig

    net: Any = load_model(tiny_model).eval()
    inner = net
    if adapter:
        net = get_peft_model(net, LoraConfig(init_lora_weights=False, target_modules="all-linear"))
    shown = [[7] * 5, [9, 3, 8], [7] * 5, [7] * 5, [0, 9, 3, 8], [4, 4], [9, 3, 8]]
    width = max(map(len, shown))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in shown])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in shown])
    settings = GenerationConfig(
        do_sample=True,
        max_new_tokens=4,
        eos_token_id=-1,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    read: list[tuple[int, ...]] = []
    inner.register_forward_pre_hook(
        lambda _net, _given, named: read.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )

    def answered() -> Any:
        torch.manual_seed(3)
        return net.generate(input_ids=ids, attention_mask=mask, generation_config=settings)

    plain = answered()
    assert read == [(7, width), (7, 1), (7, 1), (7, 1)]
    read.clear()
    share_prompts(inner)
    shared = answered()
    assert read == [(4, width - 1), (7, 1), (7, 1), (7, 1), (7, 1)]
    assert shared.sequences.tolist() == plain.sequences.tolist()
    for one, other in zip(shared.logits, plain.logits, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("adapter", [False, True])
def test_the_loss_of_several_tries_reads_their_prompt_once(
    tiny_model: Path, length: int, *, adapter: bool
) -> None:
    from peft import LoraConfig, get_peft_model
    from trl.trainer.utils import add_fused_lm_head

    inner: Any = load_model(tiny_model)
    net = inner
    if adapter:
        net = get_peft_model(net, LoraConfig(init_lora_weights=False, target_modules="all-linear"))
    add_fused_lm_head(inner, temperature=0.7)
    prompts = [[7] * 5, [9, 3, 8], [7] * 5, [0, 9, 3, 8], [9, 3, 8]]
    answers = [[5, 6, 2], [6, 2], [6, 6, 6], [1, 2], [5, 5, 5]]
    width = max(map(len, prompts))
    rows = [
        (
            [0] * (width - len(prompt)) + prompt + (said + [0] * 3)[:length],
            len(prompt),
            len(said[:length]),
        )
        for prompt, said in zip(prompts, answers, strict=True)
    ]
    ids = torch.tensor([row for row, _, _ in rows])
    mask = torch.tensor(
        [[0] * (width - p) + [1] * (p + said) + [0] * (length - said) for _, p, said in rows]
    )
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :width] = -100
    read: list[tuple[int, ...]] = []
    inner.register_forward_pre_hook(
        lambda _net, _given, named: read.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )

    def learned(forward: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        net.zero_grad()
        found = forward(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
        scored = found.log_probs[:, -length:]
        (scored * torch.arange(1.0, 1 + scored.numel()).reshape(scored.shape)).sum().backward()
        gradients = {name: p.grad for name, p in net.named_parameters() if p.grad is not None}
        return scored.detach(), gradients

    expected, plain = learned(net)
    assert read == [(5, width + length)]
    read.clear()
    said, shared = learned(sharing_forward(net, width))
    assert read == [(3, width - 1), (5, 1 + length)]
    torch.testing.assert_close(said, expected, atol=1e-5, rtol=1e-4)
    assert plain.keys() == shared.keys()
    assert any(gradient.abs().max() > 1e-3 for gradient in plain.values())
    for name, gradient in plain.items():
        torch.testing.assert_close(shared[name], gradient, atol=1e-4, rtol=1e-3)


def test_prompts_that_all_differ_are_read_with_their_answers(tiny_model: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Whole:
        config = load_model(tiny_model).config

        def __call__(self, **given: Any) -> None:
            seen.append(given)

    ids = torch.tensor([[4, 5, 6], [3, 5, 6]])
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    sharing_forward(Whole(), 2)(**asked, fused_lm_head=True)
    assert seen == [{**asked, "fused_lm_head": True}]


@pytest.mark.parametrize(("width", "window"), [(1, None), (4, 2)])
def test_where_no_cache_holds_a_prompt_each_row_is_read_whole(
    width: int, window: int | None
) -> None:
    from transformers import MistralConfig

    class Whole:
        config = MistralConfig(num_hidden_layers=1, sliding_window=window)

    net = Whole()
    assert sharing_forward(net, width) is net
