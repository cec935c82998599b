"""Values whose key says what they are: ``{"password": "…"}``, ``{"date_of_birth": "…"}``."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from string import hexdigits
from typing import NamedTuple

from governance.detect.finding import Finding, Unit
from governance.detect.names.key_names import key_words
from governance.detect.phones import is_valid_anywhere
from governance.detect.rules import checks
from governance.detect.rules.account_checks import (
    mentioned,
    named_after_somebody,
    person_account,
    told_account,
)
from governance.detect.rules.identity_numbers import identity_keys
from governance.detect.rules.password_checks import stands_for_one

BIOMETRIC_KEY = re.compile(
    r"(?:^|_)(?:(?:finger|thumb|palm|voice|foot|face)_?prints?|biometrics?|minutiae|face_?id|voice_?id|"
    r"(?:iris|retinal?|palm_?vein|facial|face|hand|gait|ear|voice|speaker|dna|genetic)_"
    r"(?:scans?|codes?|images?|templates?|embeddings?|encodings?|vectors?|profiles?|signatures?|hash|"
    r"prints?|maps?|descriptors?|samples?|data|records?|enrol+ments?|geometry|token|id|number))(?:_|$)"
)
"""Keys under which everything is a biometric record, however deep."""
IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:id|ids|identifier|number|num|no|nr|code|serial|ref|reference|guid|uuid|barcode|badge|"
    r"account|permit|registration|accession|medicaid|medicare|fin|case|visit|rx)$"
)
"""Keys whose value is a number or code for something."""
NO_IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:call|tool|tool_call|tool_use|model|response|status|error|exit|http|return|result|reason|icd|"
    r"icd_?10|icd_?9|cpt|hcpcs|loinc|snomed|rxnorm|ndc|drg|cvx|diagnosis|procedure|country|currency|"
    r"language|lang|state|line|page|version|port|step|row|column|chapter|section|source|color)_"
    r"(?:id|number|num|no|nr|code|ref|reference)$"
)
"""Keys of codes that say what something is, and of what a call and its answer are joined by."""
_CONSTANT = re.compile(r"[A-Z]+(?:_[A-Z0-9]+)*\Z")
_TYPE_WORD = re.compile(
    r"(?i)(?:string|str|text|number|integer|int|boolean|bool|object|array|null|none|any)\Z"
)
_DATE = re.compile(
    r"\d{1,4}[/.\- ]\d{1,2}[/.\- ]\d{1,4}|[A-Za-z]{3,9}\.? \d{1,2}|\d{1,2}[ \-]?[A-Za-z]{3,9}"
)


_PLAIN_DATE = re.compile(r"(?:19|20)\d\d(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01]))?\Z")
"""A day without any mark between its parts, or a year alone."""


def _secret(value: str) -> bool:
    return (
        4 <= len(value) <= 4000
        and not _CONSTANT.match(value)
        and not _TYPE_WORD.match(value)
        and "<" not in value
        and "{" not in value
        and value.count(" ") < 8
        and not stands_for_one(value)
    )


def _random_token(value: str) -> bool:
    return " " not in value and checks.long_token(value)


def _identifier(value: str) -> bool:
    return 3 <= len(value) <= 40 and any(char.isdigit() for char in value) and value.count(" ") < 3


def _account(value: str) -> bool:
    return 6 <= sum(char.isdigit() for char in value) <= 20 and len(value) <= 30


_PHONE = re.compile(r"\+?[\d ()./\-]{7,24}\Z")


def _phone(value: str) -> bool:
    return _PHONE.match(value) is not None and 7 <= sum(map(str.isdigit, value)) <= 15


def _valid_phone(value: str) -> bool:
    """Whether a value is a phone number by itself: what a key like "to" says is little."""
    return _phone(value) and len(checks.digits_of(value)) >= 10 and is_valid_anywhere(value)


def _plain_account(value: str) -> bool:
    return 8 <= len(value) <= 24 and value.replace(" ", "").replace("-", "").isdigit()


def _user(value: str) -> bool:
    return (
        3 <= len(value) <= 60
        and " " not in value
        and not _CONSTANT.match(value)
        and value.replace(".", "").replace("_", "").replace("-", "").isalnum()
        and (
            any(char.isdigit() for char in value)
            or any(char in "._" for char in value)
            or told_account(value) is True
        )
        and person_account(value) is True
    )


def _account_of_somebody(value: str) -> bool:
    """Whether this is one word made of somebody's name; several are the name itself."""
    return " " not in value and named_after_somebody(value)


def _numbered(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 4 and len(value) <= 60 and " " not in value.strip()


def _identity(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 4 and len(value) <= 30 and value.count(" ") < 7


def _plate(value: str) -> bool:
    return 4 <= len(value) <= 17 and any(char.isdigit() for char in value) and not value.isdigit()


def _hardware(value: str) -> bool:
    digits = value.replace(":", "").replace("-", "").replace(".", "")
    return len(digits) in (12, 16) and set(digits) <= set(hexdigits)


_SMALLEST_ADDRESS = 1 << 24


def _address_number(value: str) -> bool:
    """Whether a number is an address of version 4, as databases keep one."""
    return (
        8 <= len(value) <= 10
        and value.isdigit()
        and _SMALLEST_ADDRESS <= int(value) < 1 << 32
        and checks.ip_address(str(ip_address(int(value))))
    )


_EXACT = r"[+-]?\d{1,3}\.\d{4,}"
_PLACE_KEYS = (
    r"lat|latitude|lon|lng|long|longitude|lat_?(?:lon|lng|long)|coord(?:inate)?s?|"
    r"gps(?:_?(?:position|location))?|(?:geo_?)?(?:location|point|position)|geo"
)
_COORDINATES = re.compile(rf"{_EXACT}(?:[,;] ?{_EXACT})?\Z")
"""Degrees to ten metres and less: where somebody stands, not which town it is."""


def _coordinates(value: str) -> bool:
    return _COORDINATES.match(value) is not None


def _place(value: str) -> bool:
    return 2 <= len(value) <= 60 and not any(char.isdigit() for char in value)


def _birth(value: str) -> bool:
    return len(value) <= 40 and (_DATE.search(value) or _PLAIN_DATE.match(value)) is not None


def _address(value: str) -> bool:
    return (
        6 <= len(value) <= 200
        and any(c.isdigit() for c in value)
        and " " in value
        and "@" not in value
    )


def _recorded(value: str) -> bool:
    return any(char.isdigit() for char in value) or (len(value) > 40 and " " not in value)


def _code(value: str) -> bool:
    digits = sum(char.isdigit() for char in value)
    return digits >= 3 and len(value) <= 80 and value.count(" ") < 5


_BEGIN = "(?:^|_)"
"""What all patterns of keys begin with."""


_PLACE_KEY = re.compile(rf"{_BEGIN}(?:{_PLACE_KEYS})$")


class _Key(NamedTuple):
    entity: str
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool]
    but: re.Pattern[str] | None = None
    """Keys that the pattern fits and that are not meant."""
    inherited: bool = False
    """Whether a key speaks for everything under it."""

    def speaks(self, words: tuple[str, ...]) -> bool:
        """Whether the last of a value's keys, or one above it, says that it is this."""
        if self.inherited:
            return any(self.pattern.search(word) for word in words)
        if not words or not self.pattern.search(words[-1]):
            return False
        return self.but is None or self.but.search(words[-1]) is None


def _key(entity: str, pattern: str, accepts: Callable[[str], bool]) -> _Key:
    return _Key(entity, re.compile(rf"{_BEGIN}(?:{pattern})$"), accepts)


_KEYS = (
    _key("PASSWORD", r"pass|password|passwd|pwd|passphrase|passcode|passwort|kennwort|mot_?de_?passe|mdp|contrase(?:ñ|n)a|senha|palavra_?passe|wachtwoord|hasło|haslo|lösenord|adgangskode|passord|salasana|пароль|密码|密碼|口令|パスワード|비밀번호|şifre|secret|client_?secret|secret_?key|pin_?code|otp|cvv|cvc|security_?code|pin|(?:security|secret|challenge|recovery)_?(?:question_?)?answer|sicherheits_?antwort|(?:door|gate|alarm)_?code", _secret),
    _key("API_KEY", r"api_?key|access_?key|auth_?token|access_?token|refresh_?token|id_?token|bearer|private_?key|secret_?access_?key|session_?token|authorization|credential", _secret),
    _key("API_KEY", r"token|key|cookie|session|session_?id|auth", _random_token),
    _key("DATE_OF_BIRTH", r"dob|geb|geburt|né|née|nato|nata|birth|birthday|bday|date_?of_?birth|birth_?(?:date|dt|year)|year_?of_?birth|yob|geburts_?jahr|ann[ée]e_?(?:de_?)?naissance|a[ñn]o_?(?:de_?)?nacimiento|anno_?(?:di_?)?nascita|ano_?(?:de_?)?nascimento|geboorte_?jaar|rok_?urodzenia|born(?:_?on)?|geburts_?(?:datum|tag)|geb_?datum|geboren(?:_?am)?|(?:date_?(?:de_?)?)?naissance|né_?le|(?:fecha_?(?:de_?)?)?nacimiento|nacido|(?:data_?(?:di_?)?)?nascita|(?:data_?(?:de_?)?)?nascimento|nasc|geboorte_?datum|(?:data_?)?urodzenia|doğum_?tarihi|födelse_?datum|fødsels_?dato|syntymäaika|datum_?narození|дата_?рождения|生年月日|出生日期|생년월일", _birth),
    _key("MEDICAL_RECORD", r"mrn|medical_?record(?:_?(?:number|no|id))?|patient_?(?:id|number|no)|health_?(?:id|number)", _identifier),
    _key("MEDICAL_RECORD", r"(?:chart|encounter|accession|specimen|subject|participant)_?(?:number|no|id|code)", _numbered),
    _key("HEALTH_PLAN", r"(?:health_?plan|insurance|member|subscriber|beneficiary|medicare|medicaid)_?(?:number|no|id)|(?:policy|claim)_?(?:number|no)", _numbered),
    _key("MEDICAL_LICENSE", r"(?:npi|dea)(?:_?(?:number|no))?", _numbered),
    _key("US_PASSPORT", r"passport(?:_?(?:number|no|id))?", _identifier),
    _key("US_DRIVER_LICENSE", r"(?:driver'?s?_?)?licen[cs]e_?(?:number|no|id)|driving_?licen[cs]e", _identifier),
    _key("LICENSE_NUMBER", r"licen[cs]e(?:_?(?:number|no|id))?|certificate_?(?:number|no)", _numbered),
    _key("VEHICLE_ID", r"(?:number_?)?plate(?:_?(?:number|no))?|vehicle_?registration(?:_?(?:number|no))?|vin", _plate),
    _key("DEVICE_ID", r"serial_?(?:number|no)|device_serial_?(?:number|no)|(?:device|pump|pacemaker|implant|monitor|sensor|meter)_?serial|device_?(?:serial|id|identifier)|udi|imei|imsi|meid|udid", _numbered),
    _key("NATIONAL_ID", identity_keys(), _identity),
    _key("US_SSN", r"(?:ssn|social_?security(?:_?(?:number|no))?)(?:_?last_?(?:4|four))?|last_?(?:4|four)_?(?:of_?)?ssn|tax_?id|national_?id|nino|sin", _identifier),
    _key("BANK_ACCOUNT", r"(?:bank_?)?(?:account|iban)_?(?:number|no|num|digits)|acct(?:_?(?:number|no))?|routing_?(?:number|no)|sort_?code|bban", _account),
    _key("BANK_ACCOUNT", r"account|acct|konto|kontonummer|iban|compte|cuenta", _plain_account),
    _key("PHONE_NUMBER", r"contact(?:_?(?:number|no))?|whats_?app(?:_?(?:number|no))?|caller(?:_?(?:id|number))?|msisdn|callback(?:_?number)?|phone(?:_?(?:number|no))?|mobile(?:_?(?:number|no))?|cell(?:_?phone)?|tel|telefon|telefono|téléphone|handy|rufnummer", _phone),
    _key("PHONE_NUMBER", r"number|to|from|recipient|sender|destination", _valid_phone),
    _key("CREDIT_CARD", r"card_?(?:number|no|num|digits)|cc_?(?:number|num|no)|pan|credit_?card", _account),
    _key("MAC_ADDRESS", r"(?:mac|ethernet|bluetooth|wifi|hardware)(?:_?addr(?:ess)?)?", _hardware),
    _key("USERNAME", r"user|user_?name|login|screen_?name|handle|user_?id|account_?name|uid|logname|benutzer(?:name)?|utilisateur|usuario|utente|gebruiker(?:snaam)?", _user),
    _key("USERNAME", r"assignee|reporter|owner|author|reviewer|approver|requester|initiator|principal|(?:created|updated|modified|opened|closed|merged|deployed|performed|changed|submitted|uploaded|edited|triggered)_?by", _account_of_somebody),
    _key("USERNAME", r"actor", mentioned),
    _key("USERNAME", r"(?:employee|staff|personnel|payroll|worker|student|mitarbeiter|personal|matrikel|empleado|employé|salarié|dipendente|funcionário|medewerker|personeels|pracownik)_?(?:number|num|no|nr|nummer|id|code)", _numbered),
    _key("IP_ADDRESS", r"ip|ip_?v4|ip_?addr(?:ess)?|remote_?addr(?:ess)?", _address_number),
    _key("RESIDENCE", _PLACE_KEYS, _coordinates),
    _key("AGE", r"age|age_?years?|age_?in_?years", lambda value: value.isdigit() and 0 < int(value) < 130),
    _key("POSTCODE", r"zip|zip_?code|post_?code|postal_?code|plz", _identifier),
    _key("STREET_ADDRESS", r"stra(?:ß|ss)e|str|anschrift|adresse|rue|direcci[oó]n|calle|domicilio|indirizzo|via|endere[cç]o|morada|rua|adres|ulica|straat(?:naam)?|adress|osoite|address|street|street_?address|address_?line_?\d?|addr|home_?address|billing_?address|shipping_?address", _address),
    _key("LOCATION", r"city|town|county|village|suburb|municipality|home_?town|birth_?place|place_?of_?birth", _place),
    _key("LOCATION", r"precinct(?:_?(?:number|no))?", lambda value: 0 < len(value) <= 20),
    _Key("BIOMETRIC", BIOMETRIC_KEY, _recorded, inherited=True),
    _Key("IDENTIFIER", IDENTIFIER_KEY, _code, but=NO_IDENTIFIER_KEY),
)  # fmt: skip


@lru_cache(maxsize=1024)
def tells_biometric(keys: tuple[str, ...]) -> bool:
    """Whether everything under these keys is a biometric record, numbers too."""
    return any(BIOMETRIC_KEY.search(word) for word in key_words(keys))


@lru_cache(maxsize=1024)
def _tell_a_place(keys: tuple[str, ...]) -> bool:
    return any(_PLACE_KEY.search(word) for word in key_words(keys)[-1:])


def tells_coordinates(keys: tuple[str, ...], value: str) -> bool:
    """Whether a number is where somebody stands, by its keys and how exact it is."""
    return "." in value and _coordinates(value) and _tell_a_place(keys)


def tells_anything(keys: tuple[str, ...]) -> bool:
    """Whether a key path says of its value what it is."""
    words = key_words(keys)
    return any(key.speaks(words) for key in _KEYS)


_LIKE_A_MARK = re.compile(r"<([A-Za-z][A-Za-z_]{1,40})[_:~]([0-9A-Za-z][0-9A-Za-z.+\-]{3,60})>")


class KeyPaths:
    """Judges whole values by their key path, mostly by its last word."""

    name = "key_paths"
    version = "keys-7"
    entities = frozenset(key.entity for key in _KEYS) - {"LOCATION"}
    """Places are found here too; who asks for them needs a names model all the same."""

    def __init__(self, wanted: frozenset[str] | None = None) -> None:
        """Look for these entity types, for all of them by default."""
        self._keys = tuple(key for key in _KEYS if wanted is None or key.entity in wanted)
        patterns = "|".join(key.pattern.pattern.removeprefix(_BEGIN) for key in self._keys)
        self._any = re.compile(f"{_BEGIN}(?:{patterns})")

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return all of a unit's text, or what stands in it behind a word in the form of a mark."""
        said: dict[tuple[str, ...], list[tuple[str, Callable[[str], bool]]]] = {}
        for unit in units:
            if unit.keys not in said:
                said[unit.keys] = self._said(unit.keys)
        return [
            (self._found(unit.view.original, said[unit.keys]) if said[unit.keys] else [])
            or self._labelled(unit.view.original)
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

    def _labelled(self, text: str) -> list[Finding]:
        """Return what stands in ``<LABEL_value>``: no mark of ours, for those are passed over."""
        found: list[Finding] = []
        for match in _LIKE_A_MARK.finditer(text) if "<" in text else ():
            value = match[2]
            if any(map(str.isdigit, value)):
                said = self._said((match[1].lower(),))
                entity = next((entity for entity, accepts in said if accepts(value)), None)
                if entity is not None:
                    found.append(Finding(entity, *match.span(2), 0.9, self.name))
        return found

    def _said(self, keys: tuple[str, ...]) -> list[tuple[str, Callable[[str], bool]]]:
        """Return what the value at a key path may be by its keys, each with what must hold of it."""
        words = key_words(keys)
        if not any(map(self._any.search, words)):
            return []
        return [(key.entity, key.accepts) for key in self._keys if key.speaks(words)]
