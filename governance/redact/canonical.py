"""Whom a value names, however it was written: canonical forms of mail addresses, phones and names.

What is cut out of a text is a span, often with a word or a mark too much. Who is meant is what these
forms say: they decide the pseudonym, and under which names a data subject is found again.
"""

import re
import unicodedata
from itertools import combinations

import phonenumbers

from governance.detect.normalized_text import read_as
from governance.detect.phones import REGIONS

_NUMBER_TYPES = """
    CREDIT_CARD US_SSN US_ITIN US_BANK_NUMBER US_PASSPORT BANK_ACCOUNT UK_NHS IBAN_CODE MAC_ADDRESS
    """
_NUMBERS = frozenset(_NUMBER_TYPES.split())
_NOT_ALNUM = re.compile(r"[\W_]+")
_EDGES = " \t\r\n.,;:'\"`*_~|#!?()[]{}<>@&=/\\-\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a"

_LOCAL = r"[^\W_](?:[\w.+\-]|'(?=[^\W_]))*"
_MAIL = re.compile(
    rf"({_LOCAL}|[^\W_])[ ]?@[ ]?((?:[^\W_][\w\-]*\.){{1,8}}(?:xn--[a-z0-9\-]+|[^\W\d_]{{2,24}}))",
    re.IGNORECASE,
)
_LONGEST_LABEL = 63
_SPELLED_AT = re.compile(r"\s*(?:\[at\]|\(at\)|\{at\})\s*|\s+at\s+", re.IGNORECASE)
_SPELLED_DOT = re.compile(
    r"\s*(?:\[dot\]|\(dot\)|\{dot\}|\[\.\]|\(\.\))\s*|\s+dot\s+|\s+\.\s*|\s*\.\s+", re.IGNORECASE
)

_PHONE = re.compile(
    r"(?:\s*(?:tel|phone|fax|mobile|call|sms)\b[:.]?)?[\d\s()+.\-/~\[\]]*(?:(?:ext|extension|x|#)[.:]?\s*\d{1,6})?\s*",
    re.IGNORECASE,
)
_EXTENSION = re.compile(r"[ ,;]{0,2}(?:ext|extension|x|#)[.:]?\s?\d{1,6}\s*$", re.IGNORECASE)
_INTERNATIONAL = re.compile(r"[^\d+]*(?:\+|00(?=[\d\s().\-/]{9}))", re.IGNORECASE)
_LOGIN = re.compile(r"[^\W\d_]+(?:[_.:][^\W\d_]+)+")
"""Words that nobody writes so in a text: "mr" in mr_bob is part of who it is."""
_DEVICE = re.compile(r"^(\d{7,}):\d{1,3}(?=@)")
"""One of the devices of somebody who is known by a phone number (WhatsApp)."""
_NUMBERS_APART = re.compile(r"\d[\W_]+\d")
_TWO_NUMBERS = re.compile(r"(?!\d{3,4}[\-.]\d{4}$)[1-9]\d*[\-/.#x]\d+", re.IGNORECASE)
"""As an organisation and its user have; phone numbers of one town have three or four digits, then four."""
_IN_GROUPS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:[0-9a-f]{2}[:\-]){5}[0-9a-f]{2}"
    r"|[a-z]{2}\d{2}(?:[ \-]?[a-z0-9]{1,4}){3,8}",
    re.IGNORECASE,
)
"""UUIDs, MAC addresses and IBANs: marks within them mean nothing."""
_FEWEST, _WITH_AREA, _WITH_COUNTRY, _MOST = 7, 10, 11, 17
"""Digits of phone numbers: the fewest, with an area code, with a country code, the most."""

_INTRODUCED = (
    r"i'm|i am|it's|its|this is|my name is|name is|call me|ich bin|ich heiße|ich heisse|mein name ist|hier ist|"
    r"je suis|je m'appelle|je soussigné|c'est|yo soy|soy|me llamo|mi nombre es|eu sou|me chamo|"
    r"meu nome é|io sono|mi chiamo|jestem|nazywam się|ik ben|ik heet|jag heter|jag är|jeg er|jeg heter"
)
_GREETED = (
    r"dear|hi|hello|hey|hallo|hola|bonjour|salut|ciao|olá|liebe|lieber|liebes|chère|estimado|estimada|"
    r"querido|querida"
)
_TITLES = (
    r"mr|mrs|ms|miss|mx|madam|dr|prof|professor|doctor|herr|herrn|frau|señor|señora|señorita|senhor|senhora|"
    r"sra|srta|signor|signora|sig\.ra|monsieur|madame|mademoiselle|mme|mlle|pani|captain|sgt|sergeant|"
    r"admiral|judge|attorney|nurse|uncle|aunt|rabbi|senator|coach|officer|detective|mevrouw|mevr|meneer|"
    r"sayın|sayin|onkel|tante|maître|kollege|kollegin"
)
_ROLES = r"customer|patient|client|contact|cliente|kunde|kundin|patientin|attn|user|name|from"
_SURE = f"{_INTRODUCED}|{_GREETED}|{_TITLES}|{_ROLES}"
_CUE = re.compile(rf"(?:{_SURE})(?:[.:,] ?| )", re.IGNORECASE)
_DOUBTFUL = (
    r"im|cher|sono|sou|rev|hon|el|la|don|doña|dona|dom|sir|lord|lady|m|sr|sig|pan|st|best|thanks|gruß|grüße|"
    r"vg|lg|by|with|and"
)
_WEAK = re.compile(rf"(?:{_DOUBTFUL})(?:[.:,] ?| )", re.IGNORECASE)
"""What may be somebody's name too: taken off only where a given name and a family name are left."""
_BEHIND_A_WORD = re.compile(r"[.:, ]")
_FIRST_WORDS = frozenset(re.split(r"\\| ", cue)[0] for cue in f"{_SURE}|{_DOUBTFUL}".split("|"))
"""What cues begin with, in small letters."""
_POSSESSIVE = re.compile(r"'s?$", re.IGNORECASE)
_SUFFIX = re.compile(
    r"(?:[ ,]+(?:jr|sr|i{2,3}|iv|md|ph\.?d|esq|dds|rn|cpa|mba)\.?|-(?:san|sama|sensei))+$",
    re.IGNORECASE,
)
_FEW_WORDS = 4
"""Of a name; in what has more, no part is taken for a name of its own."""
_TURNED = re.compile(r"([^\W\d_][\w'\- ]*), ?([^\W\d_][\w'.\- ]*)")
_UNFOLDED = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
_ACCENT = re.compile("[\u0300-\u036f]")
_PLAIN_MARKS = str.maketrans(
    {**dict.fromkeys("\u2019\u02bc\u00b4`", "'"), **dict.fromkeys("_*~+", " ")}
)
_AS_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
"""What is typed for ä, ö, ü, ø and å where keyboards lack them."""
_SUBADDRESS = re.compile(r"\+[^@]*(?=@)")
"""What a mail server leaves aside (RFC 5233)."""
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\s\u00b7・]+")


def meant(entity: str, value: str) -> str:
    """Return a value without what stands around it; case and accents stay."""
    match entity:
        case "EMAIL_ADDRESS":
            return _mail_in(value) or value.strip()
        case "PERSON":
            return _name_in(value)
        case _:
            return value


def canonical(entity: str, value: str) -> str:
    """Return the form in which all spellings of one value agree."""
    return forms(entity, value)[0]


def forms(entity: str, value: str) -> tuple[str, ...]:
    """Return the canonical form, and others under which the same subject may be recorded.

    National spellings of a phone do not tell the country; and earlier rows hold names with their
    accents, and numbers as they were written.
    """
    value = meant(entity, value)
    match entity:
        case "EMAIL_ADDRESS":
            return _once(*_mails(value))
        case "PERSON":
            return _once(*_names(value))
        case "PHONE_NUMBER":
            return _once(*_phones(value), _digits(_EXTENSION.sub("", value)))
        case _ if entity in _NUMBERS:
            return _once(_NOT_ALNUM.sub("", _compatible(value)), _folded(value))
        case _:
            return (_folded(value),)


def recorded(entity: str, value: str) -> tuple[str, ...]:
    """Return the forms under which a value's subject is recorded, the canonical one first.

    A mail address with a subaddress (maria+news@…) is recorded as the address without it too. A name as
    it was found may have a word too much ("Refund Leonie Hartwig", "Leonie M. Hartwig"): of
    three or four words any two in their order may be who is meant.
    """
    found = forms(entity, value)
    if entity == "EMAIL_ADDRESS":
        return _once(*found, *(_SUBADDRESS.sub("", one) for one in found))
    if entity != "PERSON":
        return found
    if not 2 < len(found[0].split()) <= _FEW_WORDS:
        return found
    names = _names(meant(entity, value))[:-1]
    return _once(*found, *(" ".join(two) for one in names for two in combinations(one.split(), 2)))


def forms_of_any(value: str) -> tuple[str, ...]:
    """Return all canonical forms of a value of unknown kind, as people type it, the best first."""
    value = _as_typed(value)
    kind, apart = _kind(value), _has_numbers_apart(value)
    if kind is None or apart:
        whole = _small(value) if apart else _folded(value)
        phones = () if kind is None else forms(kind, value)
        return _once(whole, *phones, _folded(value), _NOT_ALNUM.sub("", _compatible(value)))
    other: tuple[str, ...] = ()
    if kind == "PHONE_NUMBER":
        other = _written_at_home(value)
    elif _is_login(value):
        words = re.sub("[_.:]", " ", value)
        return _once(*_names(words), *_spelled_otherwise(words), _folded(value))
    elif kind == "PERSON":
        other = _spelled_otherwise(meant(kind, value))
    return _once(*forms(kind, value), *other, _folded(value))


def forms_of_id(value: str) -> tuple[str, ...]:
    """Return the forms under which whom an application calls by an id is recorded, the best first.

    Of ids like 1-12 and u_1_12 it is the whole alone: without its marks 11-2 would be the same person.
    Those that may be somebody's phone number are taken for one.
    """
    found = forms_of_any(value)
    return found[:1] if _has_numbers_apart(_as_typed(value)) else found


def _as_typed(value: str) -> str:
    return _DEVICE.sub(r"\1", read_as(unicodedata.normalize("NFC", value)).strip())


def _has_numbers_apart(value: str) -> bool:
    """Tell whether marks part several numbers, and not one of a phone, a card, an authority or a machine."""
    if _NUMBERS_APART.search(value) is None or _mail_in(value):
        return False
    if sum(map(str.isdigit, value)) < _FEWEST:
        return True
    if _kind(value) == "PHONE_NUMBER":
        return _TWO_NUMBERS.fullmatch(value) is not None and len(_phones(value)) == 1
    return _IN_GROUPS.fullmatch(value) is None


def _is_login(value: str) -> bool:
    """Tell whether it is words of a user's name; in small letters, as Dr.Hartwig is a name in a text."""
    return _LOGIN.fullmatch(value) is not None and ("." not in value or value.islower())


def spellings(value: str) -> tuple[str, ...]:
    """Return how a mail address, a name or a phone number may be written too, as it is first."""
    kind = _kind(value)
    if kind == "PHONE_NUMBER":
        parsed = _parsed("+" + _phones(value)[0], None)
        if parsed is None:
            return (value,)
        styles = phonenumbers.PhoneNumberFormat
        written = [
            phonenumbers.format_number(parsed, style)
            for style in (styles.E164, styles.INTERNATIONAL, styles.NATIONAL)
        ]
        apart = [re.sub(r"[()\-.\s]+", mark, one).strip(mark) for one in written for mark in "-. "]
        return _once(value, *written, *apart, _at_home(parsed))
    shown = [value]
    if kind == "PERSON" and len(words := meant("PERSON", value).split()) > 1:
        last, first = words[-1], " ".join(words[:-1])
        turned = f"{last}, {first}"
        shown += [f"{first} {last}", turned, f"{last.upper()}, {first}"]
        shown += [mark.join(words) for mark in "._-"]
    return _once(*shown, *[how(one) for one in shown for how in (str.lower, str.upper, str.title)])


def _kind(value: str) -> str | None:
    """Return what a value is as people type it; None for ids and all else."""
    if _mail_in(value):
        return "EMAIL_ADDRESS"
    digits = sum(map(str.isdigit, value))
    if sum(map(str.isdigit, _EXTENSION.sub("", value))) >= _FEWEST and _PHONE.fullmatch(value):
        return "PHONE_NUMBER"
    return None if digits else "PERSON"


def _mail_in(value: str) -> str | None:
    if "@" not in value:
        value = _SPELLED_AT.sub("@", value)
    if "@" not in value:
        return None
    found = _MAIL.search(value) or _MAIL.search(_SPELLED_DOT.sub(".", value))
    return f"{found[1]}@{found[2]}" if found else None


def _mails(value: str) -> tuple[str, ...]:
    """Return a mail address with its domain as people read it, as it is sent (RFC 3492), and plain.

    Plain is without accents: detectors read a letter with a combining accent so.
    """
    folded = _folded(value)
    if folded.isascii() and "xn--" not in folded and value.isascii():
        return (folded,)
    box, at, domain = unicodedata.normalize("NFKC", value).lower().rpartition("@")
    labels = [_read_label(label) for label in domain.split(".")]
    sent = ".".join(map(_sent_label, labels))
    read = _folded(f"{box}{at}{'.'.join(labels)}")
    return read, _folded(f"{box}{at}{sent}"), without_accents(read)


def _read_label(label: str) -> str:
    if not label.startswith("xn--") or len(label) > _LONGEST_LABEL:
        return label
    try:
        return label[4:].encode("ascii").decode("punycode") or label
    except ValueError:
        return label


def _sent_label(label: str) -> str:
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"


def _name_in(value: str) -> str:
    if value.isalpha() and "\u02bc" not in value:
        return value  # one word, with nothing around it to take off
    words = value.split()
    if not "".join(words).isalpha() or "\u02bc" in value:
        words = value.translate(_PLAIN_MARKS).split()
    name = " ".join(words).strip(_EDGES)
    while not name.isascii() or _BEHIND_A_WORD.split(name, 1)[0].lower() in _FIRST_WORDS:
        cue = _CUE.match(name)
        if cue is None and (weak := _WEAK.match(name)) is not None:
            cue = weak if " " in name[weak.end() :].strip() else None
        rest = name[cue.end() :].lstrip(_EDGES) if cue else ""
        if not any(map(str.isalpha, rest)):
            break
        name = rest
    if "'" in name:
        name = _POSSESSIVE.sub("", name).rstrip(_EDGES)
    turned = _TURNED.fullmatch(name) if "," in name else None
    if turned is not None and name.count(" ") < 4:
        name = f"{turned[2]} {turned[1]}"
    without = _SUFFIX.sub("", name) if " " in name else name
    if " " in without:
        name = without
    return name or value.strip()


def _name(name: str) -> str:
    plain = name.casefold()
    if not plain.isascii():
        if _EAST_ASIAN.fullmatch(name):
            return _folded("".join(name.replace("\u00b7", "").replace("・", "").split()))
        plain = without_accents(plain.translate(_UNFOLDED))
    return _folded(plain.replace(".", " "))


def _names(name: str) -> tuple[str, ...]:
    """Return the forms of a name: canonical, as typed where keyboards lack letters, and with its accents."""
    if name.isascii():
        return _name(name), _folded(name)
    return _name(name), _name(name.casefold().translate(_AS_TWO_LETTERS)), _folded(name)


def without_accents(text: str) -> str:
    """Return a text with plain letters for those with accents."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFKD", text)))


def _spelled_otherwise(name: str) -> tuple[str, ...]:
    """Return forms of a name in which others may have written it: Ana-Luz, Ana Luz and AnaLuz."""
    plain = _name(name)
    words = plain.split()
    joined = ["-".join(words[at : at + 2]) for at in range(len(words) - 1)]
    hyphened = (
        [" ".join((*words[:at], two, *words[at + 2 :])) for at, two in enumerate(joined)]
        if len(words) > 2
        else []
    )
    return (plain.replace("-", " "), *hyphened, "".join(words))


def _phones(value: str) -> tuple[str, ...]:
    """Return a phone number as E.164 without its plus; a national one with its digits at home too."""
    plain = _EXTENSION.sub("", read_as(value))
    digits = _digits(plain)
    if len(digits) > _MOST:
        return (digits,)
    if _INTERNATIONAL.match(plain):
        digits = digits.removeprefix("00")
        parsed = _parsed("+" + digits, None)
        return (digits if parsed is None else _e164(parsed),)
    if len(digits) >= _WITH_COUNTRY and digits[0] != "0":
        parsed = _parsed("+" + digits, None)
        if parsed is not None and phonenumbers.is_valid_number(parsed):
            return _e164(parsed), _at_home(parsed)
    if len(digits) >= _WITH_AREA or digits.startswith("0"):
        for region in REGIONS:
            parsed = _parsed(digits, region)
            if parsed is not None and phonenumbers.is_valid_number(parsed):
                return _e164(parsed), _at_home(parsed)
    return (digits,)


def _written_at_home(value: str) -> tuple[str, ...]:
    """Return the digits under which a number with its country may be recorded without it."""
    spelled = _phones(value)
    if len(spelled) == 1 and not _INTERNATIONAL.match(value):
        return ()  # an id, as far as one can tell
    parsed = _parsed("+" + spelled[0], None)
    if parsed is None:
        return ()
    national = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.NATIONAL)
    return _at_home(parsed), _digits(national)


def _parsed(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None


def _e164(parsed: phonenumbers.PhoneNumber) -> str:
    return f"{parsed.country_code}{phonenumbers.national_significant_number(parsed)}"


def _at_home(parsed: phonenumbers.PhoneNumber) -> str:
    return str(phonenumbers.national_significant_number(parsed))


def _digits(value: str) -> str:
    return "".join(char for char in value if char.isdigit())


def _compatible(value: str) -> str:
    return (value if value.isascii() else unicodedata.normalize("NFKC", value)).casefold()


def _small(value: str) -> str:
    return " ".join(_compatible(value).split()).strip(" .,;:'\"")


def _folded(value: str) -> str:
    """Return a value in small letters with plain spaces, and digits alone where it has no letter."""
    plain = _small(value)
    if plain and not plain[0].isalpha() and not any(map(str.isalpha, plain)):
        return _NOT_ALNUM.sub("", plain) or plain
    return plain


def _once(*values: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, values))) or ("",)
