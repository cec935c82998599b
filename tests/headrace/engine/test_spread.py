"""Redaction by an engine is cut into even pieces, sealed, and put together in order."""

import secrets as random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.policy import load_bundle
from governance.redact.values import RedactionScope
from governance.spread import RedactionRequest
from headrace.engine import work
from headrace.engine.sealing import Seal
from headrace.engine.spread import EngineSpread, pieces
from headrace.master_key import load_secrets
from trajectory.errors import ConfigurationError, WorkError
from trajectory.message import Message, TextPart


def request(number: int, messages: int = 1) -> RedactionRequest:
    said = tuple(
        Message("user", (TextPart(f"{number}.{at} is maria.lopez@example.org"),))
        for at in range(messages)
    )
    return RedactionRequest(RedactionScope("acme", f"t{number}"), said)


class OneAfterTheOther:
    """An engine without a cluster: what a worker would do, done here, sealed all the same."""

    workers = 2

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._seal = Seal(load_secrets(home / "secrets", create=True).derive(work.SEAL_USE))

    def map(self, name: str, jobs: Sequence[Any]) -> list[Any]:
        answers = []
        for job in jobs:
            label = random.token_hex(4)
            sealed = work.run(self._home, label, name, self._seal.close(job, label))
            answers.append(self._seal.open(sealed, label + "/answer"))
        return answers


@given(st.lists(st.integers(1, 40), max_size=60), st.integers(1, 12))
def test_pieces_hold_all_requests_in_order(sizes: list[int], count: int) -> None:
    requests = [request(number, size) for number, size in enumerate(sizes)]
    cut = list(pieces(requests, count))
    assert [one for piece in cut for one in piece] == requests
    assert len(cut) <= count + 1
    assert all(cut)


def test_a_trajectory_is_redacted_as_a_whole(tmp_path: Path) -> None:
    spread = EngineSpread(OneAfterTheOther(tmp_path), "default", load_bundle())
    answers = spread.redact_all([request(number, 9) for number in range(5)])
    texts = [[one.message.parts[0].text for one in answer or ()] for answer in answers]
    assert [len(said) for said in texts] == [9] * 5
    assert texts[3][4].startswith("3.4 is <EMAIL_ADDRESS_")


def test_a_node_with_another_policy_refuses(tmp_path: Path) -> None:
    engine = OneAfterTheOther(tmp_path)
    job = work.RedactionJob("strict", load_bundle().content_hash, (request(0),))
    with pytest.raises(ConfigurationError, match="same bundle"):
        engine.map("redact", [job])


def test_an_error_of_a_worker_says_nothing_of_its_work(tmp_path: Path) -> None:
    engine = OneAfterTheOther(tmp_path)
    with pytest.raises(WorkError) as raised:
        engine.map("walk", [["maria.lopez@example.org"]])
    assert "maria" not in str(raised.value)
    assert raised.value.__cause__ is None
