"""The artefacts of a gateway's routes: which versions are live, and their way into requests.

The registry's folder is read again whenever it changes, so promotion, rollback and erasure need no
restart. Whatever fails, the request goes on as its client wrote it, and the failure is counted.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from proxy.artifacts.blocks import MalformedArtifactError, NoRoomError, PreparedArtifact
from proxy.artifacts.bodies import BODIES, ArtifactDecision, Conversations, ModelBody
from proxy.artifacts.placed_json import spliced
from proxy.clients.credentials import RawFields
from proxy.config import Route
from proxy.recording.tokens import plain_json
from proxy.request_json import check_values
from proxy.routes.model_versions import lot
from proxy.telemetry.counters import Counters
from trajectory.artifact import ARM, ArtifactSpec
from trajectory.files import read_file

_PLACES = ("live", "canary")
_log = logging.getLogger(__name__)

type Problem = str
"""missing | malformed | absent"""
ABSENT: Problem = "absent"
"""No version serves, as it should be: a first one is on trial."""

type Stamp = tuple[tuple[int, int, int], ...]


class Shelf:
    """The artefacts that routes name, as the registry's folder has them."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Read them now."""
        self._folder = folder
        self._found: dict[str, tuple[Stamp, dict[str, PreparedArtifact | Problem]]] = {
            name: ((), {}) for name in names
        }
        self.serving: Mapping[str, ServingArtifact] = {}
        """What serves of each; another mapping whenever that changes."""
        self.refresh()

    def refresh(self) -> None:
        """Read what has changed; called in another thread."""
        for name, (seen, before) in list(self._found.items()):
            home = self._folder / name
            versions, share = _versions(home)
            stamp = _stamp([home / "live.json", *(_content(home, v) for v in versions.values())])
            if stamp == seen and before:
                continue
            found = {place: _prepared(home, version) for place, version in versions.items()}
            found = found or {"live": "missing"}
            self._found[name] = stamp, found
            canary = found.get("canary")
            live = DrawnArtifact(found.get("live", ABSENT), None)
            canary = canary if isinstance(canary, PreparedArtifact) else None
            self.serving = {**self.serving, name: ServingArtifact(live, canary, share)}
            told = {place: _named(one) for place, one in found.items()}
            _log.info("artefact %s: %s", name, told)

    def live(self) -> list[PreparedArtifact]:
        """Return the versions that are live, for whatever tenant, by name."""
        found = [self._found[name][1].get("live") for name in sorted(self._found)]
        return [one for one in found if isinstance(one, PreparedArtifact)]

    def choose(
        self, name: str, session: bytes | None, share: float, tenant: str
    ) -> "DrawnArtifact":
        """Return the version for a session: of a canary a share of them is given."""
        live, canary, own = self.serving[name]
        if canary is None or session is None or canary.tenant not in (None, tenant):
            return live
        if lot(session, canary.label) < (share if own is None else own):
            return DrawnArtifact(canary, f"{ARM}{canary.label} canary")
        return DrawnArtifact(live.one, f"{ARM}{canary.label} control")


class DrawnArtifact(NamedTuple):
    """What a session was drawn for."""

    one: PreparedArtifact | Problem
    arm: str | None
    """The canary on trial and the session's arm, also where the version adds nothing to a request."""


class ServingArtifact(NamedTuple):
    """What serves of one artefact."""

    live: DrawnArtifact
    canary: PreparedArtifact | None
    """On trial."""
    share: float | None
    """Of the sessions that get it; None for that of the route."""


def _versions(home: Path) -> tuple[dict[str, str], float | None]:
    """Return which versions a pointer names, and the canary's own share.

    What it cannot be read as names a version that is none.
    """
    try:
        value = json.loads(read_file(home / "live.json"))
        named = {"live": value["version"], **(value.get("trials") or {})}
        share = value.get("share")
        versions = {place: str(named[place]) for place in _PLACES if named.get(place)}
        return versions, None if share is None else float(share)
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {"live": ""}, None


def _content(home: Path, version: str) -> Path:
    return home / version / "artifact.json"


def _stamp(files: Iterable[Path]) -> Stamp:
    stats = []
    for file in files:
        try:
            stat = file.stat()
            stats.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        except OSError:
            stats.append((0, 0, 0))
    return tuple(stats)


def _prepared(home: Path, version: str) -> PreparedArtifact | Problem:
    if not version or Path(version).name != version:
        return "malformed"
    try:
        value = json.loads(read_file(_content(home, version)))
        if value is None:  # an erasure took all of it
            return "missing"
        return PreparedArtifact(f"{home.name}@{version}", ArtifactSpec.model_validate(value))
    except FileNotFoundError:
        return "missing"
    except Exception as error:  # noqa: BLE001 - whatever it holds, calls go on without it
        _log.error("artefact %s@%s: %s", home.name, version, type(error).__name__)
        return "malformed"


def _named(one: PreparedArtifact | Problem) -> str:
    return one if isinstance(one, str) else one.label


class AppliedArtifacts(NamedTuple):
    """A request with what artefacts add to it."""

    body: bytes
    labels: tuple[str, ...]
    """``name@version``, with ``=id+id`` behind it where facts were shown; the arm of a session in a trial."""


class _Draw(NamedTuple):
    """The artefacts for a session."""

    able: tuple[tuple[str, PreparedArtifact], ...]
    arms: tuple[str, ...]
    problems: tuple[tuple[str, str, str], ...]
    """Route, artefact and what is wrong, of those that cannot be applied."""


class RouteArtifacts:
    """The artefacts of one route."""

    __slots__ = (
        "_budget",
        "_canary",
        "_conversations",
        "_draws",
        "_names",
        "_on_trial",
        "_route",
        "_serving",
        "_shelf",
        "_tokens",
    )

    def __init__(self, route: Route, shelf: Shelf) -> None:
        assert route.evolve is not None  # noqa: S101 - for the type checker
        self._route = route.name
        self._shelf = shelf
        self._names = route.evolve.artifacts
        self._tokens = route.evolve.tokens
        self._canary = route.evolve.canary
        self._budget = route.evolve.milliseconds / 1000
        self._begin()

    def _begin(self) -> None:
        """Forget what holds only as long as the same versions serve."""
        self._serving = self._shelf.serving
        self._on_trial = any(self._serving[name].canary is not None for name in self._names)
        self._draws: dict[str, _Draw] = {}
        self._conversations = Conversations()

    def follow(self) -> None:
        """Let go of what was made by versions that serve no longer, without waiting for a call."""
        if self._shelf.serving is not self._serving:
            self._begin()

    def takes(
        self, method: bytes, path: bytes, fields: RawFields, counters: Counters
    ) -> type[ModelBody] | None:
        """Return how a request's body is written, where it is a model request that can be read."""
        if method != b"POST":
            return None
        bare = path.partition(b"?")[0]
        for body in BODIES:
            if bare.endswith(body.path):
                if plain_json(method, fields):
                    return body
                counters.artifacts[self._route, "-", "unreadable"] += 1
        return None

    def apply(
        self,
        body: type[ModelBody],
        data: bytes,
        *,
        tenant: str,
        agent: str | None,
        session: bytes | None,
        counters: Counters,
    ) -> AppliedArtifacts | None:
        """Return a request as it goes upstream; None where it goes as its client wrote it."""
        began, spent = time.perf_counter(), time.thread_time()
        draw = self._drawn(tenant, session)
        for each in draw.problems:
            counters.artifacts[each] += 1
        unchanged = AppliedArtifacts(data, draw.arms) if draw.arms else None
        if not draw.able:
            return unchanged
        try:
            check_values(data)
            request = self._conversations.read(body, data, tenant, session)
        except (ValueError, TypeError, LookupError, RecursionError):
            counters.artifacts[self._route, "-", "unreadable"] += 1
            return unchanged

        def is_late(name: str) -> bool:
            # The clock is asked first: it costs a twentieth of what the thread's time does.
            late = (
                time.perf_counter() - began > self._budget
                and time.thread_time() - spent > self._budget
            )
            if late:
                counters.artifacts[self._route, name, "slow"] += 1
            return late

        decision = request.decision = self._decision(request, draw.able, agent, is_late)
        if decision is None:
            return unchanged
        for each in decision.counted:
            counters.artifacts[each] += 1
        if not decision.labels:
            return unchanged
        return AppliedArtifacts(spliced(data, decision.edits), decision.labels + draw.arms)

    def _drawn(self, tenant: str, session: bytes | None) -> _Draw:
        """Return the artefacts for a session; without a trial all have the same."""
        self.follow()
        if not self._on_trial and (known := self._draws.get(tenant)) is not None:
            return known
        able, arms, problems = [], [], []
        for name in self._names:
            one, arm = self._shelf.choose(name, session, self._canary, tenant)
            if arm is not None:
                arms.append(arm)
            if isinstance(one, str):
                problems.append((self._route, name, one))
            elif one.tenant in (None, tenant):
                able.append((name, one))
        draw = _Draw(tuple(able), tuple(arms), tuple(problems))
        if not self._on_trial:
            self._draws[tenant] = draw
        return draw

    def _decision(
        self,
        request: ModelBody,
        able: tuple[tuple[str, PreparedArtifact], ...],
        agent: str | None,
        is_late: Callable[[str], bool],
    ) -> ArtifactDecision | None:
        """Decide what a request is given; None where that takes too long.

        It mostly is the same as for the call that it extends.
        """
        before = request.earlier
        if before is None or before.able != able:
            before = None
            cues = tuple([one.cue(request.said) for _, one in able])
        else:
            known = zip(able, before.cues, strict=True)
            cues = tuple([one.cue(request.said, cue) for (_, one), cue in known])
        if before is not None and before.cues == cues and before.agent == agent:
            return None if is_late(able[0][0]) else before
        room = self._tokens
        labels: list[str] = []
        counted: list[tuple[str, str, str]] = []
        for (name, one), cue in zip(able, cues, strict=True):
            try:
                added = one.apply(request, agent, room, cue)
            except NoRoomError:
                counted.append((self._route, name, "over_cap"))
                continue
            except (MalformedArtifactError, ValueError):
                counted.append((self._route, name, "malformed"))
                continue
            if is_late(name):
                return None
            if added is not None:
                room -= added.tokens
                labels.append(added.label)
                counted.append((self._route, name, "applied"))
        return ArtifactDecision(able, agent, cues, request.edits, tuple(labels), tuple(counted))
