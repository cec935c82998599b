"""The collector rests inside a block and goes on after the outermost one, whatever happened there."""

import gc

import pytest

from trajectory.gc_pause import uncollected


def test_the_collector_rests_until_the_outermost_block_ends() -> None:
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_gives_the_collector_back() -> None:
    with pytest.raises(ValueError, match="bad"), uncollected():
        raise ValueError("bad")
    assert gc.isenabled()
