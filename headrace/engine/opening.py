"""Opens the engine that settings or a flag ask for."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from headrace.app.home import Home
from headrace.app.master_key import Secrets
from headrace.app.settings import ENGINES, Settings
from trajectory.errors import ConfigurationError


class Engine(Protocol):
    """Does pieces of work in other processes."""

    @property
    def workers(self) -> int:
        """How many pieces can be worked on at once."""
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
) -> AbstractContextManager[Engine | None]:
    """Return the engine, open while the context is; None stands for this process.

    Raises:
        ConfigurationError: Ray is not installed, or the cluster cannot be reached.
    """
    if name == "local":
        return nullcontext()
    from headrace.engine.cluster import ray_engine

    return ray_engine(settings.engine, home, secrets)
