"""Muon in float32 takes the steps that the library's own takes in bfloat16."""

import torch

from examples.practice.muon import Muon


def test_steps_are_those_of_the_library() -> None:
    drawn = torch.Generator().manual_seed(3)
    for shape in ((16, 16), (48, 16), (16, 48)):
        start, *gradients = (torch.randn(*shape, generator=drawn) for _ in range(6))
        ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
        optimizers = (
            (ours, Muon([ours], lr=0.02)),
            (theirs, torch.optim.Muon([theirs], lr=0.02, weight_decay=0.0)),
        )
        for gradient in gradients:
            for weight, optimizer in optimizers:
                weight.grad = gradient.clone()
                optimizer.step()
        moved = (theirs - start).norm()
        assert (ours - theirs).norm() < 0.02 * moved  # bfloat16 keeps eight bits


def test_an_update_is_nearly_orthogonal() -> None:
    weight = torch.nn.Parameter(torch.zeros(16, 48))
    weight.grad = torch.randn(16, 48, generator=torch.Generator().manual_seed(5))
    Muon([weight], lr=1.0).step()
    sizes = torch.linalg.svdvals(weight.detach())
    assert 0.5 < sizes.min() <= sizes.max() < 1.5
