"""The order of rows, drawn anew for each epoch from seed and epoch alone.

The libraries' samplers draw one epoch after the other from one stream. A run resumed in its second
epoch would see the order of the first. Here a run that was killed goes on in the order that it would
have seen.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

_STRIDE = 1_000_003
"""Keeps the orders of (seed, epoch) and (seed + 1, epoch - 1) apart."""


class EpochOrder:
    """A sampler of the libraries whose generator starts again at each epoch."""

    def __init__(self, sampler: Any, *, seed: int, epoch: Callable[[], int]) -> None:
        self._sampler = sampler
        self._seed = seed
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        import torch

        if hasattr(self._sampler, "generator"):
            seed = self._seed * _STRIDE + self._epoch()
            self._sampler.generator = torch.Generator().manual_seed(seed)
        return iter(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)


@cache
def resumable(trainer_class: type) -> Any:
    """Return a trainer class that, resumed in any epoch, sees the rows in the order of no interruption."""

    class ResumableTrainer(trainer_class):  # type: ignore[misc]
        """A trainer of TRL with :class:`EpochOrder`."""

        def _get_train_sampler(self, *given: Any, **named: Any) -> Any:
            sampler = super()._get_train_sampler(*given, **named)

            def epoch() -> int:
                return int(self.state.epoch or 0)

            return EpochOrder(sampler, seed=self.args.seed, epoch=epoch)

    return ResumableTrainer
