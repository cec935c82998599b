"""Numbers of JSON that may be somebody's: cards by their length, others by their keys."""

import re
from collections.abc import Mapping, Sequence

from governance.detect.finding import Finding
from governance.detect.keys import tells_biometric, tells_coordinates
from governance.detect.names.key_names import key_words
from governance.detect.rules.identity_numbers import IDENTITY_WORDS
from governance.policy.redaction import Operator
from governance.redact.pseudonym import Pseudonymizer, PseudonymScope
from governance.redact.segments import Path, keys_of

IDENTITY = "USERNAME"
"""The id of an end user that a client gives."""
_KEYS = (
    "phone", "mobile", "tel", "fax", "cell", "card", "ssn", "social", "account", "acct", "routing",
    "passport", "mrn", "medical", "patient", "pin", "passcode", "password", "otp", "tax_id",
    "national_id", "license", "licence", "zip", "postcode", "postal", "plz", "npi", "chart",
    "encounter", "claim", "policy", "member", "subscriber", "serial", "imei", "contact", "whatsapp",
    "caller", "callback", "msisdn", "number", "iban", "dob", "birth", "born", "yob", "geburt", "naissance",
    "nacimiento", "nascita", "nascimento", "geboorte", "urodzenia", "employ", "staff", "personnel",
    "personal", "payroll", "worker", "student", "mitarbeiter", "matrikel", "empleado", "salarié",
    "dipendente", "funcionário", "medewerker", "personeel", "pracownik", *IDENTITY_WORDS,
)  # fmt: skip
"""Parts of keys without which a number is only looked at when it is as long as a card's; who looks
for every identifier asks of each key."""
_WHOLE_KEYS = (
    "|(?:^|_)(?:to|from|ip|ip_?v4|ip_?addr(?:ess)?|remote_?addr(?:ess)?|"
    "sin|cpf|nif|dni|rut|cnp|bsn|inn|egn|tfn|oib)$"
)
_FEWEST_DIGITS, _MOST_DIGITS = 4, 19
"""Of numbers that are looked at as such; shorter ones may be ages."""
_CARD_DIGITS = (15, 16)
_ENTITIES = frozenset({"CREDIT_CARD", "PHONE_NUMBER", "US_SSN", "BANK_ACCOUNT", "NATIONAL_ID"})


class BareNumbers:
    """Tells which numbers are personal data by a policy, and what replaces them."""

    def __init__(self, operators: Mapping[str, Operator], pseudonyms: Pseudonymizer) -> None:
        """Work by the policy's ``operators``."""
        self._operators = operators
        self._pseudonyms = pseudonyms
        every_key = "IDENTIFIER" in operators
        self._key = re.compile("" if every_key else "|".join(_KEYS) + _WHOLE_KEYS)

    def digits(self, written: str, path: Path) -> str:
        """Return the digits to look at; empty where nothing speaks for a number."""
        digits = written.lstrip("-")
        if tells_coordinates(keys_of(path), digits):
            return digits
        size = len(digits)
        if size > _MOST_DIGITS or not digits.isdigit():
            return ""
        if size in _CARD_DIGITS:
            return digits
        key = "_".join(path[-2:]).lower()
        if size < _FEWEST_DIGITS:
            return digits if "age" in key else ""
        speaks = self._key.search(key) or self._key.search("_".join(key_words(path[-2:])))
        return digits if speaks else ""

    def is_identity(self, written: str, path: Path, people: Sequence[str]) -> bool:
        """Whether a number is the id of an end user, where clients put such ids."""
        return IDENTITY in self._operators and written.lstrip("-") in people and "ext" in path

    def is_biometric(self, path: Path) -> bool:
        """Whether a number is a measure of somebody's body, by its keys."""
        return "BIOMETRIC" in self._operators and tells_biometric(keys_of(path))

    def entity(self, digits: str, found: Sequence[Finding]) -> str | None:
        """Return what a number is by what was found in its digits."""
        if len(digits) < _FEWEST_DIGITS:
            return next((one.entity for one in found if one.entity == "AGE"), None)
        for one in found:
            whole = one.end - one.start == len(digits)
            if whole and (one.entity in _ENTITIES or one.detector == "key_paths"):
                return one.entity
        return None

    def replacement(self, entity: str, written: str, whose: PseudonymScope) -> int | None:
        """Return what replaces a number: the lower end of its wider form, 0 for all others."""
        operator = self._operators[entity]
        if operator is Operator.KEEP:
            return None
        if operator is not Operator.GENERALISE:
            return 0
        wider = self._pseudonyms.replacement(entity, written, whose) or "0"
        begin = wider.partition("-")[0].rstrip("+")
        return int(begin) if begin.isdigit() else 0
