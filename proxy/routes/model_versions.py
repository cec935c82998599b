"""Registered models on routes: which version answers a call, and which one gets a copy of it.

The app publishes a file that names, for each model, the versions that are ready to answer and
where. It is read again whenever it changes, so promotion, rollback and trials need no restart.
"""

import json
import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

from proxy.clients.credentials import RawFields
from proxy.config import CredentialSource, Route, UpstreamChoice
from proxy.recording.tokens import plain_json
from proxy.request_json import dumped, parsed
from proxy.routes.pins import Pins
from proxy.routes.target import Target
from trajectory.artifact import MODEL_ARM
from trajectory.files import read_file

type ServingRole = Literal["live", "canary", "shadow"]
"""What a version does for a model: answer, answer some sessions, or answer nobody."""

SERVING_ROLES: tuple[ServingRole, ...] = ("live", "canary", "shadow")
_ANSWERING: tuple[ServingRole, ...] = ("live", "canary")

_log = logging.getLogger(__name__)
_draw = random.Random()  # noqa: S311 - which calls are copied, not a secret


class PublishedVersion(NamedTuple):
    """One version as the app published it."""

    label: str
    """``name@version``."""
    url: str


@dataclass(slots=True)
class Version:
    """A version that answers, prepared."""

    label: str
    target: Target


class ServedModel:
    """The versions that answer on one route that names a model."""

    __slots__ = (
        "_canary",
        "_credential",
        "_former",
        "_pin_seconds",
        "_pins",
        "_shadow",
        "_share",
        "_versions",
        "model",
    )

    def __init__(self, route: Route, pins: Pins | None = None) -> None:
        """Begin with nothing that answers; :meth:`use` says what does."""
        self.model = route.model or ""
        self._pins = pins if route.pin == "trajectory" else None
        self._pin_seconds = route.pin_hours * 3600
        self._former: dict[str, Version] = {}
        self._canary = route.canary
        self._share = route.canary
        self._shadow = route.shadow
        self._credential = route.credential
        self._versions: dict[ServingRole, Version] = {}

    def use(
        self,
        published: dict[ServingRole, PublishedVersion],
        former: Sequence[PublishedVersion] = (),
        share: float | None = None,
    ) -> None:
        """Answer by these versions from now on; what is on its way ends where it began.

        Args:
            published: the versions that have a role.
            former: versions without one that still answer the trajectories pinned to them.
            share: of the sessions that the canary answers; None for that of the route.
        """
        self._share = self._canary if share is None else share
        before = {
            version.label: version for version in (*self._versions.values(), *self._former.values())
        }
        self._former = {
            found.label: _prepared(found, before.get(found.label), self._credential)
            for found in former
        }
        self._versions = {
            role: _prepared(found, before.get(found.label), self._credential)
            for role, found in published.items()
        }

    @property
    def pins(self) -> bool:
        """Whether a trajectory keeps its version."""
        return self._pins is not None

    def keep(self, name: bytes, drawn: Version) -> Version:
        """Return the version that a trajectory is pinned to; it is pinned now where it was not.

        A version that is gone or cannot be reached loses the trajectory to the one that was drawn.

        Args:
            name: a fingerprint of the trajectory's name.
            drawn: what :meth:`choose` says.
        """
        if self._pins is None:
            return drawn
        now = time.monotonic()
        answering = (
            *self._former.values(),
            *(self._versions[r] for r in _ANSWERING if r in self._versions),
        )
        able = {each.label: each for each in answering if each.target.shunned_until <= now}
        able[drawn.label] = drawn
        return able[self._pins.keep(name, drawn.label, able, self._pin_seconds)]

    def choose(self, stick: bytes | None) -> Version | None:
        """Return the version for a session or a connection; the same as long as nothing changes.

        Args:
            stick: what the draw depends on; None gives the version that is live.
        """
        canary = self._versions.get("canary")
        if (
            canary is not None
            and self._is_drawn(stick, canary)
            and canary.target.shunned_until <= time.monotonic()
        ):
            return canary
        return self._versions.get("live")

    def arm(self, stick: bytes | None) -> str:
        """Return what a capture says of a session's arm, whatever answers it; empty without a canary."""
        canary = self._versions.get("canary")
        if canary is None or stick is None or not self._share:
            return ""
        return (
            f"{MODEL_ARM}{canary.label} {'canary' if self._is_drawn(stick, canary) else 'control'}"
        )

    def _is_drawn(self, stick: bytes | None, canary: Version) -> bool:
        return stick is not None and lot(stick, canary.label) < self._share

    def copies_to(self, answering: Version) -> Version | None:
        """Return the version that gets a copy of a call, None where this one is not copied."""
        shadow = self._versions.get("shadow")
        if shadow is None or not self._shadow or shadow.label == answering.label:
            return None
        return shadow if _draw.random() < self._shadow else None

    def labels(self) -> dict[ServingRole, str]:
        """Return which versions it has."""
        return {role: version.label for role, version in self._versions.items()}

    def targets(self) -> Iterable[Target]:
        """Return where all its versions are."""
        return [each.target for each in (*self._versions.values(), *self._former.values())]


def _prepared(
    found: PublishedVersion, before: Version | None, credential: CredentialSource | None
) -> Version:
    if before is not None and before.target.url == found.url:
        return before
    choice = UpstreamChoice(url=found.url, credential=credential)
    return Version(found.label, Target.of(choice))


def lot(stick: bytes, label: str) -> float:
    """Return a session's lot, between 0 and 1; each trial draws anew."""
    key = label.encode()
    if len(key) > blake2b.MAX_KEY_SIZE:  # cut off, versions of a long name would draw alike
        key = blake2b(key).digest()
    digest = blake2b(stick, digest_size=8, key=key).digest()
    return int.from_bytes(digest) / 2**64


class Publication:
    """The file in which the app says what serves."""

    def __init__(self, path: Path, servings: Iterable[ServedModel]) -> None:
        """Read it now, for these routes; without a file nothing serves."""
        self._path = path
        self._servings = list(servings)
        self._seen: tuple[int, int] | None = None
        self._problem = ""
        self.refresh()

    def refresh(self) -> None:
        """Read the file where it has changed; one that cannot be read changes nothing."""
        if not self._servings:
            return
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_ino)
            if seen == self._seen:
                return
            models = _read(json.loads(read_file(self._path)))
            for serving in self._servings:
                serving.use(*models.get(serving.model, ({}, (), None)))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            self._tell(f"{self._path}: {type(error).__name__}; what served before goes on")
            return
        self._seen, self._problem = seen, ""
        for serving in self._servings:
            _log.info("model %s is served as published", serving.model)

    def versions(self) -> dict[tuple[str, str], str]:
        """Return what serves now: version by model and role."""
        return {
            (serving.model, role): label
            for serving in self._servings
            for role, label in serving.labels().items()
        }

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            _log.error("what serves cannot be read: %s", problem)
        self._problem = problem


type _Versions = tuple[dict[ServingRole, PublishedVersion], list[PublishedVersion], float | None]
"""Versions of a model by role, those without a role that still answer, and the canary's own share."""


def _read(value: Any) -> dict[str, _Versions]:
    """Return the versions of each model.

    Raises:
        ValueError: it is not what the app publishes.
    """
    try:
        models = value["models"]
        return {
            str(name): (
                {
                    role: PublishedVersion(str(versions[role]["label"]), str(versions[role]["url"]))
                    for role in SERVING_ROLES
                    if versions.get(role) is not None
                },
                [
                    PublishedVersion(str(each["label"]), str(each["url"]))
                    for each in versions.get("former", ())
                ],
                None if versions.get("canary_share") is None else float(versions["canary_share"]),
            )
            for name, versions in models.items()
        }
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a publication: {type(error).__name__}") from None


def can_name(method: bytes, headers: RawFields) -> bool:
    """Tell from a request's head whether the version can be named in its body."""
    return plain_json(method, headers)


def with_model(body: bytes, label: str) -> bytes:
    """Return the request with this version as its model; what is not understood stays."""
    try:
        value = parsed(body)
    except (ValueError, RecursionError):
        return body
    if not isinstance(value, dict):
        return body
    value["model"] = label
    return dumped(value)
