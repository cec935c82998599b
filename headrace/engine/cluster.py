"""The engine ``ray``: pieces of work as tasks of a Ray cluster, of this machine or of many.

A task that dies with its worker is run again by Ray; it is a pure function, so nothing is done
twice. Requests and answers are sealed before Ray sees them: its object store, what it spills to
disk, its network and its logs hold ciphertext. A cluster that is started here listens on loopback
only, asks for a token, has no dashboard and reports nothing to anybody.
"""

import os
import secrets as random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, Protocol

from headrace.app.home import Home
from headrace.app.master_key import Secrets
from headrace.app.settings import ENGINES, EngineSettings, Settings
from headrace.engine import work
from headrace.engine.work import Seal
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError

_ATTEMPTS = 5
"""How often a task whose worker died is run again."""
_AHEAD = 2
"""Tasks per worker that are sealed and waiting, so that memory stays bounded."""
_OBJECT_STORE_BYTES = 256 << 20
_QUIET: dict[str, Any] = {
    "log_to_driver": False,
    "logging_level": "error",
    "configure_logging": False,
}


class RayEngine:
    """Works on a cluster that is connected to."""

    def __init__(self, ray: Any, home: Home, seal: Seal, workers: int) -> None:
        """Send work to ``ray``; nodes find their secrets in the folder ``home`` or in the environment."""
        self._ray = ray
        self._home = str(home.root)
        self._seal = seal
        self._run = ray.remote(max_retries=_ATTEMPTS, num_cpus=1)(work.run)
        self._workers = workers

    @property
    def workers(self) -> int:
        """See ``headrace.engine.cluster.Executor``."""
        return self._workers

    def map(self, name: str, jobs: Sequence[Any]) -> list[Any]:
        """See ``headrace.engine.cluster.Executor``."""
        answers: list[Any] = [None] * len(jobs)
        running: dict[Any, tuple[int, str]] = {}
        for number, job in enumerate(jobs):
            while len(running) >= _AHEAD * self._workers:
                self._collect(running, answers)
            label = random.token_hex(16)
            running[self._run.remote(self._home, label, name, self._seal.close(job, label))] = (
                number,
                label,
            )
        while running:
            self._collect(running, answers)
        return answers

    def _collect(self, running: dict[Any, tuple[int, str]], answers: list[Any]) -> None:
        done, _ = self._ray.wait(list(running), num_returns=1)
        for reference in done:
            number, label = running.pop(reference)
            answers[number] = self._seal.open(self._answer(reference), label + "/answer")

    def _answer(self, reference: Any) -> bytes:
        try:
            sealed: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, HeadraceError):
                raise error.cause from None
            raise _lost(error) from None
        except self._ray.exceptions.RayError as error:
            raise _lost(error) from None
        return sealed


@contextmanager
def ray_engine(settings: EngineSettings, home: Home, secrets: Secrets) -> Iterator[RayEngine]:
    """Connect to a Ray cluster, or start one on this machine for as long as the context is open.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster does not answer.
    """
    if find_spec("ray") is None:
        raise ConfigurationError(
            "the engine ray is not installed; run `pip install 'headrace[engine]'`, or use "
            "--engine local"
        )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    seal = Seal(secrets.derive(work.SEAL_USE))
    with _connected(settings) if settings.address else _started(settings) as ray:
        workers = int(ray.cluster_resources().get("CPU", 1))
        yield RayEngine(ray, home, seal, max(1, workers))


@contextmanager
def _connected(settings: EngineSettings) -> Iterator[Any]:
    import ray

    try:
        ray.init(address=settings.address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigurationError(
            f"engine.address {settings.address}: no Ray cluster that lets us in answers there "
            f"({type(error).__name__}); start one with `ray start --head`, and give both sides the "
            "same token (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN)"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _started(settings: EngineSettings) -> Iterator[Any]:
    # Read by Ray when it is imported: without clusters of several machines it stays on loopback.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = random.token_hex(32)
    import ray

    # In the system's temporary folder: the path of a socket may have 107 characters only.
    folder = tempfile.mkdtemp(prefix=f"headrace-ray-{os.getpid()}-")
    try:
        ray.init(
            num_cpus=settings.workers or os.cpu_count() or 1,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=folder,
            **_QUIET,
        )
        yield ray
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _lost(error: Exception) -> RetryableError:
    return RetryableError(
        f"the engine's workers were lost ({type(error).__name__}); nothing was written and nothing "
        "lost: the batch is tried again. `ray status` shows the cluster"
    )


class Executor(Protocol):
    """Does pieces of work in other processes."""

    @property
    def workers(self) -> int:
        """Number of pieces that the engine works on concurrently."""
        ...

    def map(self, name: str, jobs: Sequence[Any]) -> list[Any]:
        """Return the answers to ``jobs`` in their order; ``name`` is one of ``headrace.engine.work``.

        Raises:
            RetryableError: workers were lost again and again; nothing was changed.
            ConfigurationError: a node lacks the master key, the policy or the lake.
        """
        ...


def engine_of(settings: Settings, flag: str | None) -> str:
    """Return the engine's name: the flag, else the setting.

    Raises:
        ConfigurationError: there is no such engine.
    """
    name = flag or settings.engine.name
    if name not in ENGINES:
        raise ConfigurationError(f"--engine {name}: valid engines are {', '.join(ENGINES)}")
    return name


def open_engine(
    name: str, settings: Settings, home: Home, secrets: Secrets
) -> AbstractContextManager[Executor | None]:
    """Return the engine, open while the context is; None means this process.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster cannot be reached.
    """
    if name == "local":
        return nullcontext()
    from headrace.engine.cluster import ray_engine

    return ray_engine(settings.engine, home, secrets)
