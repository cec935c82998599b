"""Reconciles what is served with the registry: what the registry names is brought up, published once it is ready, and served until told to stop.

A version takes over only when it answers; until then, and when it cannot be loaded, the one that
served before goes on. What nobody is sent to any more is put away a while later; a version that a pinned
trajectory still needs stays up, unless a rollback or the end of its trial took it out.
"""

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.app.master_key import serving_key
from headrace.serving.hosts import ExternalServers, Host, TransformersHost, VllmServers, has_vllm
from proxy.routes.pins import FILE_NAME, pinned_labels
from train.registry.pointer import TRIALS, read_history, read_pointer, taken_out
from train.runs.offline import quiet_libraries
from trajectory.canonical import canonical_json
from trajectory.errors import ConfigurationError, HeadraceError
from trajectory.files import replace_file

if TYPE_CHECKING:
    from headrace.app.home import Home
    from headrace.app.settings import ServeSettings


_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 30.0

_MOST_FORMER = 2
"""Of a model, versions that stay up for pinned trajectories: each takes memory as the live one does."""

type Places = dict[str, str]
"""Version label by place: live, canary, shadow."""


@dataclass(slots=True)
class _HostedVersion:
    """A version that was begun."""

    folder: Path
    asked_at: float
    idle_since: float | None = None
    """Since when nobody is sent to it."""
    told: str = ""


@dataclass(slots=True)
class VersionReconciler:
    """Keeps what is published true to the registry; :meth:`look` is called again and again."""

    models: Path
    """The registry's folder."""
    names: Sequence[str]
    """Which models to serve; none: all that have a version that serves."""
    host: Host
    publication: Path
    drain_seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic
    _held: dict[str, _HostedVersion] = field(default_factory=dict)
    _published: dict[str, Places] = field(default_factory=dict)
    _former: dict[str, list[str]] = field(default_factory=dict)
    """By model, versions without a place that answer what is pinned to them."""
    _used: dict[str, dict[str, str]] = field(default_factory=dict)
    _shares: dict[str, float] = field(default_factory=dict)
    """By model the share of the sessions that its canary answers, where its trial says one."""
    _shared: dict[str, float] = field(default_factory=dict)
    """The shares that are published."""
    _unread: dict[str, str] = field(default_factory=dict)
    """Why a model's pointer cannot be read now; without a name, why the pins cannot."""

    def start(self) -> None:
        """Publish that nothing serves yet: what an earlier process published is gone with it."""
        self._publish({}, {}, {})

    def look(self) -> None:
        """Compare the pointers with what is up, begin and end versions, publish what changed."""
        wanted = {name: self._wanted(name) for name in self._served_names()}
        pinned = self._pinned(wanted)
        for name, places in wanted.items():
            for label in (*places.values(), *pinned[name]):
                self._begin(name, label)
        urls = {label: url for label in self._held if (url := self.host.ready(label)) is not None}
        self._tell(urls)
        published = {name: self._places(name, wanted[name], urls) for name in wanted}
        self._publish(
            published, {name: self._draining(name, published, urls) for name in wanted}, urls
        )
        self._put_away(wanted, pinned)

    def close(self) -> None:
        """Publish that nothing serves any more, and put everything away."""
        self._publish({}, {}, {})
        for label in list(self._held):
            self.host.end(label)
        self._held.clear()

    def _served_names(self) -> list[str]:
        if self.names:
            return list(self.names)
        return sorted(path.parent.name for path in self.models.glob("*/live.json"))

    def _wanted(self, name: str) -> Places:
        """Return what a model's pointer names; what was published where it cannot be read now."""
        try:
            pointer = read_pointer(self.models / name)
        except ConfigurationError as error:
            if self._unread.get(name) != str(error):
                _log.error("%s; what serves of %s goes on", error, name)
            self._unread[name] = str(error)
            return self._published.get(name, {})
        self._unread.pop(name, None)
        self._shares.pop(name, None)
        if pointer is None:
            return {}
        if pointer.share is not None:
            self._shares[name] = pointer.share
        versions = {"live": pointer.version, **pointer.trials}
        return {
            place: f"{name}@{versions[place]}" for place in ("live", *TRIALS) if place in versions
        }

    def _pinned(self, wanted: Mapping[str, Places]) -> dict[str, list[str]]:
        """Return by model the newest versions without a place that trajectories are pinned to."""
        try:
            labels = pinned_labels(self.publication.with_name(FILE_NAME))
        except OSError as error:  # what is up stays up; only a version that is down is not begun
            if self._unread.get("") != str(error):
                _log.error("what is pinned cannot be read (%s); what serves goes on", error)
            self._unread[""] = str(error)
            labels = set(self._held)
        found: dict[str, list[str]] = {}
        for name, places in wanted.items():
            former = [
                label
                for label in sorted(labels - set(places.values()), reverse=True)
                if label.rpartition("@")[0] == name and self._may_go_on(name, label)
            ]
            found[name] = former[:_MOST_FORMER]
        return found

    def _may_go_on(self, name: str, label: str) -> bool:
        """Tell whether a version may answer what is pinned to it: it is there, and was not taken out."""
        version = label.rpartition("@")[2]
        home = self.models / name
        there = (home / version / "manifest.json").is_file()
        return there and version not in taken_out(read_history(home))

    def _draining(
        self, name: str, published: Mapping[str, Places], urls: Mapping[str, str]
    ) -> list[str]:
        """Return the versions without a place that are still up: a pin may have been made just now."""
        placed = set(published[name].values())
        return [
            label
            for label in self._held
            if label in urls
            and label not in placed
            and label.rpartition("@")[0] == name
            and self._may_go_on(name, label)
        ]

    def _begin(self, name: str, label: str) -> None:
        held, now = self._held.get(label), self.clock()
        if held is not None:
            again = self.host.problem(label) is not None and now - held.asked_at > _AGAIN_SECONDS
            if not again:
                return
            self.host.end(label)
        folder = self.models / name / label.rpartition("@")[2]
        self._held[label] = _HostedVersion(folder, now)
        self.host.begin(label, folder)
        _log.info("%s is being loaded", label)

    def _tell(self, urls: dict[str, str]) -> None:
        for label, held in self._held.items():
            problem = None if label in urls else self.host.problem(label)
            if problem is not None and problem != held.told:
                _log.error("%s cannot be loaded: %s; what served before goes on", label, problem)
                held.told = problem

    def _places(self, name: str, wanted: Places, urls: dict[str, str]) -> Places:
        """Return what can be published: of what is wanted, and for ``live`` what served before."""
        places = {place: label for place, label in wanted.items() if label in urls}
        before = self._published.get(name, {}).get("live")
        if "live" not in places and before in urls and "live" in wanted:
            places["live"] = before
        return places

    def _publish(
        self, models: dict[str, Places], former: dict[str, list[str]], urls: dict[str, str]
    ) -> None:
        named = [label for places in models.values() for label in places.values()]
        named += [label for labels in former.values() for label in labels]
        used = {label: {"label": label, "url": urls[label]} for label in named}
        shares = {
            name: share for name, share in self._shares.items() if "canary" in models.get(name, ())
        }
        changed = (self._published, self._former, self._used, self._shared) != (
            models, former, used, shares,
        )  # fmt: skip
        if not changed and self.publication.exists():
            return
        value = {
            "models": {
                name: {place: used[label] for place, label in places.items()}
                | ({"former": [used[label] for label in former[name]]} if former[name] else {})
                | ({"canary_share": shares[name]} if name in shares else {})
                for name, places in models.items()
            }
        }
        replace_file(self.publication, canonical_json(value))
        self._published, self._former, self._used = models, former, used
        self._shared = shares
        for name, places in models.items():
            _log.info("%s: %s", name, json.dumps(places, sort_keys=True))

    def _put_away(self, wanted: Mapping[str, Places], pinned: Mapping[str, list[str]]) -> None:
        needed = {label for places in wanted.values() for label in places.values()}
        needed |= {label for labels in pinned.values() for label in labels}
        needed |= {label for places in self._published.values() for label in places.values()}
        now = self.clock()
        for label, held in list(self._held.items()):
            if label in needed:
                held.idle_since = None
            elif held.idle_since is None:
                held.idle_since = now
            elif now - held.idle_since >= self.drain_seconds:
                self.host.end(label)
                del self._held[label]
                _log.info("%s was put away", label)


_LOOK_SECONDS = 0.25


def serve_models(
    settings: "ServeSettings",
    home: "Home",
    *,
    names: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the port is taken, or the engine that was asked for is not installed.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with quiet_libraries(home.state / "serving"), _host(settings, home) as host:
        reconciler = VersionReconciler(
            home.models, names, host, home.serving, drain_seconds=settings.drain_seconds
        )
        reconciler.start()
        announce(f"serving {', '.join(names) or 'every model that has a live version'}")
        waits = [name for name in names if not (home.models / name / "live.json").exists()]
        if waits:
            announce(
                f"no version of {', '.join(waits)} is live so far (`headrace train list`); it is served "
                "once one is"
            )
        try:
            while not stop.wait(_LOOK_SECONDS):
                _look(reconciler)
        finally:
            reconciler.close()


def _look(reconciler: VersionReconciler) -> None:
    """Look once; a registry that cannot be read now may be readable the next time."""
    try:
        reconciler.look()
    except (OSError, ValueError, HeadraceError) as error:
        _log.error("what serves stays as it is: %s", type(error).__name__)


@contextmanager
def _host(settings: "ServeSettings", home: "Home") -> "Iterator[Host]":
    key = serving_key(home).read_text(encoding="ascii").strip()
    if settings.url:
        yield ExternalServers(settings.url.rstrip("/"), key)
    elif settings.engine == "vllm" or (settings.engine == "auto" and has_vllm()):
        if not has_vllm():
            raise ConfigurationError(
                "serve.engine is vllm, and vLLM is not installed: `uv pip install vllm`, or set "
                "serve.engine to transformers"
            )
        servers = VllmServers(settings.vllm_arguments, home.logs, key)
        try:
            yield servers
        finally:
            servers.close()
    else:
        place = settings.host, settings.port
        with TransformersHost.open(*place, key, address=settings.address) as host:
            yield host
