"""Redaction by an engine is cut into even pieces, sealed, and put together in order."""

import secrets as random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.detect.finding import Finding, Unit
from governance.executor import InlineRedaction, RedactionRequest
from governance.policy import PolicyBundle, load_bundle
from governance.policy.bundle import SHIPPED
from governance.redact import Redactor, build_redactor
from governance.redact.report import RedactionScope
from governance.redact.subject_keys import MemorySubjectKeys
from headrace.app.home import Home
from headrace.app.master_key import load_secrets, subject_keys_of
from headrace.engine import work
from headrace.engine.redaction import EngineDetection, EngineRedaction, pieces
from headrace.engine.work import Seal
from trajectory.errors import ConfigurationError, WorkError
from trajectory.message import Message, TextPart


def request(number: int, messages: int = 1) -> RedactionRequest:
    said = tuple(
        Message("user", (TextPart(f"{number}.{at} is maria.lopez@example.org"),))
        for at in range(messages)
    )
    return RedactionRequest(RedactionScope("acme", f"t{number}"), said)


class SerialEngine:
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
    spread = EngineRedaction(SerialEngine(tmp_path), "default", load_bundle())
    answers = spread.redact_all([request(number, 9) for number in range(5)])
    texts = [[one.message.parts[0].text for one in answer or ()] for answer in answers]
    assert [len(said) for said in texts] == [9] * 5
    assert texts[3][4].startswith("3.4 is <EMAIL_ADDRESS_")


@pytest.fixture(scope="module")
def own_keys(tmp_path_factory: pytest.TempPathFactory) -> PolicyBundle:
    """Return a policy that gives each person a key, with rules alone for names."""
    folder = tmp_path_factory.mktemp("policy") / "own-keys"
    shutil.copytree(SHIPPED / "default", folder)
    file = folder / "redaction.yaml"
    said = file.read_text().replace("scope: tenant", "scope: tenant\n  keys: subject")
    file.write_text(said.replace("model: embedded", "model: null"))
    return load_bundle(folder)


class UncalledDetector:
    """A detector that must not be asked: what there is to find was found elsewhere."""

    name, version, entities = "silent", "1", frozenset[str]()

    def find(self, units: Sequence[Unit], known: Sequence[Sequence[Finding]]) -> Any:
        raise AssertionError("looked again")


def test_keys_of_subjects_stay_here_while_others_find(
    tmp_path: Path, own_keys: PolicyBundle
) -> None:
    home, spec = Home(tmp_path).create(), own_keys.redaction.spec
    secrets = load_secrets(home.secrets, create=True)
    key, subjects = secrets.derive(b"pseudonym"), subject_keys_of(home, secrets)
    requests = [request(number, 9) for number in range(5)]
    engine = SerialEngine(tmp_path)
    here = Redactor(spec, [UncalledDetector()], pseudonym_key=key, subjects=subjects)
    answers = EngineDetection(engine, str(own_keys.path), own_keys, here).redact_all(requests)
    alone = build_redactor(spec, pseudonym_key=key, subjects=subjects)
    expected = InlineRedaction(alone).redact_all(requests)
    for answer, wanted in zip(answers, expected, strict=True):
        assert [one.message for one in answer or ()] == [one.message for one in wanted or ()]
    assert "<EMAIL_ADDRESS_" in str([one.message.to_json() for one in answers[0] or ()])
    job = work.RedactionJob(str(own_keys.path), own_keys.content_hash, tuple(requests))
    (found,) = engine.map("find", [job])
    assert "maria" not in repr(found)
    with pytest.raises(ConfigurationError, match="keys: subject"):
        engine.map("redact", [job])


def test_what_a_node_cannot_vouch_for_is_held_here(tmp_path: Path, own_keys: PolicyBundle) -> None:
    class FailingDetector(SerialEngine):
        def map(self, name: str, jobs: Sequence[Any]) -> list[Any]:
            return [[None, *answer[1:]] for answer in super().map(name, jobs)]

    redactor = build_redactor(
        own_keys.redaction.spec, pseudonym_key=bytes(32), subjects=MemorySubjectKeys()
    )
    spread = EngineDetection(FailingDetector(tmp_path), str(own_keys.path), own_keys, redactor)
    first, second = spread.redact_all([request(0), request(1)])
    assert first is None
    assert second is not None


def test_a_node_with_another_policy_refuses(tmp_path: Path) -> None:
    engine = SerialEngine(tmp_path)
    job = work.RedactionJob("strict", load_bundle().content_hash, (request(0),))
    with pytest.raises(ConfigurationError, match="same bundle"):
        engine.map("redact", [job])


def test_an_error_of_a_worker_says_nothing_of_its_work(tmp_path: Path) -> None:
    engine = SerialEngine(tmp_path)
    with pytest.raises(WorkError) as raised:
        engine.map("walk", [["maria.lopez@example.org"]])
    assert "maria" not in str(raised.value)
    assert raised.value.__cause__ is None
