"""Homes that share a lake: each tells the others its legal holds, and by which key it names people.

A note of each home lies beside the tables. Its governor writes it when the policy in force changes, and every hour.
What it says counts until its home says otherwise, or a person has it forgotten: the holds of a home whose governor
is down count on, and `headrace lake status` shows since when nobody heard of it. A home that governs into the lake
and never said so (an older program's) may have any holds: nothing is deleted before it tells them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from governance.policy.retention import LegalHold
from headrace.govern.checkpoint import installation_name
from trajectory.canonical import bytes_hash
from trajectory.errors import ConfigurationError, RetryableError

if TYPE_CHECKING:
    from headrace.app.context import AppContext
    from lakehouse.storage.notes import Notes

_PREFIX = "home-"
_GOVERNS = ("-batches", "-checkpoint", "-progress", "-pending")
"""Ends of the notes that a home's governor writes before its first row, in this version and the first."""
SILENT = timedelta(days=7)
"""Who was not heard of for so long may be gone."""


@dataclass(frozen=True, slots=True)
class HomeNote:
    """What a home says of itself."""

    name: str
    seen_at: datetime
    """When it last said so, by its own clock."""
    legal_holds: tuple[LegalHold, ...]
    """Of its policy in force."""
    people_key: str
    """Tells one key that names people from another."""


class Homes:
    """The homes of a lake, seen from one of them."""

    def __init__(self, notes: "Notes", name: str, people_key: str) -> None:
        """Look at a lake as the home ``name``, which names people by the key that ``people_key`` tells."""
        self._notes = notes
        self.name = name
        self._people_key = people_key

    @classmethod
    def of(cls, app: "AppContext") -> "Homes":
        """Look at an installation's lake from its home."""
        told = bytes_hash(app.secrets.derive(b"pseudonym-key-name"))
        return cls(app.lake.notes(), installation_name(app.home.identity), told)

    def publish(self, legal_holds: Sequence[LegalHold]) -> None:
        """Tell the other homes which holds count here; it is on the disk when this returns.

        Raises:
            RetryableError: it could not be written.
        """
        said = {
            "seen_at": datetime.now(UTC).isoformat(),
            "legal_holds": [one.model_dump(mode="json", exclude_unset=True) for one in legal_holds],
            "people_key": self._people_key,
        }
        self._notes.put(f"{_PREFIX}{self.name}", json.dumps(said).encode(), lasting=True)

    def all(self) -> tuple[HomeNote, ...]:
        """Return what each home says, this one too, in the order of their names.

        Raises:
            RetryableError: what one says cannot be read.
        """
        return tuple(self._read(name) for name in self._notes.names(_PREFIX))

    def others(self) -> tuple[HomeNote, ...]:
        """Return what the other homes say; see :meth:`all`."""
        return tuple(
            self._read(name)
            for name in self._notes.names(_PREFIX)
            if name != f"{_PREFIX}{self.name}"
        )

    def legal_holds_of_others(self) -> tuple[LegalHold, ...]:
        """Return the holds of the other homes, before anything is deleted.

        Raises:
            RetryableError: what one says cannot be read, or one never said any.
        """
        if untold := self.untold():
            raise RetryableError(
                f"home {untold[0]} of this lake never told its legal holds, so nothing may be deleted: start its "
                f"governor, with the same version as here, or `headrace lake forget {untold[0]}` if it is gone"
            )
        return tuple(hold for one in self.others() for hold in one.legal_holds)

    def untold(self) -> tuple[str, ...]:
        """Return the other homes that govern into this lake and never told their holds, in order."""
        notes = self._notes.names("")
        govern = {
            note.removesuffix(end) for note in notes for end in _GOVERNS if note.endswith(end)
        }
        told = {note.removeprefix(_PREFIX) for note in notes if note.startswith(_PREFIX)}
        return tuple(sorted(govern - told - {self.name, ""}))

    def with_another_key(self) -> tuple[HomeNote, ...]:
        """Return the homes that name people by another key than this one: no erasure by name reaches their rows."""
        return tuple(one for one in self.others() if one.people_key != self._people_key)

    def forget(self, name: str) -> HomeNote | None:
        """Remove what a home said, and return it; None where it said nothing that could be read.

        The notes by which it is known to govern go, too. If its governor still runs, it writes them again; then
        nothing is deleted until it tells its holds.

        Raises:
            ConfigurationError: there is no such home.
        """
        notes = {f"{_PREFIX}{name}", *(f"{name}{end}" for end in _GOVERNS)}
        notes &= {*self._notes.names("")}
        if not notes:
            raise ConfigurationError(
                f"no home {name!r} has written to this lake; `headrace lake status` lists them."
            )
        try:
            said = self._read(f"{_PREFIX}{name}")
        except RetryableError:
            said = None
        # Its holds go last: killed before, they count on.
        for note in sorted(notes, key=lambda note: note.startswith(_PREFIX)):
            self._notes.remove(note)
        return said

    def _read(self, note: str) -> HomeNote:
        name = note.removeprefix(_PREFIX)
        try:
            said = json.loads(self._notes.get(note) or b"")
            return HomeNote(
                name,
                datetime.fromisoformat(said["seen_at"]),
                tuple(LegalHold.model_validate(one) for one in said["legal_holds"]),
                said["people_key"],
            )
        except OSError as error:
            raise RetryableError(
                f"what home {name} says of its legal holds cannot be read ({error.strerror or type(error).__name__}), so "
                f"nothing may be deleted: let this home's user read the lake's note _notes/{note}, or "
                f"`headrace lake forget {name}`"
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise RetryableError(
                f"what home {name} says of its legal holds cannot be read ({type(error).__name__}), so nothing may be "
                f"deleted: start its governor, with the same version as here, or `headrace lake forget {name}`"
            ) from None
