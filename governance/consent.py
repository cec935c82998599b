"""Consent: which purposes a call may serve; grants add up, whatever takes away wins, unknown means no."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from governance.policy.consent import TRAINING, ConsentSpec, Grant, Purpose
from governance.policy.selector import Facts
from trajectory.errors import WorkError
from trajectory.exchange import Headers

EVERY_SUBJECT = "*"
"""Stands in the registry for all subjects of a tenant."""
CONVERSATION = "consent:conversation:"
"""Begins the reason that names a purpose which a request lost for the whole conversation: by its headers, by the
document that it comes from, or with all others, since somebody whom it concerns took them back or was erased.
"""
AWAITS_ANSWER = "consent:awaits-answer"
"""Why a call is held of whose end user nobody could be asked; it is judged again once there is an answer."""
AWAITS_USER = AWAITS_ANSWER + ":"
"""Begins the reason of a stored step whose user was told late, and of whom nobody could be asked yet. The decision
that holds once there is an answer ends it.
"""
AWAITS_CONVERSATION = "consent:awaits-conversation"
"""Why a call is held that comes after such a call in its conversation, and may have to go with it."""
NO_ANSWER = "consent:no-answer"
"""Why a call is left out that comes after one of whose end user nobody can be asked any more."""
ERASED, _BY_SUBJECT = "consent:erased", "consent:withdrawn:subject:"
_GPC = frozenset({"1", '"1"', "?1", "true"})
"""What `sec-gpc` says where it says anything; proxies merge and rewrite it."""


@dataclass(frozen=True, slots=True)
class ConsentEntry:
    """One grant or withdrawal in the registry; the latest of a subject and purpose counts."""

    tenant_id: str
    subject: str
    """Keyed pseudonym of a person, or :data:`EVERY_SUBJECT`."""
    purpose: str
    granted: bool
    recorded_at: datetime
    reference: str | None = None
    """Where the proof lies; no personal data."""
    at_capture: bool = False
    """Said by a service that is asked when a call is governed: nobody who looks later knows of it."""


class ConsentLookup(Protocol):
    """The registry of consent; the lakehouse ships the durable implementation."""

    def entries(self, tenant_id: str, subjects: Collection[str]) -> Sequence[ConsentEntry]:
        """Return all entries of these subjects and of :data:`EVERY_SUBJECT`, in any order."""
        ...

    def erased_at(self, tenant_id: str, names: Collection[str]) -> datetime | None:
        """Return when one of these subjects last asked to be erased, or a trajectory of these went with
        somebody who did; None when neither.
        """
        ...

    def erased_with(self, tenant_id: str, trajectories: Collection[str]) -> tuple[str, ...]:
        """Return the erased subjects with whom these trajectories went."""
        ...

    def refresh(self) -> None:
        """Learn what was recorded meanwhile; governance asks for it before each batch."""
        ...


@runtime_checkable
class EndUserLookup(Protocol):
    """A registry that has to be told of an end user before it can answer."""

    def ask(self, tenant_id: str, end_user: str, subject: str) -> None:
        """Learn what an end user agreed to.

        Raises:
            NoAnswerError: that cannot be learned now; the call must be held back.
        """
        ...


class NoAnswerError(WorkError):
    """Nobody could be asked what an end user agreed to."""


def ask_about(
    lookup: ConsentLookup, tenant_id: str, people: Iterable[str], pseudonym: Callable[[str], str]
) -> None:
    """Let a registry that has to be told of people learn what each of these agreed to.

    Args:
        lookup: the registry.
        tenant_id: whose call names them.
        people: ids as the call has them.
        pseudonym: names one of them as the registry does.

    Raises:
        NoAnswerError: that cannot be learned of one of them now.
    """
    if isinstance(lookup, EndUserLookup):
        for one in people:
            lookup.ask(tenant_id, one, pseudonym(one))


class MemoryConsents:
    """A registry in memory; for tests, dry runs and policies tried by hand."""

    def __init__(
        self,
        entries: Sequence[ConsentEntry] = (),
        erasures: Mapping[tuple[str, str], datetime] | None = None,
        went: Mapping[tuple[str, str], Sequence[str]] | None = None,
    ) -> None:
        """Start with what is known.

        Args:
            entries: grants and withdrawals.
            erasures: the moment of each erasure, by tenant and subject or trajectory.
            went: with whom trajectories went, by tenant and trajectory.
        """
        self._entries = list(entries)
        self._erasures = dict(erasures or {})
        self._went = dict(went or {})

    def add(self, entry: ConsentEntry) -> None:
        """Append a grant or withdrawal."""
        self._entries.append(entry)

    def entries(self, tenant_id: str, subjects: Collection[str]) -> Sequence[ConsentEntry]:
        """See :class:`ConsentLookup`."""
        asked = {*subjects, EVERY_SUBJECT}
        return [e for e in self._entries if e.tenant_id == tenant_id and e.subject in asked]

    def erased_at(self, tenant_id: str, names: Collection[str]) -> datetime | None:
        """See :class:`ConsentLookup`."""
        return last_erasure(self._erasures, tenant_id, names)

    def erased_with(self, tenant_id: str, trajectories: Collection[str]) -> tuple[str, ...]:
        """See :class:`ConsentLookup`."""
        return went_with(self._went, tenant_id, trajectories)

    def refresh(self) -> None:
        """See :class:`ConsentLookup`; what was added is known at once."""


def last_erasure(
    erasures: Mapping[tuple[str, str], datetime], tenant_id: str, names: Collection[str]
) -> datetime | None:
    """Return the latest erasure of these subjects and trajectories."""
    found = (erasures.get((tenant_id, name)) for name in names)
    return max((moment for moment in found if moment is not None), default=None)


def went_with(
    went: Mapping[tuple[str, str], Sequence[str]], tenant_id: str, trajectories: Collection[str]
) -> tuple[str, ...]:
    """Return with whom these trajectories went, each once."""
    found = (went.get((tenant_id, name), ()) for name in trajectories)
    return tuple(dict.fromkeys(subject for some in found for subject in some))


@dataclass(frozen=True, slots=True)
class ConsentVerdict:
    """What a call may be used for, and why."""

    purposes: tuple[str, ...]
    """Empty: nothing of the call may be kept."""
    legal_basis: str
    reference: str | None
    reasons: tuple[str, ...]
    refusals: tuple[str, ...] = ()
    """What took the last purpose away, or that there was none."""
    withheld: frozenset[Purpose] = frozenset()
    """What this request or earlier ones lost for the whole conversation."""
    newly_withheld: frozenset[Purpose] = frozenset()
    """What of that this request itself took away."""


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """What consent is judged by."""

    facts: Facts
    key_purposes: tuple[str, ...]
    headers: Headers
    end_user: str | None
    """Keyed pseudonym of the person who used the application, where the client named one."""
    subjects: tuple[str, ...] = ()
    """Keyed pseudonyms of people that the content names."""
    captured_at: datetime | None = None
    """When the call was made, where an erasure that came after it has to be obeyed."""
    withheld: frozenset[Purpose] = frozenset()
    """What earlier requests lost for the conversation that the call carries."""
    trajectories: tuple[str, ...] = ()
    """Those that the call goes on: one may have gone with a person who was erased."""
    allowed: tuple[str, ...] | None = None
    """What the document that the call comes from allows at most; None where nothing says."""


def judge_consent(
    spec: ConsentSpec, lookup: ConsentLookup, request: ConsentRequest
) -> ConsentVerdict:
    """Return the purposes that are granted and that nothing takes away."""
    reasons: list[str] = []
    people = [*request.subjects, *([request.end_user] if request.end_user else [])]
    latest = _latest(lookup.entries(request.facts.tenant, people))
    grants = [grant for grant in spec.grants if grant.match.fits(request.facts)]
    granted = _granted(spec, request, grants, latest, reasons)
    refusals: list[str] = []
    by_request = _taken_by_request(spec, request)
    newly_withheld = _said_at_capture(latest).union(*(taken for taken, _ in by_request))
    withheld = request.withheld | newly_withheld
    taking = [*_taken(spec, request, people, latest), *by_request]
    taking += [({purpose}, CONVERSATION + purpose) for purpose in Purpose if purpose in withheld]
    if _erased(lookup, request, people):
        taking.append((set(Purpose), ERASED))
    for taken, reason in taking:
        if granted & taken:
            refusals.append(reason)
            granted -= taken
    reasons += refusals
    if not granted:  # no row will name these people, and a tool's call may name nobody
        by_people = (taken for taken, reason in taking if reason.startswith((ERASED, _BY_SUBJECT)))
        newly_withheld = newly_withheld.union(*by_people)
        withheld |= newly_withheld
    # Written down whether or not it was granted: later steps that carry this one obey it.
    said = (CONVERSATION + purpose for purpose in Purpose if purpose in withheld)
    reasons += [reason for reason in said if reason not in refusals]
    if not granted:
        reasons.append("consent:no-purpose")
    proof = next((grant for grant in grants if granted & set(grant.purposes)), None)
    return ConsentVerdict(
        purposes=tuple(purpose.value for purpose in Purpose if purpose in granted),
        legal_basis=(proof.legal_basis if proof else spec.key_legal_basis).value
        if granted
        else "none",
        reference=proof.reference if proof else _reference(request, granted, latest),
        reasons=tuple(reasons),
        refusals=() if granted else tuple(refusals or ["consent:no-purpose"]),
        withheld=withheld,
        newly_withheld=newly_withheld,
    )


def withheld_in(reasons: Iterable[str]) -> frozenset[Purpose]:
    """Return what headers took away from a conversation, from the reasons of a decision in it."""
    words = (one.removeprefix(CONVERSATION) for one in reasons if one.startswith(CONVERSATION))
    return frozenset(_known([*words]))


class BatchConsent:
    """Judges the calls of one batch; for calls that name nobody, equal requests are judged once."""

    def __init__(self, spec: ConsentSpec, lookup: ConsentLookup) -> None:
        """Judge by ``spec`` and by what ``lookup`` knows since its last refresh."""
        self._spec = spec
        self._lookup = lookup
        self._told = frozenset(
            {spec.headers.purposes.lower(), spec.headers.opt_out.lower(), "sec-gpc"}
        )
        self._verdicts: dict[object, ConsentVerdict] = {}

    def judge(self, request: ConsentRequest) -> ConsentVerdict:
        """See :func:`judge_consent`."""
        if request.end_user or request.subjects:
            return judge_consent(self._spec, self._lookup, request)
        headers = tuple(one for one in request.headers if one[0].lower() in self._told)
        erased = _erased(self._lookup, request, ())
        asked = (
            request.facts,
            request.key_purposes,
            headers,
            request.allowed,
            request.withheld,
            erased,
        )
        verdict = self._verdicts.get(asked)
        if verdict is None:
            verdict = judge_consent(self._spec, self._lookup, request)
            self._verdicts[asked] = verdict
        return verdict


def taken_by_people(
    spec: ConsentSpec,
    lookup: ConsentLookup,
    tenant_id: str,
    end_user: str | None,
    subjects: Sequence[str],
    captured_at: datetime | None,
) -> list[tuple[set[Purpose], str]]:
    """Return what people take away from a call that is stored already, each with its reason.

    Args:
        spec: the policy.
        lookup: the registry.
        tenant_id: whose call it is.
        end_user: keyed pseudonym of who turned out to have used the application; None where that was known.
        subjects: keyed pseudonyms of others.
        captured_at: when the call was made, where an erasure that came after it has to be obeyed.
    """
    people = [*subjects, *([end_user] if end_user else [])]
    latest = _latest(lookup.entries(tenant_id, people))
    taken = _taken_back(people, latest)
    lost = _said_at_capture(latest)
    taken += [({purpose}, CONVERSATION + purpose) for purpose in Purpose if purpose in lost]
    if end_user is not None:
        taken += _not_granted(spec, end_user, latest)
    if _erased_since(lookup, tenant_id, people, captured_at):
        taken.append((set(Purpose), ERASED))
    return taken


def _erased(lookup: ConsentLookup, request: ConsentRequest, people: Sequence[str]) -> bool:
    """Whether somebody concerned asked to be erased after the call, or its conversation went with somebody.

    It waited in the spool meanwhile. A call that names nobody is told by its conversation alone.
    """
    names = [*people, *request.trajectories]
    return _erased_since(lookup, request.facts.tenant, names, request.captured_at)


def _erased_since(
    lookup: ConsentLookup, tenant_id: str, names: Sequence[str], captured_at: datetime | None
) -> bool:
    if captured_at is None or not names:
        return False
    asked = lookup.erased_at(tenant_id, names)
    return asked is not None and captured_at <= asked


type _Latest = dict[tuple[str, str], ConsentEntry]


def _latest(entries: Sequence[ConsentEntry]) -> _Latest:
    """Return the entry that counts for each subject and purpose; at one moment, the withdrawal."""
    ordered = sorted(entries, key=lambda entry: (entry.recorded_at, not entry.granted))
    return {(entry.subject, entry.purpose): entry for entry in ordered}


def _granted(
    spec: ConsentSpec,
    request: ConsentRequest,
    grants: Sequence[Grant],
    latest: _Latest,
    reasons: list[str],
) -> set[Purpose]:
    granted: set[Purpose] = set()
    if spec.key_purposes and (by_key := _known(request.key_purposes)):
        granted |= by_key
        reasons.append("consent:key")
    for grant in grants:
        granted |= set(grant.purposes)
        reasons.append(f"consent:grant:{grant.name}")
    by_registry = {
        purpose
        for purpose in Purpose
        if (entry := latest.get((EVERY_SUBJECT, purpose))) and entry.granted
    }
    if by_registry - granted:
        reasons.append("consent:registry")
    return granted | by_registry


def _taken(
    spec: ConsentSpec, request: ConsentRequest, people: Sequence[str], latest: _Latest
) -> list[tuple[set[Purpose], str]]:
    """Return what takes purposes away, each with its reason."""
    taken = [
        (set(limit.never), f"consent:limit:{limit.name}")
        for limit in spec.limits
        if limit.match.fits(request.facts)
    ]
    taken += _taken_back((EVERY_SUBJECT, *people), latest)
    return taken + _not_granted(spec, request.end_user, latest)


def _taken_back(people: Iterable[str], latest: _Latest) -> list[tuple[set[Purpose], str]]:
    """Return what these people withdrew."""
    taken: list[tuple[set[Purpose], str]] = []
    for person in dict.fromkeys(people):
        withdrawn = {
            purpose
            for purpose in Purpose
            if (entry := latest.get((person, purpose))) and not entry.granted
        }
        whose = "tenant" if person == EVERY_SUBJECT else "subject"
        taken += [({purpose}, f"consent:withdrawn:{whose}:{purpose}") for purpose in withdrawn]
    return taken


def _said_at_capture(latest: _Latest) -> frozenset[Purpose]:
    """Return what a consent service refuses; later calls of the conversation may name nobody to ask about."""
    return frozenset(
        Purpose(entry.purpose)
        for entry in latest.values()
        if entry.at_capture and not entry.granted
    )


def _not_granted(
    spec: ConsentSpec, end_user: str | None, latest: _Latest
) -> list[tuple[set[Purpose], str]]:
    """Return the purposes that need a grant of the end user, who gave none."""
    taken: list[tuple[set[Purpose], str]] = []
    for purpose in spec.subject_grant_required:
        entry = latest.get((end_user or "", purpose))
        if entry is None or not entry.granted:
            taken.append(({purpose}, f"consent:subject-unknown:{purpose}"))
    return taken


def _taken_by_request(spec: ConsentSpec, request: ConsentRequest) -> list[tuple[set[Purpose], str]]:
    """Return what a call itself takes away: its headers, or the document that it comes from."""
    taken: list[tuple[set[Purpose], str]] = []
    if request.allowed is not None:
        taken.append((set(Purpose) - _known(request.allowed), "consent:document:purposes"))
    for written, value in request.headers:
        name = written.lower()
        words = [word.strip().lower() for word in value.split(",") if word.strip()]
        if name == spec.headers.purposes.lower():
            taken.append((set(Purpose) - _known(words), "consent:header:purposes"))
        elif name == spec.headers.opt_out.lower() and words:
            taken.append((_opted_out(words), "consent:header:opt-out"))
        elif name == "sec-gpc" and _GPC.intersection(words):
            taken.append(
                (set(spec.headers.global_privacy_control), "consent:global-privacy-control")
            )
    return taken


def _opted_out(words: Sequence[str]) -> set[Purpose]:
    """Return what an opt-out takes away; a word that nobody knows takes everything."""
    taken: set[Purpose] = set()
    for word in words:
        if word == "train":
            taken |= set(TRAINING)
        elif word in Purpose:
            taken.add(Purpose(word))
        else:
            return set(Purpose)
    return taken


def _known(words: Collection[str]) -> set[Purpose]:
    return {Purpose(word) for word in words if word in Purpose}


def _reference(request: ConsentRequest, granted: set[Purpose], latest: _Latest) -> str | None:
    for subject in (request.end_user, EVERY_SUBJECT):
        for purpose in Purpose:
            entry = latest.get((subject or "", purpose))
            if purpose in granted and entry is not None and entry.granted and entry.reference:
                return entry.reference
    return None
