"""Context of a command or service: settings, home folder, secrets and the lake."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

import typer

from headrace.app.home import Home
from headrace.app.master_key import Secrets, key_is_there, load_secrets
from headrace.app.output import note
from headrace.app.setting_sources import load_settings
from headrace.app.settings import Settings
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from governance.audit import AuditLog
    from governance.certificates import Certifier
    from governance.redact.subject_keys import FileSubjectKeys
    from headrace.console.users import User
    from lakehouse.lake import Lake


@dataclass(frozen=True)
class AppContext:
    """One installation, each part opened when it is asked for."""

    home_option: Path | None
    debug: bool

    @cached_property
    def settings(self) -> Settings:
        """The settings of this run, each knowing where it came from."""
        return load_settings(home=self.home_option)

    @cached_property
    def home(self) -> Home:
        """The home folder."""
        return Home(self.settings.home)

    @cached_property
    def secrets(self) -> Secrets:
        """Derived keys; made on first use of a fresh home.

        Raises:
            ConfigurationError: the master key is gone, another one, malformed, or others could read it.
        """
        if self.home.needs_its_key and not key_is_there(self.home.secrets):
            raise ConfigurationError(
                f"the master key {self.home.secrets / 'master.key'} is gone, and what lies in "
                f"{self.home.root} was made with it: put it back from your backup, or set "
                "HEADRACE_MASTER_KEY. Another key would not open the spool, find people or verify "
                "the audit log; to begin anew, give another home."
            )
        secrets = load_secrets(self.home.secrets, create=True)
        refuse_another_key(self.home, secrets)
        return secrets

    @cached_property
    def lake(self) -> "Lake":
        """The trajectory lake; made when there is none, only read where nothing can be written."""
        from lakehouse.lake import Lake

        if not self.home.root.exists():
            note(
                f"no installation in {self.home.root} so far; an empty one is made. "
                "Another is named with --home or HEADRACE_HOME."
            )
        if "://" not in self.settings.lake.path:
            folder = Path(self.settings.lake.path)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):  # rights to read, or a disk that is mounted so
                return Lake.read(self.settings.lake.path)
        return Lake.open(self.settings.lake.path, options=self.settings.lake.options)

    @cached_property
    def audit(self) -> "AuditLog":
        """The hash-chained audit log."""
        from governance.audit import AuditLog

        return AuditLog(self.home.audit / "audit.jsonl", self.secrets.derive(b"audit"))

    @cached_property
    def user(self) -> "User":
        """Who runs this command: a process of Headrace, who signed in with `headrace login`, else the user of this machine."""
        from headrace.console.login import user_of

        return user_of(self)

    @contextmanager
    def of_this_thread(self) -> Iterator["AppContext"]:
        """Yield the same installation opened anew: its store of keys belongs to the thread that opened it."""
        fresh = AppContext(self.home_option, self.debug)
        fresh.__dict__["settings"] = self.settings
        try:
            yield fresh
        finally:
            if "subject_keys" in fresh.__dict__:
                fresh.subject_keys.close()

    @classmethod
    def made_of(cls, settings: Settings, **parts: object) -> "AppContext":
        """Return an installation whose ``parts``, by the names of its properties, are open already."""
        made = cls(settings.home, debug=False)
        made.__dict__.update(parts, settings=settings)
        return made

    def note_reading(self, subject: str, command: str, action: str = "content.read") -> None:
        """Write into the audit log that a person is about to read what people or agents said.

        Who may only read the home folder cannot; that person is told.
        """
        if self.home.root.exists() and not os.access(self.home.root, os.W_OK):
            note(
                f"{self.home.root} cannot be written: its audit log does not know of this reading."
            )
            return
        self.audit.append(
            actor=self.user.name, action=action, subject=subject[:200], detail={"command": command}
        )

    @cached_property
    def subject_keys(self) -> "FileSubjectKeys":
        """The keys of data subjects."""
        from headrace.app.master_key import subject_keys_of

        return subject_keys_of(self.home, self.secrets)

    @cached_property
    def certifier(self) -> "Certifier":
        """Signs certificates of erasures."""
        from governance.certificates import Certifier

        return Certifier(self.secrets.derive(b"certificates"))

    @classmethod
    def of(cls, context: typer.Context) -> "AppContext":
        """Return what the root command made."""
        return cast(AppContext, context.find_root().obj)


def refuse_another_key(home: Home, secrets: Secrets) -> None:
    """Refuse a master key that the home was not made with: it would find nobody, and say so of everybody.

    Raises:
        ConfigurationError: the audit log was made with another one.
    """
    from governance.audit import AuditLog

    if AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit")).is_of_another_key():
        raise ConfigurationError(
            f"this master key is not the one that {home.root} was made with: put that one back "
            f"({home.secrets / 'master.key'}, or HEADRACE_MASTER_KEY, which goes before it). Another key "
            "does not open the spool, find people or verify the audit log."
        )
