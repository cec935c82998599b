"""The governing process: a pipeline with its policy, reloaded when the policy's files change."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from types import FrameType

from evolve.trial_files import has_open
from governance.audit import GOVERNOR, AuditLog
from governance.consent import ConsentLookup
from governance.executor import RedactionExecutor
from governance.governor import Governor
from governance.policy import PolicyBundle, load_bundle
from governance.quality import gate_of
from governance.redact import Redactor, redactor_of, settle
from governance.redact.subject_keys import SubjectKeys
from headrace.app.context import AppContext
from headrace.app.home import Home
from headrace.app.installation import http_tools, spool_reader
from headrace.app.master_key import Secrets, subject_keys_of
from headrace.app.settings import Settings
from headrace.engine import Executor
from headrace.engine.pool import MOST_WORKERS, Pool, PooledRedaction
from headrace.govern.checkpoint import CheckpointStore, installation_name, lacks
from headrace.govern.maintenance import CARRY_TRIALS, MAINTAIN, VERIFY_AUDIT, BackgroundCommand
from headrace.govern.near_duplicates import leave_near, open_near
from headrace.govern.policy_in_force import POLICY_IN_FORCE, POLICY_REFUSED, last_policy
from headrace.govern.quarantine_store import quarantine_of
from headrace.govern.shared_lake import SharedLake
from headrace.govern.source import Source
from headrace.pipeline import DISK_ERRORS, BatchReport, Pipeline
from headrace.services.anchors import LakeWitness
from headrace.services.audit_check import CheckStore
from headrace.services.awaited_people import AwaitedPeople
from headrace.services.dry_run import StoredReference
from headrace.services.waiting_cases import WaitingCases
from lakehouse.lake import Lake
from lakehouse.price_records import RecordedPrices
from trajectory.clock import RoundClock
from trajectory.errors import HeadraceError, RetryableError
from trajectory.plugins import DIALECTS, load_plugins
from trajectory.prices import load_prices

type Report = Callable[[str], None]
type Stamp = tuple[tuple[str, int, int], ...]

_FIRST_TRIES = 5
_RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)


class _ChangingError(Exception):
    """The policy's files changed while a governor was built by them."""


class GovernorSource:
    """Gives the governor for the next batch.

    When a policy file changes, the bundle is loaded anew. Whatever is wrong with the new one is
    reported and noted in the audit log, and the old one stays in force; where only the disk refuses, the
    next batch tries again. At the start a
    broken bundle, or a detector that cannot load, is an error.
    """

    def __init__(
        self,
        bundle: Path,
        lake: Lake,
        secrets: Secrets,
        audit: AuditLog,
        report: Report,
        *,
        home: Home,
        subject_keys: SubjectKeys,
        consents: ConsentLookup | None = None,
        engine: Executor | None = None,
        workers: int = 0,
    ) -> None:
        workers = workers or (os.cpu_count() or 1) - 1
        self._pool = Pool(home, min(workers, MOST_WORKERS))
        self._path = bundle
        self._home = home
        self._subject_keys = subject_keys
        self._consents = consents or lake.consents()
        self._engine = engine
        self._audit = audit
        self._lake = lake
        self._lineages = lake.lineages()
        self._secrets = secrets
        self._report = report
        self._stamp: Stamp | None = None
        self._waiting: Stamp | None = None
        """A state of the files that could not be put in force yet, and was told of."""
        self._governor = self._first()

    def __call__(self) -> Governor:
        """Return the governor in force."""
        stamp = self._look()
        if stamp != self._stamp:
            try:
                self._governor = self._build()
            except _ChangingError:
                return self._governor  # the next batch looks again
            except (RetryableError, *DISK_ERRORS) as error:  # the next batch tries again
                if stamp != self._waiting:
                    self._waiting = stamp
                    self._report(f"the changed policy waits, the old one governs: {error}")
            except (Exception, SystemExit) as error:  # noqa: BLE001 (the old policy goes on governing)
                self._stamp = stamp
                self._refuse(error)
            else:
                self._report("the changed policy is in force")
        return self._governor

    def _refuse(self, error: BaseException) -> None:
        """Say why the changed policy is not in force, here and in the audit log."""
        ours = isinstance(error, HeadraceError)
        why = str(error) if ours else f"{type(error).__name__}; see `headrace policy check`"
        self._report(f"the changed policy is not in force, the old one stays: {why}")
        with suppress(HeadraceError, OSError):  # a log that cannot be written stops the next batch
            self._audit.append(
                actor=GOVERNOR,
                action=POLICY_REFUSED,
                subject=self._in_force,
                detail={"error": type(error).__name__, "problem": why.splitlines()[0]},
            )

    def _first(self) -> Governor:
        """Return the governor to begin with.

        Raises:
            RetryableError: the policy's files change again and again.
        """
        for _ in range(_FIRST_TRIES):
            with suppress(_ChangingError):
                return self._build()
        raise RetryableError(f"{self._path}: the files change while they are read; start again")

    def _build(self) -> Governor:
        """Return a governor by the files as they are.

        Raises:
            _ChangingError: they changed meanwhile; what was read may be part of a file.
        """
        bundle = load_bundle(self._path)
        self._folder = bundle.path
        self._beside = [bundle.path / name for name in bundle.recognizers]
        stamp = self._look()
        if load_bundle(self._path).content_hash != bundle.content_hash:
            raise _ChangingError
        pseudonym_key = self._secrets.derive(b"pseudonym")
        redactor = redactor_of(bundle, pseudonym_key=pseudonym_key, subjects=self._subject_keys)
        settle()
        governor = Governor(
            bundle,
            redactor,
            message_key=self._secrets.derive(b"message"),
            pseudonym_key=pseudonym_key,
            known=self._lake.known_content(),
            consents=self._consents,
            gate=gate_of(bundle, reference=StoredReference(self._lake.query)),
            spread=self._spread(bundle, redactor),
            near=open_near(self._home, bundle.dedup.spec.near_duplicates, self._lake, self._report),
            lineages=self._lineages,
        )
        if self._look() != stamp:
            raise _ChangingError
        # Only now: a bundle whose detectors do not load is not in force.
        self._note_change(bundle)
        self._in_force = bundle.content_hash
        self._stamp = stamp
        leave_near(self._home, bundle.dedup.spec.near_duplicates)
        return governor

    def _spread(self, bundle: PolicyBundle, redactor: Redactor) -> RedactionExecutor | None:
        if self._engine is None:
            return PooledRedaction(self._pool, self._path, bundle, redactor)
        from headrace.engine.redaction import EngineDetection, EngineRedaction

        if bundle.redaction.spec.keys == "subject":
            return EngineDetection(self._engine, str(self._path), bundle, redactor)
        return EngineRedaction(self._engine, str(self._path), bundle)

    def _note_change(self, bundle: PolicyBundle) -> None:
        """Write into the audit log that another policy is in force than the one last noted there."""
        before = last_policy(self._audit)
        if before is None or before.refused or before.in_force != bundle.content_hash:
            self._audit.append(
                actor=GOVERNOR,
                action=POLICY_IN_FORCE,
                subject=bundle.content_hash,
                detail={"before": before.in_force if before else None},
            )

    def _look(self) -> Stamp | None:
        """Return what tells one state of the policy's files from another; None where they cannot be read."""
        found = []
        try:
            for path in sorted({*self._folder.rglob("*"), *self._beside}):
                if path.is_file():
                    status = path.stat()
                    # A file that another one replaced may have its time and size.
                    found.append((str(path), status.st_ctime_ns, status.st_size))
        except OSError:
            return None
        return tuple(found)


def build_pipeline(
    settings: Settings,
    home: Home,
    secrets: Secrets,
    report: Report,
    *,
    engine: Executor | None = None,
) -> Pipeline:
    """Put the pipeline of an installation together; without an engine, all runs in this process."""
    lake = Lake.open(settings.lake.path, options=settings.lake.options)
    witness = LakeWitness(lake.notes(), home.identity)
    audit = AuditLog(home.audit / "audit.jsonl", secrets.derive(b"audit"), witness=witness)
    checkpoints = CheckpointStore(home.state, lake.notes(), name=installation_name(home.identity))

    def behind(batch: int, missing: int) -> None:
        audit.append(
            actor=GOVERNOR, action="lake.behind", subject=str(batch), detail={"missing": missing}
        )
        report(f"error: {lacks(missing, settings.lake.path)}")

    checkpoints.recover(lake, behind, report)
    consents = _consents(lake, settings)
    dialects = (http_tools(settings.gateway.routes), *load_plugins(DIALECTS))
    keys = subject_keys_of(home, secrets)
    parts = {"home": home, "secrets": secrets, "lake": lake, "audit": audit, "subject_keys": keys}
    app = AppContext.made_of(settings, **parts)
    return Pipeline(
        checkpoints=checkpoints,
        source=Source(
            spool_reader(settings, home, secrets),
            lake.query,
            checkpoints,
            assembly_key=secrets.derive(b"assembly"),
            batch_records=settings.govern.batch_records,
            tool_effects=settings.govern.tool_effects,
            dialects=dialects,
            remembered_calls=settings.govern.remembered_calls,
        ),
        governor=GovernorSource(
            settings.policy.folder,
            lake,
            secrets,
            audit,
            report,
            home=home,
            subject_keys=keys,
            consents=consents,
            engine=engine,
            workers=settings.engine.workers,
        ),
        quarantine=quarantine_of(home, secrets),
        lake=lake,
        audit=audit,
        prices=RecordedPrices(lake, load_prices(settings.gateway.prices)),
        waiting=WaitingCases(app, consents, dialects),
        awaited=AwaitedPeople(app, consents),
        others=SharedLake(app, report),
    )


def _consents(lake: Lake, settings: Settings) -> ConsentLookup:
    """Return the registry, with the consent service that the settings name."""
    if not settings.consent.url:
        return lake.consents()
    from headrace.services.consent_service import ServiceConsents

    return ServiceConsents(lake.consents(), settings.consent)


def govern_once(pipeline: Pipeline) -> Iterator[BatchReport]:
    """Carry batches until the spool has nothing finished left."""
    while (report := pipeline.run_batch()) is not None:
        yield report


def govern_until_stopped(
    pipeline: Pipeline, settings: Settings, secrets: Secrets, report: Report
) -> None:
    """Carry batches as they come, and look after the tables and the audit log, until SIGTERM or SIGINT."""
    stop = Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)
    failures = 0
    home, govern = Home(settings.home), settings.govern
    maintenance = BackgroundCommand(home, MAINTAIN, govern.maintenance_seconds, report)
    trials = BackgroundCommand(
        home, CARRY_TRIALS, govern.trial_seconds, report, due=lambda: has_open(home.trials)
    )
    is_due = CheckStore(home, secrets).is_whole_due
    verification = BackgroundCommand(
        home, VERIFY_AUDIT, govern.maintenance_seconds, report, due=is_due
    )
    while not stop.is_set():
        try:
            if maintenance.look():
                leapt = RoundClock(home.state).leap() is not None
                pipeline.tidy(None if leapt else govern.quarantine_days)
            trials.look()
            verification.look()
        except (RetryableError, OSError) as error:  # batches go on without them
            report(f"maintenance was not begun, the next round tries again: {error}")
        try:
            batch = pipeline.run_batch()
        except RetryableError as error:
            pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
            failures += 1
            report(f"batch not written, trying again in {pause:g} s: {error}")
            stop.wait(pause)
            continue
        failures = 0
        if batch is None or not batch.is_full:
            stop.wait(settings.govern.interval_seconds)
    try:
        pipeline.settle()
    except RetryableError as error:
        report(f"stopped; the next start reads the last batches of the spool again: {error}")
    maintenance.stop()
    trials.stop()
    verification.stop()
