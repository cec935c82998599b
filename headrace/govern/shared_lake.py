"""What a governor owes the other homes of its lake: to tell its legal holds, and to carry out their erasures."""

import time
from collections.abc import Callable, Sequence

from governance.errors import PolicyError
from governance.policy.retention import LegalHold
from headrace.app.context import AppContext
from headrace.services.erasure import carry_out
from headrace.services.holds import holds_in
from headrace.services.homes import Homes
from headrace.services.seen_erasures import SeenErasures
from trajectory.errors import RetryableError

_EVERY_SECONDS = 3600.0
"""So often a home says that it is there."""
_STORE_SECONDS = 10.0
"""So often an object store is asked; a folder is looked at each time."""


class SharedLake:
    """The lake as its other homes see it; one for each governor."""

    def __init__(
        self,
        app: AppContext,
        report: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._report = report
        self._clock = clock
        self._homes = Homes.of(app)
        self._seen = SeenErasures(app.home.secrets, app.lake.query)
        self._erasures: tuple[str, ...] = ()
        self._told: tuple[LegalHold, ...] | None = None
        self._told_at = self._looked_at = float("-inf")
        self._warn()

    def look(self, in_force: Sequence[LegalHold]) -> None:
        """Carry out what other homes erased, and tell the holds of the policy in force where they changed.

        Raises:
            RetryableError: something could not be read or written; the next look tries again.
        """
        now = self._clock()
        if not self._app.lake.location.is_local and now - self._looked_at < _STORE_SECONDS:
            return
        if self._told != (*in_force,) or now - self._told_at >= _EVERY_SECONDS:
            self._publish(in_force)  # first: the other homes may wait for it
        if self._follow():
            self._publish(in_force)
        self._looked_at = now

    def _publish(self, in_force: Sequence[LegalHold]) -> None:
        self._homes.publish(self._settled(in_force))
        self._told, self._told_at = (*in_force,), self._clock()

    def legal_holds(self) -> tuple[LegalHold, ...]:
        """Return the holds of the other homes.

        Raises:
            RetryableError: a home said nothing that can be read.
        """
        return self._homes.legal_holds_of_others()

    def _warn(self) -> None:
        """Tell of homes that name people by another key; one that cannot be read keeps no batch waiting."""
        try:
            others = self._homes.with_another_key()
        except RetryableError as error:
            self._report(f"warning: {error}")
            return
        for one in others:
            self._report(
                f"warning: home {one.name} of this lake names people by another master key: consent and erasure by "
                "name find its rows only there; see `headrace doctor`"
            )

    def _follow(self) -> bool:
        """Carry out what is new; return whether anybody erased anything since the last look."""
        files = self._app.lake.snapshot_of("erasures")
        if files == self._erasures:
            return False
        for one in self._seen.unseen():
            carry_out(self._app, one)
            self._seen.add(one.erasure_id)
            self._report(f"erasure {one.erasure_id} of another home is carried out here")
        self._erasures = files
        return True

    def _settled(self, in_force: Sequence[LegalHold]) -> Sequence[LegalHold]:
        """Return the holds that the policy's files say; half a file could have half of them."""
        try:
            return holds_in(self._app.settings)
        except PolicyError:  # the old policy stays in force
            return in_force


class Alone:
    """A home that shares its lake with nobody."""

    def look(self, in_force: Sequence[LegalHold]) -> None:
        """Nothing to do."""

    def legal_holds(self) -> tuple[LegalHold, ...]:
        """Return none."""
        return ()
