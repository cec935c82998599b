"""Erasure of a person: rows, history, keys and derived state; audited, and certified at the end."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from governance.audit import GOVERNOR
from headrace.app.context import AppContext
from headrace.app.log import log
from headrace.govern.near_duplicates import sweep_near
from headrace.govern.spool_expiry import sealed_captures
from headrace.services.consent import pseudonyms_of
from headrace.services.holds import holds_of
from headrace.services.homes import Homes
from headrace.services.progress_store import ERASURE, progress_of
from headrace.services.quarantine import QuarantineErasure, drop_held
from headrace.services.seen_erasures import DoneErasure, SeenErasures
from lakehouse.erasure.erase import RemovalReport, erase_subject, erasures_of
from proxy.inline.kept_histories import KeptHistories
from train.registry.artifacts import ArtifactRegistry
from train.registry.versions import ModelRegistry
from train.runs.folders import sweep as sweep_runs
from trajectory.canonical import JsonValue
from trajectory.errors import ConfigurationError
from trajectory.files import READABLE, make_folders, replace_file
from trajectory.portable import PSEUDONYM

type Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """Whom to erase, and on whose word."""

    tenant: str
    names: Sequence[str]
    """As data has them, or their pseudonyms."""
    actor: str
    reference: str | None = None
    """Ticket of the request; no personal data."""
    people: Sequence[tuple[str, ...]] = ()
    """Each person's pseudonyms, where they are known already."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """Result of an erasure."""

    report: RemovalReport
    keys_destroyed: int
    quarantine: QuarantineErasure
    certificate: Path


def erasure_of(app: AppContext, request: ErasureRequest) -> tuple[dict[str, JsonValue], str]:
    """Return what an erasure does as it may be written down, and whom it takes: people by pseudonym.

    Raises:
        ConfigurationError: a name is empty or a pattern.
    """
    people = _pseudonyms(app, request)
    given: dict[str, JsonValue] = {
        "tenant": request.tenant,
        "people": [[*person] for person in people],
        "reference": request.reference,
    }
    return given, ", ".join(person[0] for person in people)


def preview(app: AppContext, request: ErasureRequest) -> RemovalReport:
    """Tell what an erasure would take; nothing is changed."""
    pseudonyms = [one for each in _pseudonyms(app, request) for one in each]
    holds = holds_of(app)
    return erase_subject(
        app.lake, request.tenant, pseudonyms, reference=None, dry_run=True, holds=holds
    )


def erase_person(app: AppContext, request: ErasureRequest, progress: Progress) -> Erasure:
    """Erase a person for good; where a legal hold keeps rows, the person's keys stay too.

    It counts as done when its certificate is written. One that was killed before is ended by the next
    of the same person, whose certificate names it.

    Raises:
        ConfigurationError: a name is empty or a pattern; nothing was erased.
    """
    people = _pseudonyms(app, request)
    whom = ", ".join(person[0] for person in people)
    known = progress_of(app).recorded(ERASURE, whom, who=request.actor, tenant=request.tenant)
    with known as keep:

        def advance(done: int, total: int) -> None:
            keep("rows", done, total)
            progress(done, total)

        done = _erased(app, request, people, advance)
        keep("certificate", 1, 1)
    return done


def _erased(
    app: AppContext, request: ErasureRequest, people: list[tuple[str, ...]], progress: Progress
) -> Erasure:
    pseudonyms = list(dict.fromkeys(one for person in people for one in person))
    _audit_request(app, request, pseudonyms)
    for registry in _registries(app):
        registry.end_killed()
    # First: erasing takes cases away, by which the sealed content behind them is found.
    before = drop_held(app, request.tenant, request.actor, "erasure")
    earlier = erasures_of(app.lake, request.tenant, pseudonyms)
    finished: list[Erasure] = []
    seen = SeenErasures(app.home.secrets, app.lake.query)

    def finish(report: RemovalReport) -> Sequence[str]:
        sweep_near(app.home, app.lake)
        sweep_runs(app.lake, app.home.runs)
        forgotten = ArtifactRegistry(app.home.artifacts, source=app.lake).sweep()
        on_hold = _on_hold(people, report)
        gone = [one for one in pseudonyms if one not in on_hold]
        histories = _forget_histories(app, gone)
        keys = app.subject_keys.destroy(gone)
        # A batch may have held something meanwhile, whose case went with the rows.
        since = drop_held(app, request.tenant, request.actor, "erasure")
        quarantine = QuarantineErasure(before.dropped + since.dropped, since.kept)
        _audit_end(app, request, report, quarantine, keys)
        certificate = _certify(
            app,
            report,
            {
                "tenant": request.tenant,
                "subjects": [*pseudonyms],
                "reference": request.reference,
                "subject_keys_destroyed": keys,
                "subjects_under_legal_hold": [*sorted(on_hold)],
                "held_exchanges_dropped": quarantine.dropped,
                "held_exchanges_under_legal_hold": quarantine.kept,
                "sealed_captures": sealed_captures(app.settings, app.home),
                "erasures_before": [*earlier],
                "provider_histories_removed": histories,
                "artifact_facts_removed": forgotten.facts,
                "artifacts_changed": [*forgotten.versions],
                "other_homes": [one.name for one in Homes.of(app).others()],
            },
        )
        seen.add(report.removal_id)
        finished.append(Erasure(report, keys, quarantine, certificate))
        return sorted(on_hold)

    erase_subject(
        app.lake,
        request.tenant,
        pseudonyms,
        reference=request.reference,
        progress=progress,
        holds=holds_of(app),
        finish=finish,
    )
    return finished[0]


def carry_out(app: AppContext, erasure: DoneErasure) -> None:
    """Do on this home's keys and sealed copies what an erasure did that another home of the lake ran.

    The same call may be made again after it was killed.
    """
    quarantine = drop_held(app, erasure.tenant, GOVERNOR, "erasure")
    sweep_near(app.home, app.lake)
    sweep_runs(app.lake, app.home.runs)
    ArtifactRegistry(app.home.artifacts, source=app.lake).sweep()
    histories = _forget_histories(app, erasure.gone)
    keys = app.subject_keys.destroy(erasure.gone)
    app.audit.append(
        actor=GOVERNOR,
        action="erasure.carried_out",
        subject=erasure.erasure_id,
        detail={
            "tenant": erasure.tenant,
            "keys_destroyed": keys,
            "held_exchanges_dropped": quarantine.dropped,
            "held_exchanges_under_legal_hold": quarantine.kept,
            "provider_histories_removed": histories,
        },
    )


def _forget_histories(app: AppContext, pseudonyms: Sequence[str]) -> int | str:
    """Delete what surrogates stand for in responses that name these people; return of how many."""
    path = app.home.histories
    histories = KeptHistories(path, app.secrets.derive(b"inline"), seconds=0)
    try:
        count = histories.forget(pseudonyms)
    finally:
        histories.close()
    if count is None:
        log(
            f"warning: {path} was damaged, and nobody can tell whom it named: it is deleted. Who goes on with what a "
            "provider keeps sends the whole conversation once more"
        )
        return "all: the file was damaged"
    return count


def _registries(app: AppContext) -> tuple[ModelRegistry, ArtifactRegistry]:
    return (
        ModelRegistry(app.home.models, source=app.lake),
        ArtifactRegistry(app.home.artifacts, source=app.lake),
    )


def _audit_request(app: AppContext, request: ErasureRequest, pseudonyms: Sequence[str]) -> None:
    app.audit.append(
        actor=request.actor,
        action="erasure.requested",
        subject=",".join(pseudonyms),
        detail={"tenant": request.tenant, "reference": request.reference},
    )


def _on_hold(people: Sequence[Sequence[str]], report: RemovalReport) -> set[str]:
    """Return every pseudonym of the people of whom a legal hold keeps rows."""
    held = report.held_subjects
    return {one for person in people if not {*person}.isdisjoint(held) for one in person}


def _audit_end(
    app: AppContext,
    request: ErasureRequest,
    report: RemovalReport,
    quarantine: QuarantineErasure,
    keys_destroyed: int,
) -> None:
    app.audit.append(
        actor=request.actor,
        action="erasure.done",
        subject=report.removal_id,
        detail={
            "tenant": request.tenant,
            "rows": dict(report.rows),
            "files": report.files,
            "under_legal_hold": report.held,
            "keys_destroyed": keys_destroyed,
            "held_exchanges_dropped": quarantine.dropped,
            "held_exchanges_under_legal_hold": quarantine.kept,
        },
    )


def _certify(app: AppContext, report: RemovalReport, said: dict[str, JsonValue]) -> Path:
    """Write the signed certificate of an erasure and return where it is."""
    head = app.audit.head()
    certificate = app.certifier.certificate(
        {
            **said,
            "erasure": report.removal_id,
            "erased_at": datetime.now(UTC).isoformat(),
            "trajectories": len(report.reach.trajectories),
            "under_legal_hold": report.held,
            "rows": dict(report.rows),
            "files_removed": report.files,
            "killed_erasures_ended": [*report.ended],
            "substrates_marked_stale": [*report.reach.substrates],
            "models_trained_on_them": [*report.reach.models],
            "audit_anchor": f"{head.sequence}:{head.entry_hash}",
        }
    )
    make_folders(app.home.certificates, 0o700)
    path = app.home.certificates / f"{report.removal_id}.json"
    replace_file(path, json.dumps(certificate, indent=2).encode() + b"\n", READABLE)
    return path


def check_names(names: Sequence[str]) -> None:
    """Refuse names that are nobody's.

    Raises:
        ConfigurationError: there is none, or one is empty or a pattern.
    """
    if not names:
        raise ConfigurationError("name the person: headrace erase SUBJECT, or --file FILE.")
    for number, name in enumerate(names, start=1):
        if not name.strip() or "*" in name:
            raise ConfigurationError(
                f"name {number} of {len(names)} is empty or a pattern: give each person as data has "
                "them (or the pseudonym subject_…). Nothing was erased."
            )


def _pseudonyms(app: AppContext, request: ErasureRequest) -> list[tuple[str, ...]]:
    if request.people:
        return list(request.people)
    check_names(request.names)
    if any(not PSEUDONYM.fullmatch(name.strip()) for name in request.names):
        _refuse_other_keys(app)
    return [pseudonyms_of(app.secrets, request.tenant, name) for name in request.names]


def _refuse_other_keys(app: AppContext) -> None:
    """Refuse an erasure by name where some rows of the lake name people by another key.

    Raises:
        ConfigurationError: there is such a home; nothing was erased.
    """
    if others := Homes.of(app).with_another_key():
        names = ", ".join(one.name for one in others)
        raise ConfigurationError(
            f"home {names} of this lake names people by another master key, so its rows of this person would stay. "
            "Homes that share a lake need one master key; until then give the person's pseudonyms (subject_…) of "
            "every home. `headrace lake forget` is for a home that is gone. Nothing was erased."
        )
