"""Keyed stand-ins for values: pseudonyms in text, and names of data subjects in tables."""

import hmac
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple

from governance.policy.redaction import SECRET_ENTITIES, Operator, RedactionSpec
from governance.redact.canonical import canonical, forms_of_any, forms_of_id, recorded
from governance.redact.generalise import generalised
from governance.redact.reversible import seal
from governance.redact.subject_keys import SubjectKeys
from governance.redact.surrogates import surrogate

_LINKED = (Operator.PSEUDONYM, Operator.HASH, Operator.ENCRYPT)
"""Operators that make something with a key."""
ENCODED_DATA = "ENCODED_DATA"
"""Stands for base64 or hexadecimal digits that said something to redact; no policy asks for it."""
_SHORT, _BYTES = 8, 16
"""Sizes of keyed hashes: of those that policy asks for as such, and of all others."""
MARK = re.compile(
    r"<[A-Z][A-Z0-9_]{1,40}(?:_[0-9a-f]{6,32}|:[0-9a-f]{16}"
    r"|~(?:[0-9a-f]{32}|0)\.[A-Za-z0-9_\-]{20,4000})?>|\*{4}"
)
"""Every form that redaction may put in a value's place."""
_OF_MEDIA = re.compile(r"hmac:[0-9a-f]{64}")


def _digits(hashed: blake2b, *parts: str) -> str:
    """Return the digits of a hash that takes in these parts as well."""
    hashed.update("\x1f".join(parts).encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def subject_ids(subject_key: bytes, tenant_id: str, value: str) -> tuple[str, ...]:
    """Return every name under which governance rows may keep a data subject, the usual one first.

    The same for all spellings of an e-mail, a name or a phone number; a number without its country has
    one of its own, and so have names that earlier versions kept with their accents.
    """
    return _names_of(subject_key, tenant_id, forms_of_any(value))


def recorded_ids(subject_key: bytes, tenant_id: str, value: str) -> tuple[str, ...]:
    """Return the names under which governance rows keep whom an application calls by an id, the usual one first."""
    return _names_of(subject_key, tenant_id, forms_of_id(value))


def subject_id(subject_key: bytes, tenant_id: str, value: str) -> str:
    """Return the usual one of :func:`subject_ids`."""
    return subject_ids(subject_key, tenant_id, value)[0]


def _names_of(subject_key: bytes, tenant_id: str, forms: Iterable[str]) -> tuple[str, ...]:
    naming = blake2b(key=subject_key, digest_size=_BYTES)
    return tuple(_named(naming.copy(), tenant_id, form) for form in forms)


def _named(hashed: blake2b, tenant_id: str, form: str) -> str:
    return "subject_" + _digits(hashed, "subject", tenant_id, form)


class PseudonymScope(NamedTuple):
    """Whom a value belongs to, and how far its stand-in agrees."""

    tenant_id: str
    scope: str
    """Tenant, or tenant and trajectory; equal values agree within it."""
    linked: bool = True
    """False: only its type stands for a value."""


class Pseudonymizer:
    """Turns findings into what stands in their place."""

    def __init__(
        self,
        spec: RedactionSpec,
        key: bytes,
        *,
        subject_key: bytes,
        subjects: SubjectKeys | None = None,
    ) -> None:
        """Work by a policy.

        Args:
            spec: the policy's ``spec``.
            key: keys pseudonyms; rotated now and then.
            subject_key: names data subjects; stays, so that a person is found again.
            subjects: the keys of data subjects, where policy asks for one per subject.
        """
        self._spec = spec
        self._key = key
        # These have taken in the key; each value goes into a copy.
        self._standing_in = {size: blake2b(key=key, digest_size=size) for size in (_SHORT, _BYTES)}
        self._naming = blake2b(key=subject_key, digest_size=_BYTES)
        self._operators = spec.operators()
        self._keys = subjects if spec.keys == "subject" else None
        self._word_key = blake2b(b"words", key=subject_key, digest_size=32).digest()
        self._media_key = blake2b(b"media", key=subject_key, digest_size=32).digest()
        self._named: dict[tuple[str, str, str], tuple[str, ...]] = {}
        self._canonical: dict[tuple[str, str], str] = {}

    def begin(self) -> None:
        """Look at the keys of subjects anew."""
        self.forget()
        if self._keys is not None:
            self._keys.begin()

    def forget(self) -> None:
        """Forget whom the call named."""
        self._named.clear()
        self._canonical.clear()

    def subjects(self, tenant_id: str, entity: str, value: str) -> tuple[str, ...]:
        """Return the names of the data subject that a value is, worked out once a call; usual one first."""
        named = self._named.get((tenant_id, entity, value))
        if named is None:
            forms = recorded(entity, value)
            self._canonical[entity, value] = forms[0]
            named = tuple([_named(self._naming.copy(), tenant_id, form) for form in forms])
            self._named[tenant_id, entity, value] = named
        return named

    def people(self, tenant_id: str, value: str) -> tuple[str, ...]:
        """Return the names of the data subject whom an application calls by an id; usual one first."""
        return tuple(_named(self._naming.copy(), tenant_id, form) for form in forms_of_id(value))

    def expect(self, tenant_id: str, values: Iterable[tuple[str, str]]) -> None:
        """Settle the keys of all whom these values name, where subjects have keys of their own.

        Args:
            tenant_id: whose they are.
            values: entity types and values.
        """
        if self._keys is not None:
            linked = [one for one in values if self._operators.get(one[0]) in _LINKED]
            self._keys.expect({self.subjects(tenant_id, *one)[0] for one in linked})

    def of_word(self, tenant_id: str, trajectory_id: str, word: str, *, as_written: bool) -> str:
        """Return what a part of a name is kept by within a trajectory: a keyed hash."""
        kind = "as written" if as_written else "any case"
        hashed = blake2b(key=self._word_key, digest_size=_SHORT)
        return _digits(hashed, tenant_id, trajectory_id, kind, word)

    def of_media(self, tenant_id: str, name: str) -> str:
        """Return what bytes are named by: a keyed hash of their hash, so that nobody can try files."""
        if _OF_MEDIA.fullmatch(name):
            return name
        said = f"{tenant_id}\x1f{name}".encode("utf-8", "surrogatepass")
        return "hmac:" + hmac.digest(self._media_key, said, "sha256").hex()

    def replacement(self, entity: str, value: str, whose: PseudonymScope) -> str | None:
        """Return what replaces a value as the view shows it; None when policy keeps it."""
        operator = self._operators.get(entity, Operator.DROP)
        if operator is Operator.KEEP:
            return None
        if operator is Operator.MASK:
            return "****"
        if operator is Operator.DROP or entity in SECRET_ENTITIES:
            return f"<{entity}>"
        if operator is Operator.GENERALISE:
            today = datetime.now(UTC).date()
            wider = generalised(entity, value, ages=self._spec.ages, today=today)
            return f"<{entity}>" if wider is None else wider
        if not whose.linked:
            return f"<{entity}>"
        subject, key = self._subject_of(entity, value, whose.tenant_id)
        if operator is Operator.ENCRYPT:
            sealing = key if subject else installation_seal(key)
            return seal(sealing, entity, value, whose.scope, subject)
        # A phone number is parsed for it, which takes a third of the time of one that is new.
        plain = self._canonical.get((entity, value)) or canonical(entity, value)
        size = _SHORT if operator is Operator.HASH else _BYTES
        if subject is None:
            hashed = self._standing_in[size].copy()
        else:
            hashed = blake2b(key=key, digest_size=size)
        if operator is Operator.HASH:
            return f"<{entity}:{_no_number(_digits(hashed, 'hash', entity, whose.scope, plain))}>"
        word = _digits(hashed, "pseudonym", entity, whose.scope, plain)
        realistic = surrogate(entity, word) if self._spec.pseudonyms == "realistic" else None
        return realistic or f"<{entity}_{_no_number(word[: self._spec.pseudonym_digits])}>"

    def standing(self, entity: str, value: str, whose: PseudonymScope) -> str | None:
        """Return the pseudonym that may stand for a value somewhere; None when none can."""
        if self._operators.get(entity) is not Operator.PSEUDONYM or not whose.linked:
            return None
        if self._keys is not None and entity in self._spec.subjects:
            subject = self.subjects(whose.tenant_id, entity, value)[0]
            if self._keys.known(subject) is None:
                return None
        return self.replacement(entity, value, whose)

    def _subject_of(self, entity: str, value: str, tenant_id: str) -> tuple[str | None, bytes]:
        """Return the subject whose own key counts for a value, and the key."""
        if self._keys is None or entity not in self._spec.subjects:
            return None, self._key
        subject = self.subjects(tenant_id, entity, value)[0]
        return subject, self._keys.key(subject)


def _no_number(digits: str) -> str:
    """Return hexadecimal digits with a letter among them, as marks have."""
    return f"a{digits[1:]}" if digits.isdigit() else digits


def key_of_epoch(pseudonym_key: bytes, epoch: int) -> bytes:
    """Return the key that pseudonyms are made with in an epoch; the first is the key itself."""
    if epoch == 1:
        return pseudonym_key
    return blake2b(f"epoch {epoch}".encode(), key=pseudonym_key, digest_size=32).digest()


def installation_seal(key: bytes) -> bytes:
    """Return the key of marks that name no subject."""
    return blake2b(b"reversible", key=key).digest()
