"""Privacy: what a person agreed to, which holds count, what was erased with which proof, and the audit log.

A person's own value is sent with POST, so that it stands in no URL and no log.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from governance.certificates import read_certificate, verified
from governance.records import AuditRecord
from headrace.app.context import AppContext
from headrace.app.output import moment
from headrace.console.page import Page, PageRequest
from headrace.console.pages.requests import begin
from headrace.console.users import ADMIN, PRIVACY
from headrace.services.acts import ERASE
from headrace.services.audit_check import check_new, check_whole
from headrace.services.consent import pseudonyms_of, record_consent
from headrace.services.erasure import ErasureRequest, check_names, erasure_of, preview
from headrace.services.four_eyes import ask
from headrace.services.request_store import APPROVED, ActRequest
from headrace.services.substrates import mark_stale_substrates, note_stale_serving
from proxy.clients.keys import PURPOSES
from trajectory.errors import ConfigurationError, IntegrityError

_SHOWN = 50
"""Entries of the audit log, and certificates, that a page shows."""
_VERIFY = "verify"
"""What the form says that wants the whole audit log checked."""
_CONSENTS = """
SELECT purpose, count(*) FILTER (granted) AS granted, count(*) FILTER (NOT granted) AS withdrawn
FROM (SELECT tenant_id, subject, purpose, granted FROM consents
      QUALIFY row_number() OVER (PARTITION BY tenant_id, subject, purpose ORDER BY recorded_at DESC) = 1)
GROUP BY purpose ORDER BY purpose
"""


def _privacy(asked: PageRequest) -> Mapping[str, Any]:
    from governance.policy import load_bundle

    running = asked.console.running
    person = _person(asked) if asked.sent and asked.sent.get("do") != _VERIFY else None
    everything = asked.reads_every_tenant
    bundle = load_bundle(running.settings.policy.folder)
    holds = bundle.retention.spec.legal_holds
    return {
        "person": person,
        "purposes": PURPOSES,
        "consents": asked.rows(_CONSENTS),
        "holds": [
            {
                "name": one.name,
                "reference": one.reference,
                "match": one.match.model_dump(exclude_unset=True),
            }
            for one in holds
        ]
        if everything
        else [],
        "certificates": _certificates(asked),
        "audit": _audit(asked) if everything else None,
    }


def _person(asked: PageRequest) -> Mapping[str, Any]:
    """Show what is recorded of a person, record more, or tell what an erasure would take."""
    sent, running = asked.sent, asked.console.running
    tenant = sent.get("of", "") if asked.reads_every_tenant else asked.tenant
    subject, reference = sent.get("subject", ""), sent.get("reference", "").strip() or None
    if not tenant:
        raise ConfigurationError("name the tenant whose data it is about")
    check_names([subject])
    would_go: Mapping[str, Any] | None = None
    stale: list[str] | None = None
    made: ActRequest | None = None
    match sent.get("do"):
        case "show":
            pass
        case "grant" | "withdraw" as what:
            chosen = [one for one in PURPOSES if sent.get(one)]
            if not chosen:
                raise ConfigurationError("choose at least one purpose")
            granted, actor = what == "grant", asked.user.name
            record_consent(
                running, tenant, subject, chosen, granted=granted, actor=actor, reference=reference
            )
            if not granted:
                stale = mark_stale_substrates(running)
                note_stale_serving(running, actor)
        case "erase":
            made = _erase(asked, ErasureRequest(tenant, [subject], asked.user.name, reference))
        case "preview":
            request = ErasureRequest(tenant, [subject], asked.user.name, reference)
            report = preview(running, request)
            would_go = {
                "trajectories": len(report.reach.trajectories),
                "rows": {table: count for table, count in report.rows.items() if count},
                "under_legal_hold": report.held,
                "substrates": report.reach.substrates,
                "models": report.reach.models,
            }
        case _:
            raise ConfigurationError(
                "consent is shown, granted or withdrawn; an erasure is looked at, or asked for"
            )
    pseudonyms = pseudonyms_of(running.secrets, tenant, subject)
    asked.note("consent.read", ",".join(pseudonyms), of=tenant)
    entries = running.lake.consents().entries(tenant, pseudonyms)
    return {
        "tenant": tenant,
        "subject": pseudonyms[0],
        "entries": sorted(entries, key=lambda one: one.recorded_at, reverse=True),
        "substrates_now_stale": stale,
        "erasure_would_take": would_go,
        "request": None if made is None else {"request": made.request_id, "status": made.status},
    }


def _erase(asked: PageRequest, request: ErasureRequest) -> ActRequest:
    """Ask for an erasure; it begins at once where policy wants nobody else."""
    if not request.reference:
        raise ConfigurationError("give the ticket or document that asks for the erasure")
    given, who = erasure_of(asked.console.running, request)
    made = ask(
        asked.console.running,
        asked.user,
        ERASE,
        given,
        subject=who,
        why=request.reference,
        tenant=request.tenant,
    )
    if made.status == APPROVED:
        begin(asked, made)
    return made


def _certificates(asked: PageRequest) -> list[Mapping[str, Any]]:
    """Return the certificates of erasures, the latest first, each with whether its signature holds."""
    running = asked.console.running
    files = sorted(
        running.home.certificates.glob("*.json"), key=lambda one: one.stat().st_mtime, reverse=True
    )
    found: list[Mapping[str, Any]] = []
    for file in files:
        try:
            said: Mapping[str, Any] = verified(read_certificate(file), running.certifier.public_key)
            row = {"erasure": said.get("erasure"), "holds": True, **said}
        except (IntegrityError, ConfigurationError) as error:
            row = {"erasure": file.stem, "holds": False, "problem": str(error)}
        if asked.reads_every_tenant or row.get("tenant") == asked.tenant:
            found.append(row)
        if len(found) == _SHOWN:
            break
    return found


def _audit(asked: PageRequest) -> Mapping[str, Any]:
    """Return the latest entries of the audit log, and how far it was found intact.

    A look checks what is new; the whole log is checked where somebody asks for it.
    """
    running = asked.console.running
    check = (check_whole if asked.sent.get("do") == _VERIFY else check_new)(running)
    head = check.place.head
    return {
        "entries": head.sequence,
        "anchor": f"{head.sequence}:{head.entry_hash}",
        "problem": check.problem,
        "checked_at": moment(check.at),
        "whole_checked_at": moment(check.whole_at),
        "latest": _latest(running),
    }


def _latest(running: AppContext) -> list[AuditRecord]:
    with suppress(IntegrityError):  # told above
        return running.audit.latest(_SHOWN)[::-1]
    return []


PAGES = (
    Page(
        path="/privacy",
        title="Privacy",
        roles=frozenset({PRIVACY, ADMIN}),
        senders=frozenset({PRIVACY, ADMIN}),
        template="privacy.html",
        data=_privacy,
    ),
)
