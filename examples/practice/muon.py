"""Muon in float32: ``torch.optim.Muon`` computes in bfloat16, which most CPUs have no unit for.

There it took half of the time in which the practice model is made. A test holds both against each
other. Method and constants: Keller Jordan, https://kellerjordan.github.io/posts/muon/.
"""

import torch
from torch import Tensor

MOMENTUM = 0.95
QUINTIC = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, made orthogonal, for weights that are matrices; without weight decay."""

    def __init__(self, matrices: list[Tensor], *, lr: float) -> None:
        super().__init__(matrices, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Take one step; every matrix needs its gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                momentum = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
                update = _orthogonal(weight.grad.lerp(momentum, MOMENTUM))
                rows, columns = weight.shape
                weight.sub_(update, alpha=group["lr"] * max(1, rows / columns) ** 0.5)


def _orthogonal(matrix: Tensor) -> Tensor:
    """Return nearly UVᵀ for a matrix USVᵀ: a quintic Newton-Schulz iteration."""
    a, b, c = QUINTIC
    is_tall = matrix.shape[0] > matrix.shape[1]
    wide = matrix.T if is_tall else matrix
    wide = wide / wide.norm().clamp(min=1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if is_tall else wide
