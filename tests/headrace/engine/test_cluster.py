"""A real Ray cluster of several processes: the same rows as without, through the death of a worker."""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from governance.governor import Governor
from governance.policy import load_bundle
from governance.quality import RowGate
from governance.redact import build_redactor
from headrace.app.home import Home
from headrace.app.master_key import load_secrets
from headrace.app.settings import EngineSettings, Settings
from headrace.engine import Executor, open_engine
from headrace.engine.redaction import EngineRedaction, walker_of
from headrace.govern.checkpoint import CheckpointStore
from headrace.pipeline import Pipeline
from lakehouse.lake import Lake
from lakehouse.maintenance.verify import verify
from lakehouse.schema.tables import BATCH_TABLES
from proxy.spool import SpoolReader, SpoolWriter
from tests.headrace.pipelines import pipeline_of
from tests.proxy.spool.scripts import KEY, ExchangeScript
from train.substrate.build import build_substrate
from train.substrate.spec import Substrate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SESSIONS = 12
PERSON = "maria.lopez@example.org"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
LONG = "the parcel was left at the door of the depot " * 20


def fill(home: Home) -> None:
    """Capture conversations of four turns, each naming a person."""
    with SpoolWriter(home.spool, KEY) as writer:
        number = 0
        for turn in range(4):
            for session in range(SESSIONS):
                number += 1
                said: list[dict[str, str]] = []
                for past in range(turn + 1):
                    ask = f"order {session}.{past} for {PERSON}: {LONG}"
                    said.append({"role": "user", "content": ask})
                    said.append({"role": "assistant", "content": f"{session}.{past} is on its way"})
                answer = {
                    "id": f"chatcmpl-{number}", "object": "chat.completion", "model": "m-1",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": said.pop()}],
                }  # fmt: skip
                ExchangeScript(writer, number, at=1_790_000_000.0 + number).whole(
                    json.dumps({"model": "m", "messages": said}).encode(),
                    json.dumps(answer).encode(),
                )


def pipeline(home: Home, lake: str, engine: Executor | None) -> Pipeline:
    """Put a pipeline together whose decisions carry the same time in every run."""
    secrets, bundle, opened = load_secrets(home.secrets), load_bundle(), Lake.open(lake)
    state = Path(lake + "-state")
    state.mkdir()
    Path(lake + "-kept").mkdir()
    redactor = build_redactor(bundle.redaction.spec, pseudonym_key=secrets.derive(b"pseudonym"))
    governor = Governor(
        bundle,
        redactor,
        message_key=secrets.derive(b"message"),
        pseudonym_key=secrets.derive(b"pseudonym"),
        known=opened.known_content(),
        consents=opened.consents(),
        clock=lambda: NOON,
        gate=RowGate(bundle.quality.spec),
        spread=None if engine is None else EngineRedaction(engine, "default", bundle),
    )
    return pipeline_of(
        Path(lake + "-kept"),
        opened,
        governor,
        SpoolReader(Path(lake + "-spool"), KEY),
        CheckpointStore(state),
        assembly_key=secrets.derive(b"assembly"),
        batch_records=24,
    )


def govern(home: Home, name: str, engine: Executor | None) -> Lake:
    """Govern a copy of the captured spool into a lake of its own."""
    lake = str(home.root / name)
    shutil.copytree(home.spool, lake + "-spool")
    line = pipeline(home, lake, engine)
    while line.run_batch() is not None:
        pass
    return line.lake


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("home")).create()
    load_secrets(made.secrets, create=True)
    fill(made)
    return made


@pytest.fixture(scope="module")
def local(home: Home) -> Lake:
    return govern(home, "local", None)


@pytest.fixture(scope="module")
def engine(home: Home) -> Iterator[Executor]:
    settings = Settings(home=home.root, engine=EngineSettings(workers=2))
    with open_engine("ray", settings, home, load_secrets(home.secrets)) as opened:
        assert opened is not None
        yield opened


def workers() -> list[psutil.Process]:
    """Return the processes that are at a piece of our work."""
    return [one for one in psutil.Process().children(recursive=True) if "ray::run" in one.name()]


def kill_first(killed: list[int]) -> None:
    """Kill the first worker that is seen at work."""
    deadline = time.monotonic() + 60
    while not killed and time.monotonic() < deadline:
        for one in workers():
            one.kill()
            killed.append(one.pid)
            return
        time.sleep(0.005)


def rows(lake: Lake, table: str) -> list[str]:
    return sorted(repr(row) for row in lake.query(f"SELECT * FROM {table}").to_pylist())  # noqa: S608


def test_same_rows_though_a_worker_is_killed(home: Home, local: Lake, engine: Executor) -> None:
    killed: list[int] = []
    killer = threading.Thread(target=kill_first, args=(killed,))
    killer.start()
    spread = govern(home, "spread", engine)
    killer.join()
    assert killed, "no worker was seen at work"
    assert local.query("SELECT count(*) AS n FROM exchanges")["n"].to_pylist() == [4 * SESSIONS]
    for table in BATCH_TABLES:
        assert rows(spread, table) == rows(local, table), table
    assert verify(spread, message_key=load_secrets(home.secrets).derive(b"message")).ok
    assert rows(spread, "steps")
    assert PERSON not in str(rows(spread, "messages"))


def test_a_substrate_is_the_same_bytes(home: Home, local: Lake, engine: Executor) -> None:
    document = Substrate.model_validate({
        "apiVersion": "headrace/v1", "kind": "Substrate", "metadata": {"name": "all"},
        "spec": {"purposes": ["train_sft"], "reward": {"signals": {"s": 1}, "missing": "zero"}},
    })  # fmt: skip
    here = build_substrate(local, document, out=home.root / "a")
    there = build_substrate(local, document, out=home.root / "b", walker=walker_of(engine, local))
    assert len(here.item_ids) >= SESSIONS
    assert there.content_hash == here.content_hash
    items = [(made.path / "items.parquet").read_bytes() for made in (here, there)]
    assert items[0] == items[1]


def test_nothing_of_it_rests_in_clear(engine: Executor) -> None:
    """What lies in Ray's object store and folders is sealed; a value put there in clear is found."""
    import ray

    from governance.executor import RedactionRequest
    from governance.redact.report import RedactionScope
    from headrace.engine.work import RedactionJob
    from trajectory.message import Message, TextPart

    said = Message("user", (TextPart(f"{PERSON} " + LONG * 150),))
    job = RedactionJob(
        "default", load_bundle().content_hash,
        (RedactionRequest(RedactionScope("acme", "t"), (said,)),),
    )  # fmt: skip
    control = ray.put(b"control value in clear " * 10_000)
    running = threading.Thread(target=engine.map, args=("redact", [job] * 8))
    running.start()
    seen = b""
    while running.is_alive():
        seen = seen or object_store(b"control value in clear")
        assert not object_store(PERSON.encode())
    running.join()
    assert seen, "the scan does not see the object store"
    folder = session_folder()
    assert not [
        path
        for path in folder.rglob("*")
        if path.is_file() and PERSON.encode() in path.read_bytes()
    ]
    del control


def object_store(value: bytes) -> bytes:
    """Return ``value`` when some process of the cluster has it in memory shared with Ray."""
    for process in psutil.Process().children(recursive=True):
        if "raylet" not in process.name():
            continue
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            if "plasma" in str(descriptor.readlink()):
                with descriptor.open("rb") as shared:
                    if value in shared.read():
                        return value
    return b""


def session_folder() -> Path:
    """Return the folder that Ray was given: logs, sockets, and what it would spill."""
    (made,) = Path(tempfile.gettempdir()).glob(f"headrace-ray-{os.getpid()}-*")
    assert any(made.rglob("raylet.out"))
    return made


def test_it_listens_on_loopback_only(engine: Executor) -> None:
    found: list[Any] = []
    for process in psutil.Process().children(recursive=True):
        found += [c.laddr.ip for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    assert found
    assert {ip.removeprefix("::ffff:") for ip in found} <= {"127.0.0.1", "::1"}
    names = [process.name() for process in psutil.Process().children(recursive=True)]
    assert not [name for name in names if "dashboard.py" in name]
