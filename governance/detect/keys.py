"""Values whose key says what they are: ``{"password": "…"}``, ``{"date_of_birth": "…"}``."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from governance.detect import checks
from governance.detect.finding import Finding, Unit
from governance.detect.names import key_words

_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_TYPE_WORD = re.compile(
    r"(?i)(?:string|str|text|number|integer|int|boolean|bool|object|array|null|none|any)\Z"
)
_DATE = re.compile(
    r"\d{1,4}[/.\- ]\d{1,2}[/.\- ]\d{1,4}|[A-Za-z]{3,9}\.? \d{1,2}|\d{1,2} [A-Za-z]{3,9}"
)


def _secret(value: str) -> bool:
    return (
        4 <= len(value) <= 4000
        and not _CONSTANT.match(value)
        and not _TYPE_WORD.match(value)
        and "<" not in value
        and "{" not in value
        and value.count(" ") < 4
    )


def _random_token(value: str) -> bool:
    return " " not in value and checks.long_token(value)


def _identifier(value: str) -> bool:
    return 3 <= len(value) <= 40 and any(char.isdigit() for char in value) and value.count(" ") < 3


def _account(value: str) -> bool:
    return 6 <= sum(char.isdigit() for char in value) <= 20 and len(value) <= 30


def _user(value: str) -> bool:
    return (
        3 <= len(value) <= 60
        and " " not in value
        and not _CONSTANT.match(value)
        and (any(char.isdigit() for char in value) or any(char in "._" for char in value))
        and value.replace(".", "").replace("_", "").replace("-", "").isalnum()
        and any(char.isalpha() for char in value)
    )


def _numbered(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 4 and len(value) <= 60 and " " not in value.strip()


def _plate(value: str) -> bool:
    return 4 <= len(value) <= 17 and any(char.isdigit() for char in value) and not value.isdigit()


def _place(value: str) -> bool:
    return 2 <= len(value) <= 60 and not any(char.isdigit() for char in value)


def _birth(value: str) -> bool:
    return len(value) <= 40 and _DATE.search(value) is not None


def _address(value: str) -> bool:
    return (
        6 <= len(value) <= 200
        and any(c.isdigit() for c in value)
        and " " in value
        and "@" not in value
    )


class _Key(NamedTuple):
    entity: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool]


def _key(entity: str, pattern: str, accepts: Callable[[str], bool]) -> _Key:
    return _Key(entity, re.compile(rf"(?:^|_)(?:{pattern})$"), accepts)


_KEYS = (
    _key("PASSWORD", r"pass|password|passwd|pwd|passphrase|passcode|secret|client_?secret|secret_?key|pin_?code|otp|cvv|cvc|security_?code|pin", _secret),
    _key("API_KEY", r"api_?key|access_?key|auth_?token|access_?token|refresh_?token|id_?token|bearer|private_?key|secret_?access_?key|session_?token|authorization|credential", _secret),
    _key("API_KEY", r"token|key|cookie|session|session_?id|auth", _random_token),
    _key("DATE_OF_BIRTH", r"dob|birth|birthday|date_?of_?birth|birth_?date|born", _birth),
    _key("MEDICAL_RECORD", r"mrn|medical_?record(?:_?(?:number|no|id))?|patient_?(?:id|number|no)|health_?(?:id|number)", _identifier),
    _key("MEDICAL_RECORD", r"(?:chart|encounter|accession|specimen|subject|participant)_?(?:number|no|id|code)", _numbered),
    _key("HEALTH_PLAN", r"(?:health_?plan|insurance|member|subscriber|beneficiary|medicare|medicaid)_?(?:number|no|id)|(?:policy|claim)_?(?:number|no)", _numbered),
    _key("MEDICAL_LICENSE", r"(?:npi|dea)(?:_?(?:number|no))?", _numbered),
    _key("US_PASSPORT", r"passport(?:_?(?:number|no|id))?", _identifier),
    _key("US_DRIVER_LICENSE", r"(?:driver'?s?_?)?licen[cs]e_?(?:number|no|id)|driving_?licen[cs]e", _identifier),
    _key("LICENSE_NUMBER", r"licen[cs]e(?:_?(?:number|no|id))?|certificate_?(?:number|no)", _numbered),
    _key("VEHICLE_ID", r"(?:number_?)?plate(?:_?(?:number|no))?|vin", _plate),
    _key("DEVICE_ID", r"serial_?(?:number|no)|device_?(?:serial|id|identifier)|udi|imei|imsi|meid|udid", _numbered),
    _key("US_SSN", r"ssn|social_?security(?:_?(?:number|no))?|tax_?id|national_?id|nino|sin", _identifier),
    _key("BANK_ACCOUNT", r"(?:bank_?)?account_?(?:number|no|num)|acct(?:_?(?:number|no))?|routing_?(?:number|no)|sort_?code|bban", _account),
    _key("CREDIT_CARD", r"card_?(?:number|no|num)|cc_?(?:number|num|no)|pan|credit_?card", _account),
    _key("USERNAME", r"user|user_?name|login|screen_?name|handle|user_?id|account_?name", _user),
    _key("AGE", r"age|age_?years?|age_?in_?years", lambda value: value.isdigit() and 0 < int(value) < 130),
    _key("POSTCODE", r"zip|zip_?code|post_?code|postal_?code|plz", _identifier),
    _key("STREET_ADDRESS", r"address|street|street_?address|address_?line_?\d?|addr|home_?address|billing_?address|shipping_?address", _address),
    _key("LOCATION", r"city|town|county|village|suburb|municipality|home_?town|birth_?place|place_?of_?birth", _place),
)  # fmt: skip


class KeyPaths:
    """Judges whole values by the last word of their key path."""

    name = "key_paths"
    version = "keys-3"
    entities = frozenset(key.entity for key in _KEYS) - {"LOCATION"}
    """Places are found here too; who asks for them needs a names model all the same."""

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return at most one finding a unit: all of its text."""
        said: dict[tuple[str, ...], list[tuple[str, Callable[[str], bool]]]] = {}
        for unit in units:
            if unit.keys not in said:
                said[unit.keys] = _said(unit.keys)
        return [
            self._found(unit.view.original, said[unit.keys]) if said[unit.keys] else []
            for unit in units
        ]

    def _found(self, text: str, said: list[tuple[str, Callable[[str], bool]]]) -> list[Finding]:
        if len(text) > 4000:
            return []
        value = text.strip()
        start = text.find(value)
        for entity, accepts in said:
            if accepts(value):
                return [Finding(entity, start, start + len(value), 0.9, self.name)]
        return []


def _said(keys: tuple[str, ...]) -> list[tuple[str, Callable[[str], bool]]]:
    """Return what the value at a key path may be by its last key, each with what must hold of it."""
    words = key_words(keys)
    if not words:
        return []
    return [(key.entity, key.accepts) for key in _KEYS if key.pattern.search(words[-1])]
