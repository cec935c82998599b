"""Policy: the bundle in force, its tests, and a playground: what would it make of this text, or of yesterday.

Nothing is changed here: an edit is tried in a copy, and the repository stays the source. A text that is
pasted is judged in this process and kept nowhere.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from headrace.console.page import Download, Page, PageRequest
from headrace.console.pages.trajectories import parts_of
from headrace.console.users import ADMIN, PRIVACY, ROLES
from trajectory.documents.source import parse_documents
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from governance.policy import PolicyBundle
    from governance.redact import Redactor

_TEXTS = 500
"""Stored messages that a dry run redacts again at most."""
_SAID = """
SELECT role, parts FROM conversation WHERE step_id = $id ORDER BY position LIMIT 200
"""


def _policy(asked: PageRequest) -> Mapping[str, Any]:
    from governance.policy import load_bundle

    bundle = load_bundle(asked.console.running.settings.policy.folder)
    files = _files(bundle.path)
    chosen = asked.query.get("file", "redaction.yaml")
    if chosen not in files:
        chosen = min(files)
    sent = asked.sent
    data: dict[str, Any] = {
        "bundle": bundle.path.name,
        "content_hash": bundle.content_hash,
        "files": files,
        "file": chosen,
        "edit": sent.get("edit", files[chosen]),
        "text": sent.get("text", ""),
        "step": sent.get("step", ""),
        "tests": None,
        "changes": None,
        "tried": None,
        "dry_run": None,
    }
    if not sent:
        return data
    with _edited(bundle, chosen, sent.get("edit")) as edited:
        data |= {"changes": _changes(bundle, edited)}
        match sent.get("do"):
            case "test":
                return data | {"tests": _tests(edited)}
            case "try":
                return data | {"tried": _tried(asked, edited)}
            case "dry-run":
                return data | {"dry_run": _dry_run(asked, edited)}
    raise ConfigurationError("a bundle is tried, tested, or run on yesterday")


def _exported(asked: PageRequest) -> Download:
    """Return a file of the bundle, or the edit of it that was sent, to be put into the repository."""
    from governance.policy import load_bundle

    files = _files(load_bundle(asked.console.running.settings.policy.folder).path)
    name = asked.query.get("file", "redaction.yaml")
    if name not in files:
        raise HTTPException(404)
    text = asked.sent.get("edit", files[name]).replace("\r\n", "\n")
    return Download(name, "application/yaml", text.encode())


def _files(folder: Path) -> dict[str, str]:
    found = sorted(one for one in folder.glob("*.y*ml") if not one.name.endswith(".test.yaml"))
    return {one.name: one.read_text(encoding="utf-8") for one in found}


@contextmanager
def _edited(bundle: "PolicyBundle", file: str, text: str | None) -> Iterator["PolicyBundle"]:
    """Give a bundle with one file edited, from a folder of its own that goes afterwards.

    Raises:
        PolicyError: the edit is wrong; each problem with its file and line.
    """
    from governance.policy import load_bundle

    with tempfile.TemporaryDirectory(prefix="headrace-policy-") as place:
        folder = Path(place) / bundle.path.name
        shutil.copytree(bundle.path, folder)
        if text is not None:
            written = text.replace("\r\n", "\n")
            _refuse_other_files(written, file)
            (folder / file).write_text(written, encoding="utf-8")
        yield load_bundle(folder)


def _refuse_other_files(text: str, file: str) -> None:
    """Refuse an edit that names files outside the bundle: its errors would tell what stands in them.

    Raises:
        ConfigurationError: it does, or is no YAML.
    """
    for document in parse_documents(text, file):
        spec = document.value.get("spec") if isinstance(document.value, dict) else None
        names = spec.get("recognizers") if isinstance(spec, dict) else None
        for name in names if isinstance(names, list) else ():
            path = Path(str(name))
            if path.is_absolute() or ".." in path.parts:
                raise ConfigurationError("recognizers: an edit names files of its own folder alone")


def _changes(bundle: "PolicyBundle", edited: "PolicyBundle") -> list[Any]:
    from governance.policy.diff import diff_bundles

    return diff_bundles(bundle, edited)


def _tests(bundle: "PolicyBundle") -> list[Mapping[str, Any]]:
    from governance.trial import run_policy_tests
    from headrace.app.action_trial import ActionTrial

    return [
        {
            "name": one.name,
            "place": f"{one.file}:{one.line}",
            "passed": one.passed,
            "problems": list(one.problems),
        }
        for one in run_policy_tests(bundle, _redactor, calls=ActionTrial(bundle))
    ]


def _tried(asked: PageRequest, bundle: "PolicyBundle") -> Mapping[str, Any]:
    """Return what a bundle makes of a call: each rule's verdict, and each message as it is stored."""
    from governance.quality import RowGate
    from governance.trial import explain_exchange
    from governance.trial.run import TRIAL_KEY, judge_given

    given = _given(asked)
    redactor = _redactor(bundle, TRIAL_KEY)
    batch = judge_given(bundle, redactor, RowGate(bundle.quality.spec), given)
    found = explain_exchange(bundle, redactor, given)
    messages = [{"role": one.role, "parts": parts_of(one.parts)} for one in batch.messages]
    return {"decision": found.decision, "verdicts": found.verdicts, "messages": messages}


def _given(asked: PageRequest) -> Any:
    """Return the call to judge: a stored step's messages, which are redacted already, or a pasted text."""
    from governance.trial.cases import CaseCall, GivenMessage

    step, text = asked.sent.get("step", "").strip(), asked.sent.get("text", "")
    purposes: Any = ("debug", "eval", "train_sft")
    if not step:
        asked_for = GivenMessage(role="user", content=text or "hello")
        return CaseCall(purposes=purposes, messages=(asked_for,))
    rows = asked.rows(_SAID, id=step)
    if not rows:
        raise HTTPException(404)
    asked.note("content.read", step[:200], page="/policy")
    messages = [
        GivenMessage(role=row["role"], content=_text(row["parts"]))
        for row in rows
        if row["role"] in ("system", "developer", "user", "assistant")
    ]
    return CaseCall(purposes=purposes, messages=tuple(messages))


def _text(parts: str) -> str:
    return "\n".join(str(one.get("text", "")) for one in parts_of(parts) if isinstance(one, dict))


def _dry_run(asked: PageRequest, bundle: "PolicyBundle") -> Mapping[str, Any]:
    from governance.trial.dry_run import DryRun
    from headrace.app.installation import gateway_config
    from headrace.services.dry_run import gather
    from proxy.clients.keys import KeyRegistry

    running = asked.console.running
    until = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    redactor = _redactor(bundle, running.secrets.derive(b"dry-run"))
    run = DryRun(bundle, redactor, running.lake.consents(), now=datetime.now(UTC))
    keys = KeyRegistry.load(gateway_config(running.settings, running.home).keys).list()
    gather(
        running.lake.query,
        run,
        since=until - timedelta(days=1),
        until=until,
        key_purposes={key.key_id: key.purposes for key in keys},
        most_texts=_TEXTS,
    )
    return {
        "day": until.date() - timedelta(days=1),
        "steps": run.steps,
        "messages": run.texts,
        "changes": run.changes(),
        "not_judged": run.not_judged(),
    }


def _redactor(bundle: "PolicyBundle", key: bytes) -> "Redactor":
    from governance.redact import redactor_of
    from governance.redact.subject_keys import MemorySubjectKeys

    return redactor_of(bundle, pseudonym_key=key, subjects=MemorySubjectKeys())


PAGES = (
    Page(
        path="/policy",
        title="Policy",
        roles=ROLES,
        senders=frozenset({PRIVACY, ADMIN}),
        template="policy.html",
        downloads={"yaml": _exported},
        data=_policy,
        every_tenant=True,
    ),
)
