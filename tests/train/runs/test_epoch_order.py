"""The order of an epoch follows from seed and epoch, however many epochs were drawn before."""

import pytest
from torch.utils.data import RandomSampler, SequentialSampler

from train.runs.epoch_order import EpochOrder, resumable


def test_an_epoch_has_its_order_whoever_begins_with_it() -> None:
    epoch = 0
    order = EpochOrder(RandomSampler(range(50)), seed=3, epoch=lambda: epoch)
    first = list(order)
    epoch = 1
    second = list(order)
    late = list(EpochOrder(RandomSampler(range(50)), seed=3, epoch=lambda: 1))
    other = list(EpochOrder(RandomSampler(range(50)), seed=4, epoch=lambda: 1))
    assert sorted(first) == list(range(50)) == sorted(second)
    assert first != second == late != other
    assert len(order) == 50


def test_an_order_that_is_no_chance_stays() -> None:
    assert list(EpochOrder(SequentialSampler(range(5)), seed=1, epoch=lambda: 2)) == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore")
def test_one_class_is_made_for_each_trainer() -> None:
    from trl import DPOTrainer, SFTTrainer

    assert resumable(SFTTrainer) is resumable(SFTTrainer) is not resumable(DPOTrainer)
    assert issubclass(resumable(SFTTrainer), SFTTrainer)
