"""What travels through an engine cannot be read, changed or passed off as something else."""

import pytest

from headrace.engine.work import Seal
from trajectory.errors import ConfigurationError
from trajectory.message import Message, TextPart

SAID = Message("user", (TextPart("maria.lopez@example.org"),))


def test_a_value_comes_back() -> None:
    seal = Seal(b"k" * 32)
    assert seal.open(seal.close([SAID], "a"), "a") == [SAID]


def test_the_sealed_form_shows_nothing_and_is_never_the_same() -> None:
    seal = Seal(b"k" * 32)
    first, second = seal.close([SAID], "a"), seal.close([SAID], "a")
    assert first != second
    assert b"maria" not in first


@pytest.mark.parametrize("label", ["b", "a/answer"])
def test_it_opens_under_its_own_label_only(label: str) -> None:
    seal = Seal(b"k" * 32)
    with pytest.raises(ConfigurationError, match="master key"):
        seal.open(seal.close([SAID], "a"), label)


@pytest.mark.parametrize("place", [0, 15, -1])
def test_a_changed_byte_is_noticed_before_it_is_unpickled(place: int) -> None:
    seal = Seal(b"k" * 32)
    sealed = bytearray(seal.close([SAID], "a"))
    sealed[place] ^= 1
    with pytest.raises(ConfigurationError):
        seal.open(bytes(sealed), "a")


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(ConfigurationError, match="different master keys"):
        Seal(b"o" * 32).open(Seal(b"k" * 32).close(SAID, "a"), "a")
