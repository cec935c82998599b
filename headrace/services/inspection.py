"""Looks for personal data and secrets in the texts of artefacts, as the policy in force redacts captures."""

from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from train.inspection.inspection import FindPersonalData, plain_data

if TYPE_CHECKING:
    from governance.redact import Redactor
    from headrace.app.context import AppContext


def personal_data_of(app: "AppContext") -> FindPersonalData:
    """Return what finds personal data in a text; it loads its detectors on first use."""

    def find(text: str) -> Collection[str]:
        from governance.policy import load_bundle
        from governance.redact.report import RedactionScope

        bundle = load_bundle(app.settings.policy.folder)
        redactor = _redactor(app.settings.policy.folder, bundle.content_hash)
        done = redactor.redact_text(
            text, scope=RedactionScope("artefact", "artefact", linked=False)
        )
        return {*done.report.counts, *plain_data(text)}

    return find


@lru_cache(maxsize=1)
def _redactor(bundle: Path, _content_hash: str) -> "Redactor":
    from governance.policy import load_bundle
    from governance.redact import redactor_of
    from governance.redact.subject_keys import MemorySubjectKeys

    # What it writes is thrown away, so no key of the installation is needed.
    return redactor_of(load_bundle(bundle), pseudonym_key=bytes(32), subjects=MemorySubjectKeys())
