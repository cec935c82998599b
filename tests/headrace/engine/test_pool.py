"""A pool of processes redacts a backlog as the governing process would, and may be killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from governance.executor import InlineRedaction, RedactionAnswer, RedactionRequest
from governance.policy import PolicyBundle, load_bundle
from governance.policy.bundle import SHIPPED
from governance.redact import Redactor, build_redactor
from governance.redact.report import RedactionScope
from headrace.app.home import Home
from headrace.app.master_key import Secrets, load_secrets, subject_keys_of
from headrace.engine.pool import POOL_FROM_MESSAGES, Pool, PooledRedaction
from trajectory.message import Message, TextPart

ROOT = Path(__file__).parents[3]


def requests(messages: int) -> list[RedactionRequest]:
    """Return one request for each ten messages."""
    return [
        RedactionRequest(
            RedactionScope("acme", f"t{first}"),
            tuple(
                Message("user", (TextPart(f"{number} is maria.{number}@example.org"),))
                for number in range(first, min(first + 10, messages))
            ),
        )
        for first in range(0, messages, 10)
    ]


def texts(answers: list[RedactionAnswer]) -> list[list[str]]:
    return [[one.message.text() for one in answer or ()] for answer in answers]


def policy(folder: Path, *, keys: str) -> PolicyBundle:
    """Return the default policy with rules alone for names."""
    shutil.copytree(SHIPPED / "default", folder)
    file = folder / "redaction.yaml"
    said = file.read_text().replace("scope: tenant", f"scope: tenant\n  keys: {keys}")
    file.write_text(said.replace("model: embedded", "model: null"))
    return load_bundle(folder)


def redactor(bundle: PolicyBundle, home: Home, secrets: Secrets) -> Redactor:
    own = bundle.redaction.spec.keys == "subject"
    return build_redactor(
        bundle.redaction.spec,
        pseudonym_key=secrets.derive(b"pseudonym"),
        subjects=subject_keys_of(home, secrets) if own else None,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").create()
    load_secrets(home.secrets, create=True)
    return home


@pytest.fixture
def pool(home: Home) -> Iterator[Pool]:
    pool = Pool(home, 1)
    yield pool
    pool.close()


def workers() -> list[psutil.Process]:
    """Return the processes of the pool, without multiprocessing's own tracker."""
    found = psutil.Process().children(recursive=True)
    return [one for one in found if "spawn_main" in " ".join(one.cmdline())]


@pytest.mark.parametrize("keys", ["installation", "subject"])
def test_a_pool_redacts_as_one_process_does_and_its_death_costs_nothing(
    tmp_path: Path, home: Home, pool: Pool, keys: str
) -> None:
    secrets = load_secrets(home.secrets)
    bundle = policy(tmp_path / "policy", keys=keys)
    assert bundle.redaction.spec.keys == keys
    here = redactor(bundle, home, secrets)
    pooled = PooledRedaction(pool, bundle.path, bundle, here)
    few, many = requests(POOL_FROM_MESSAGES - 1), requests(POOL_FROM_MESSAGES)
    wanted = texts(InlineRedaction(here).redact_all(many))
    assert "maria" not in str(wanted)
    pooled.redact_all(few)
    assert workers() == []
    assert texts(pooled.redact_all(many)) == wanted
    (worker,) = workers()
    worker.kill()
    worker.wait()
    assert texts(pooled.redact_all(many)) == wanted
    (bundle.path / "note.yaml").write_text("a policy that is being edited: [")
    assert texts(pooled.redact_all(many)) == wanted


OPENS_A_POOL = """
import os, sys
from pathlib import Path
from headrace.engine.pool import Pool
from headrace.app.home import Home
if __name__ == "__main__":
    pool = Pool(Home(Path(sys.argv[1])), 1)
    pool.submit("unknown work", [None])[0].exception()
    print("started", flush=True)
    sys.stdin.read()
"""


def test_a_pool_ends_with_a_governor_that_is_killed(tmp_path: Path, home: Home) -> None:
    script = tmp_path / "opens_a_pool.py"
    script.write_text(OPENS_A_POOL)
    governor = subprocess.Popen(
        [sys.executable, str(script), str(home.root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert governor.stdout is not None
    assert governor.stdout.readline() == b"started\n"
    left = psutil.Process(governor.pid).children(recursive=True)
    assert left
    governor.send_signal(signal.SIGKILL)
    governor.communicate()
    deadline = time.monotonic() + 30
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in left):
        assert time.monotonic() < deadline, "the pool outlives its governor"
        time.sleep(0.05)
