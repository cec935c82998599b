"""The store of subject keys of an installation."""

from typing import TYPE_CHECKING

from headrace.app.home import Home
from headrace.app.master_key import Secrets

if TYPE_CHECKING:
    from governance.redact.subject_keys import FileSubjectKeys


def subject_keys_of(home: Home, secrets: Secrets) -> "FileSubjectKeys":
    """Open the store, wrapped under a key derived from the master key."""
    from governance.redact.subject_keys import FileSubjectKeys

    return FileSubjectKeys(home.subject_keys, secrets.derive(b"subject-keys"))
