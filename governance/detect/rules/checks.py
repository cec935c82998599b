"""Checks of structure and checksum: what turns a pattern's guess into a finding, or away from one."""

import ipaddress
import itertools
import math
import re

from governance.detect.rules.account_checks import person_account
from governance.detect.rules.password_checks import stands_for_one

_NOT_DIGITS = re.compile(r"\D+")

_LENGTHS = {
    "4": (13, 16, 19),
    "5": (16,),
    "2": (16,),
    "34": (15,),
    "37": (15,),
    "30": (14, 16),
    "36": (14, 16, 19),
    "38": (14, 16),
    "39": (14, 16),
    "35": (16, 17, 18, 19),
    "60": (16, 17, 18, 19),
    "62": (16, 17, 18, 19),
    "64": (16, 17, 18, 19),
    "65": (16, 17, 18, 19),
}


def digits_of(text: str) -> str:
    """Return the digits of a text, in order."""
    return _NOT_DIGITS.sub("", text)


_DOUBLED = str.maketrans("0123456789", "0246813579")


def luhn(digits: str) -> bool:
    """Whether the digits satisfy Luhn's check."""
    plain, doubled = digits[-1::-2], digits[-2::-2].translate(_DOUBLED)
    return (sum(map(int, plain)) + sum(map(int, doubled))) % 10 == 0


def _issued(digits: str) -> bool:
    """Whether a card scheme issues numbers that begin and end like this."""
    if digits[0] == "5":
        return "51" <= digits[:2] <= "55" and len(digits) == 16
    if digits[0] == "2":
        return "2221" <= digits[:4] <= "2720" and len(digits) == 16
    if digits[:2] == "60":
        return digits[:4] == "6011" and len(digits) in _LENGTHS["60"]
    lengths = _LENGTHS.get(digits[0]) or _LENGTHS.get(digits[:2], ())
    return len(digits) in lengths


def issued_card(digits: str) -> bool:
    """Whether digits alone are a card's number, whatever stands around them: issuer, length and Luhn."""
    return _issued(digits) and luhn(digits) and len(set(digits)) > 1


def card(value: str) -> bool | None:
    """True for an issuer's prefix, length and Luhn; None when context has to tell; False for neither."""
    digits = digits_of(value)
    if not 12 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    issued = _issued(digits)
    if luhn(digits):
        return True if issued else None
    grouped = len(digits) in (15, 16) and value.count(" ") + value.count("-") in (2, 3)
    return None if grouped or issued else False


_ENDINGS = re.compile(r"[^\W\d_]{2,24}|xn--[a-z0-9\-]{2,20}", re.IGNORECASE)
_COMMON_ENDINGS = """
    com org net edu gov mil int info biz name app dev io ai co me us uk de fr it es nl ch at be pl se
    no dk fi cz pt eu ca au nz jp cn in br mx ru za invalid test example local internal lan
    """


_LAST_WORD = re.compile(r"[^\w.\-]")
NOBODYS_BOXES = frozenset(
    (
        "git", "hg", "svn", "noreply", "no-reply", "donotreply", "do-not-reply", "root", "ubuntu", "ec2-user",
        "www-data", "postgres", "runner", "vagrant", "jenkins", "centos", "debian", "azureuser", "opc", "nobody",
        "deploy", "deployer", "bot", "buildbot", "mailer-daemon", "postmaster", "hostmaster",
    )
)  # fmt: skip
"""What stands before the @ of a code host or a machine, or where no answer is read."""


_OF_ACCOUNTS = ("users.noreply.github.com", ".gserviceaccount.com")
"""Hosts whose mailboxes are accounts, of programs too."""
_FULL_STOPS = str.maketrans("\u3002\uff61", "..")
"""Stops of other scripts, which stand for the dot of a host."""


def email(value: str) -> bool | None:
    """Whether both sides of the @ can be a mailbox's; False for decorators and locale names."""
    mailbox, _, host = value.strip('"').rpartition("@")
    host = host.translate(_FULL_STOPS)
    ending = host.rpartition(".")[2]
    word = _LAST_WORD.split(mailbox.lower())[-1]
    if not any(char.isalnum() for char in mailbox) or word in NOBODYS_BOXES:
        return False
    if host.endswith(_OF_ACCOUNTS) and person_account(word) is False:
        return False
    if _ENDINGS.fullmatch(ending):
        return True
    start = _ENDINGS.match(ending)
    return start is not None and start.group().lower() in _COMMON_ENDINGS.split()


_OCTET = re.compile(r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\Z")
"""A house number in its only form; only its size is checked."""


def ip_address(value: str) -> bool:
    """Whether the value is an address (or network) that says something about somebody."""
    octets = value.split(".")
    if len(octets) == 4 and all(map(_OCTET.match, octets)):
        return octets[0] not in ("0", "255") and value != "127.0.0.1"
    if "." not in value and value.count(":") < 3 and len(value.replace(":", "")) < 5:
        return False  # `a::b` of a program
    try:
        address = ipaddress.ip_interface(value.partition("%")[0]).ip
    except ValueError:
        return False
    return not (address.is_unspecified or address in _NOBODY or _network(value, address))


_DOCUMENTATION = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32",
        "192.0.0.0/24", "100::/64", "2001::/23", "::ffff:0:0/96", "ff00::/8",
    )
)  # fmt: skip


def documentation(value: str) -> bool:
    """Whether an address is set aside for examples (RFC 5737, 3849), protocols or groups (RFC 6890)."""
    try:
        address = ipaddress.ip_interface(value.partition("%")[0]).ip
    except ValueError:
        return False
    return any(address in network for network in _DOCUMENTATION)


def _network(value: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether this is a mask or a whole network, which is nobody's address."""
    if address.version == 4 and value.startswith(("255.", "0.")):
        return True
    if "/" not in value:
        return False
    network = ipaddress.ip_interface(value.partition("%")[0]).network
    wide = network.prefixlen <= (24 if address.version == 4 else 48)
    return address == network.network_address and (wide or documentation(value))


_NOBODY = frozenset(map(ipaddress.ip_address, ("127.0.0.1", "::1", "255.255.255.255")))


def ssn(value: str) -> bool:
    """Whether the social security administration could have issued this number."""
    digits = digits_of(value)
    return (
        len(digits) == 9
        and len(set(digits)) > 1
        and digits[:3] not in ("000", "666")
        and digits[3:5] != "00"
        and digits[5:] != "0000"
        and digits not in ("123456789", "987654321")
    )


_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_VIN_VALUES = dict(
    zip(
        "ABCDEFGHJKLMNPRSTUVWXYZ",
        (1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 7, 9, 2, 3, 4, 5, 6, 7, 8, 9),
        strict=True,
    )
)


def vin(value: str) -> bool | None:
    """True for a vehicle number whose check digit holds; None when context has to tell."""
    if not any(char.isdigit() for char in value) or not any(char.isalpha() for char in value):
        return False
    total = sum(
        (int(char) if char.isdigit() else _VIN_VALUES.get(char, 0)) * weight
        for char, weight in zip(value, _VIN_WEIGHTS, strict=True)
    )
    return True if value[8] == "0123456789X"[total % 11] else None


def mac(value: str) -> bool:
    """Whether this is the address of one network card and not broadcast or nothing."""
    plain = re.sub(r"[^0-9A-Fa-f]", "", value).lower()
    return len(plain) == 12 and len(set(plain)) > 1


def entropy(value: str) -> float:
    """Return the Shannon entropy of the characters, in bits each."""
    counts = {char: value.count(char) for char in set(value)}
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())


_OBJECT = re.compile(
    r"(?:os|self|this|cls|req|request|response|session|config|settings|args|ctx|context|process|"
    r"options|params|data|event|env|app|user|current_user|sys|form|state|props)\."
)


def user_name(value: str) -> bool | None:
    """False for a piece of a program (``os.environ``) or a service, else context decides."""
    return False if _OBJECT.match(value) or not person_account(value) else None


_CALL = re.compile(r"[A-Za-z_][\w.]*[(\[]")


def secret_value(value: str) -> bool:
    """Whether a value beside a secret's name looks like the secret itself and not like code."""
    if stands_for_one(value) or value.endswith(("(", "[", "{")) or _CALL.match(value):
        return False
    has_digit = _has_digit(value)
    has_letter = any(char.isalpha() for char in value)
    if has_digit and has_letter:
        return len(set(value)) >= 4
    marks = sum(not char.isalnum() and char not in "._-/:" for char in value)
    return marks > 0 and has_letter and entropy(value) > 2.3


def quoted_value(value: str) -> bool:
    """The same for a value in quotation marks, where a plain word may be the secret."""
    if stands_for_one(value) or " " in value.strip():
        return False
    return len(set(value)) >= 4 and (
        value.isdigit() or secret_value(value) or _letters_at_random(value)
    )


_WORDS = re.compile(
    r"[a-z]*(?:[A-Z][a-z]{2,}|My|Is|On|In|To|Id|Ok|By|Do|No|Up|At|Or|If|Of|As|[A-Z]{2,5}(?=[A-Z][a-z]|\Z))*\Z"
)


def _letters_at_random(value: str) -> bool:
    """Whether letters change case as no words joined together do."""
    return (
        7 <= len(value) <= 64
        and value.isalpha()
        and value.isascii()
        and not (value.islower() or value.isupper() or value.istitle() or _WORDS.match(value))
    )


def issued_token(value: str) -> bool:
    """Whether a word with an issuer's prefix is a key and not words joined by hyphens."""
    return _random(value) and (_has_digit(value) or _flips(value) >= 5)


def long_token(value: str) -> bool:
    """Whether a long word is random enough to be a key without any prefix."""
    return _random(value) and (_has_digit(value) or _flips(value) >= 0.4 * len(value))


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r"[0-9a-f]+", re.IGNORECASE)
_NAMES_AN_ID = re.compile(r"[a-z]{1,8}_")


def link_token(value: str) -> bool:
    """Whether a part of an address is drawn, where the part before says that such a one lets in."""
    return _UUID.fullmatch(value) is not None or _drawn(value)


def path_token(value: str) -> bool:
    """Whether a part of a path is drawn, and no id, no hash and no UUID, which addresses have anywhere."""
    return (
        _drawn(value)
        and _UUID.fullmatch(value) is None
        and _HASH.fullmatch(value) is None
        and _NAMES_AN_ID.match(value) is None
    )


def _drawn(value: str) -> bool:
    """Whether letters and digits follow each other as in no words that are joined."""
    if not _random(value):
        return False
    if not _has_digit(value):
        return _flips(value) >= 0.4 * len(value)
    turns = sum(
        (a.isdigit() and b.isalpha())
        or (a.isalpha() and b.isdigit())
        or (a.islower() and b.isupper())
        for a, b in itertools.pairwise(value)
    )
    return turns >= max(4, len(value) // 6)


def _random(value: str) -> bool:
    kinds = (
        _has_digit(value)
        + any(char.islower() for char in value)
        + any(char.isupper() for char in value)
    )
    return len(value) >= 16 and kinds >= 2 and entropy(value) >= 3.0


def _has_digit(value: str) -> bool:
    return any(char.isdigit() for char in value)


def _flips(value: str) -> int:
    """Count where case changes between neighbours: CamelCase has few, random keys many."""
    pairs = itertools.pairwise(value)
    return sum(a.islower() != b.islower() for a, b in pairs if a.isalpha() and b.isalpha())


_IBANS = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27
DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22
IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19
MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 SC31
SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
    """
_IBAN_LENGTHS = {pair[:2]: int(pair[2:]) for pair in _IBANS.split()}


def iban_end(value: str) -> int | None:
    """Return where an IBAN that begins ``value`` ends, or None when its checksum does not hold."""
    length = _IBAN_LENGTHS.get(value[:2].upper())
    if length is None:
        return None
    kept: list[str] = []
    for place, char in enumerate(value):
        if char.isalnum():
            kept.append(char)
        if len(kept) == length:
            plain = "".join(kept).upper()
            turned = plain[4:] + plain[:4]
            number = "".join(char if char.isdigit() else str(ord(char) - 55) for char in turned)
            return place + 1 if int(number) % 97 == 1 else None
    return None
