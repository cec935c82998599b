"""The home folder of an installation: where each thing lives, made with the least access."""

from dataclasses import dataclass
from pathlib import Path

from trajectory.errors import ConfigurationError
from trajectory.files import make_folders


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one home folder; nothing is created until :meth:`create`."""

    root: Path

    @property
    def settings_file(self) -> Path:
        """``headrace.yaml``"""
        return self.root / "headrace.yaml"

    @property
    def secrets(self) -> Path:
        """Folder of secrets, readable by the owner alone."""
        return self.root / "secrets"

    @property
    def subject_keys(self) -> Path:
        """Keys of data subjects, wrapped; keep it out of long-lived backups (see erasure)."""
        return self.secrets / "subjects.sqlite"

    @property
    def certificates(self) -> Path:
        """Signed certificates of erasures."""
        return self.audit / "certificates"

    @property
    def authority(self) -> Path:
        """Folder of the certificate authority for interception."""
        return self.root / "ca"

    @property
    def client_keys(self) -> Path:
        """Registry of client keys, hashed."""
        return self.root / "keys.json"

    @property
    def spool(self) -> Path:
        """Sealed captures that wait for governance; one folder per gateway process."""
        return self.root / "spool"

    @property
    def held(self) -> Path:
        """Sealed exchanges behind quarantine cases, for ``govern.quarantine_days``."""
        return self.root / "quarantine"

    @property
    def lake(self) -> Path:
        """Delta tables, unless the setting ``lake.path`` names another place."""
        return self.root / "lake"

    @property
    def state(self) -> Path:
        """Checkpoint of the governing process: cursors, ids and keyed hashes, never content."""
        return self.root / "state"

    @property
    def identity(self) -> Path:
        """Name of this installation in the notes that it keeps beside the lake's tables."""
        return self.root / "installation.id"

    @property
    def audit(self) -> Path:
        """Hash-chained audit log."""
        return self.root / "audit"

    @property
    def substrates(self) -> Path:
        """Built substrates, ``<name>/<version>/``."""
        return self.root / "substrates"

    @property
    def runs(self) -> Path:
        """Training runs, ``<run id>/``."""
        return self.root / "runs"

    @property
    def models(self) -> Path:
        """Model registry, ``<name>/<version>/`` and ``<name>/live.json``."""
        return self.root / "models"

    @property
    def artifacts(self) -> Path:
        """Registry of artefacts, ``<name>/<version>/`` and ``<name>/live.json``: the gateway reads it."""
        return self.root / "artifacts"

    @property
    def serving(self) -> Path:
        """Which versions of registered models answer now, and where: what the gateway reads."""
        return self.state / "serving.json"

    @property
    def trials(self) -> Path:
        """Trials of candidates, one file each."""
        return self.state / "trials"

    @property
    def approvals(self) -> Path:
        """Tool calls that wait for a person; what they say is sealed."""
        return self.state / "approvals.sqlite"

    @property
    def histories(self) -> Path:
        """What surrogates stand for in responses that providers keep: sealed, for a short time."""
        return self.state / "histories.sqlite"

    @property
    def awaited(self) -> Path:
        """Ids of people of whom the consent service could not be asked yet, each sealed."""
        return self.state / "awaited.sqlite"

    @property
    def sessions(self) -> Path:
        """Who is signed in to the console: hashes of session ids, names and roles."""
        return self.state / "console.sqlite"

    @property
    def requests(self) -> Path:
        """Acts that wait for a second person, or were done by two."""
        return self.state / "requests"

    @property
    def progress(self) -> Path:
        """How far long work is: a file for each erasure, substrate and training."""
        return self.state / "progress"

    @property
    def policies(self) -> Path:
        """Copies of policy bundles, where two people adopt them."""
        return self.root / "policies"

    @property
    def policy_in_force(self) -> Path:
        """Link to the copy that two people adopted last."""
        return self.policies / "in-force"

    @property
    def logs(self) -> Path:
        """Logs of the processes that ``headrace up`` starts; no personal data."""
        return self.root / "logs"

    @property
    def needs_its_key(self) -> bool:
        """Whether something here was made with the master key: captures, pseudonyms, audit entries."""
        return (
            (self.audit / "audit.jsonl").exists()
            or any(self.state.glob("checkpoint.*"))
            or any(self.spool.glob("*/*.spool"))
        )

    def create(self) -> "Home":
        """Create the folders that are missing, each for the owner alone; return self.

        Raises:
            ConfigurationError: a folder cannot be made.
        """
        folders = (
            *(self.root, self.secrets, self.authority, self.spool, self.lake, self.state),
            *(self.audit, self.substrates, self.runs, self.models, self.artifacts, self.logs),
        )
        for folder in folders:
            try:
                make_folders(folder, 0o700)
            except OSError as error:
                raise ConfigurationError(
                    f"cannot create {folder}: {error.strerror}. "
                    "Give a writable folder with --home or HEADRACE_HOME."
                ) from error
        return self
