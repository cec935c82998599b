"""A company's own consent service, asked over HTTP about each end user, its answers kept a while.

The service is asked with the end user's identifier as the application sent it. So it belongs to the
same company, and is reached over HTTPS or on this machine. Its answer counts like entries of the
registry: what it grants is granted, what it does not is withdrawn. When it does not answer, the call is
held back until it does, never passed.
"""

import json
import os
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import NamedTuple
from urllib.parse import urlsplit

from governance.consent import ConsentEntry, ConsentLookup, NoAnswerError
from governance.policy.consent import Purpose
from headrace.app.settings import ConsentSettings
from proxy.config.gateway import LOOPBACK_HOSTS
from trajectory.errors import ConfigurationError

_MOST_CACHED = 100_000
_MOST_BYTES = 64 * 1024
_FAILURES = 3
"""After so many in a row the service counts as away."""
_AWAY_SECONDS = 30.0
"""How long it then is not asked: each vain question costs its whole timeout, and all calls wait."""
_MOST_QUESTIONS = 1_000
_MOST_SECONDS = 30.0
"""What one batch may ask, and how long; whom it did not ask about is asked about by a later one."""


class _Answer(NamedTuple):
    entries: tuple[ConsentEntry, ...]
    granted: frozenset[str]
    asked: frozenset[str]
    """By which ids: spellings of one person, or people whose ids differ in marks or case alone."""
    until: float


class ServiceConsents:
    """The lake's registry, together with the service's answers about end users."""

    def __init__(
        self,
        registry: ConsentLookup,
        settings: ConsentSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask the service of ``settings``.

        Raises:
            ConfigurationError: the address is neither HTTPS nor on this machine, or the token's
                environment variable is not set.
        """
        parts = urlsplit(settings.url)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and (parts.hostname or "") in LOOPBACK_HOSTS
        ):
            raise ConfigurationError(
                "consent.url must begin with https:// (http:// on this machine only): it is asked "
                "about people."
            )
        self._token = os.environ.get(settings.token_env, "") if settings.token_env else ""
        if settings.token_env and not self._token:
            raise ConfigurationError(f"consent.token_env: {settings.token_env} is not set.")
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._answers: OrderedDict[tuple[str, str], _Answer] = OrderedDict()
        self._failures = 0
        self._away_until = clock()
        self._questions = 0
        self._spent = 0.0
        """What this batch asked already, and how long that took."""

    def ask(self, tenant_id: str, end_user: str, subject: str) -> None:
        """Learn what an end user agreed to, unless that is known still.

        Of several ids with one pseudonym counts what the service grants to all of them.

        Raises:
            NoAnswerError: no answer, or none that can be understood; the call must be held back.
        """
        known = self._answers.get((tenant_id, subject))
        asked, until = frozenset({end_user}), self._clock() + self._settings.cache_seconds
        if known is not None and known.until <= self._clock():
            known = None
        if known is not None and end_user in known.asked:
            return
        granted = self._answer(tenant_id, end_user)
        if known is not None:
            granted, asked, until = granted & known.granted, asked | known.asked, known.until
        now = datetime.now(UTC)
        entries = tuple(
            ConsentEntry(
                tenant_id,
                subject,
                purpose.value,
                purpose.value in granted,
                now,
                "service",
                at_capture=True,
            )
            for purpose in Purpose
        )
        self._answers[tenant_id, subject] = _Answer(entries, granted, asked, until)
        while len(self._answers) > _MOST_CACHED:
            self._answers.popitem(last=False)

    def entries(self, tenant_id: str, subjects: Collection[str]) -> Sequence[ConsentEntry]:
        """Return the registry's entries, and what the service said; a withdrawal in either counts.

        Which of the two was recorded later makes no difference: neither knows of the other's.
        """
        registry = self._registry.entries(tenant_id, subjects)
        service = [
            entry
            for subject in subjects
            if (answer := self._answers.get((tenant_id, subject))) is not None
            for entry in answer.entries
        ]
        withdrawn = _withdrawn(registry)
        refused = _withdrawn(service) - withdrawn
        return [
            *(one for one in registry if (one.subject, one.purpose) not in refused),
            *(one for one in service if (one.subject, one.purpose) not in withdrawn),
        ]

    def erased_at(self, tenant_id: str, names: Collection[str]) -> datetime | None:
        """Return what the registry knows of erasures."""
        return self._registry.erased_at(tenant_id, names)

    def erased_with(self, tenant_id: str, trajectories: Collection[str]) -> tuple[str, ...]:
        """Return what the registry knows of erasures."""
        return self._registry.erased_with(tenant_id, trajectories)

    def refresh(self) -> None:
        """See what the registry holds now; a batch begins."""
        self._registry.refresh()
        self._questions, self._spent = 0, 0.0

    def _answer(self, tenant_id: str, end_user: str) -> frozenset[str]:
        """Ask the service, unless it failed several times just now, or this batch asked enough."""
        begun = self._clock()
        if begun < self._away_until:
            raise NoAnswerError(
                "the consent service did not answer several times in a row; it is asked again soon."
            )
        if self._questions >= _MOST_QUESTIONS or self._spent >= _MOST_SECONDS:
            raise NoAnswerError("the consent service was asked enough; a later batch goes on.")
        self._questions += 1
        try:
            granted = self._asked(tenant_id, end_user)
        except NoAnswerError:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._away_until = self._clock() + _AWAY_SECONDS
            raise
        finally:
            self._spent += self._clock() - begun
        self._failures = 0
        return granted

    def _asked(self, tenant_id: str, end_user: str) -> frozenset[str]:
        body = json.dumps({"tenant": tenant_id, "end_user": end_user}).encode()
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._settings.url, body, headers)  # noqa: S310 - checked
        try:
            with _OPENER.open(request, timeout=self._settings.timeout_seconds) as answer:
                purposes = json.loads(self._whole(answer))["purposes"]
            if not isinstance(purposes, list) or not all(isinstance(one, str) for one in purposes):
                raise TypeError
        except _NO_ANSWER as error:
            raise NoAnswerError(
                f"the consent service did not answer ({type(error).__name__}); the call is held "
                "back until it does."
            ) from None
        return frozenset(purposes)

    def _whole(self, answer: HTTPResponse) -> bytes:
        """Return the body; one that comes in drops has the time of the whole question."""
        until = self._clock() + self._settings.timeout_seconds
        body = b""
        while piece := answer.read1(_MOST_BYTES):
            body += piece
            if self._clock() > until or len(body) > _MOST_BYTES:
                raise TimeoutError
        if answer.length:
            raise IncompleteRead(body, answer.length)
        return body


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A consent service does not send its questions elsewhere."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Refuse."""


_NO_ANSWER = (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError)
"""What comes of a service that is down, breaks off, or says something else than it should."""
_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def _withdrawn(entries: Sequence[ConsentEntry]) -> set[tuple[str, str]]:
    """Return the subjects and purposes whose latest entry is a withdrawal."""
    ordered = sorted(entries, key=lambda entry: (entry.recorded_at, not entry.granted))
    latest = {(entry.subject, entry.purpose): entry for entry in ordered}
    return {key for key, entry in latest.items() if not entry.granted}
