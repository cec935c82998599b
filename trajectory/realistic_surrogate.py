"""Realistic surrogates: values that look real, pass for their type in a tool's schema, and are nobody's.

All come from ranges that belong to nobody:

- mail, URLs and names of users: invented words under ``.invalid`` (RFC 2606);
- telephones: the area N9X, which North America keeps for later;
- addresses: 240.0.0.0/4 (RFC 1112) and 2001:db8::/32 (RFC 3849);
- cards: the range of test cards;
- social security numbers: group 00;
- accounts: the country XX.

People write values of such ranges too, so a range alone tells nothing. Each surrogate holds a keyed
check, by which the installation knows its own again. No surrogate is the beginning of another.
"""

import hmac
import re
from collections.abc import Iterator
from hashlib import blake2b

_CONSONANTS, _VOWELS = "bdfghklmnprstvzj", "aeio"
_WORD = rf"[{_CONSONANTS}](?:[{_VOWELS}][{_CONSONANTS}]){{4}}"
"""Nine letters: 18 bits that say which word it is, and 10 that check it."""
_CHECK_BITS = 10
_OCTETS = 155
"""Parts of an address have three digits, 100 to 254, so that none is the beginning of another."""
_IPV4_CHECKS = 1000
_IPV4_CHOICES = 15 * _OCTETS**3 // _IPV4_CHECKS
_OF_NAMES, _OF_OTHERS = 0, 1 << 17
"""Words of names and of addresses differ, so that no name begins an address."""
_SHORT = r"[^\W\d_]{1,2}\b(?!['\u2019-])"
_NAME_UNIT = re.compile(
    rf"(?:{_SHORT}[.\s]*)*"
    r"(?:[^\W\d_]{3,}|[^\W\d_]{1,2}(?=['\u2019-]))(?:['\u2019-][^\W\d_]+)*"
    rf"(?:\s+{_SHORT}\.?)*"
)
"""A word of a name, with the initials and the particles before and behind it."""
_AREA = "[2-9]9[0-9]"
_ALONE, _ENDED = r"(?<![\w.+-])", r"(?![\w-]|\.\w)"
_FORMS = re.compile(
    rf"{_ALONE}(?P<url>(?:https?://)?(?P<u1>{_WORD})-(?P<u2>{_WORD})\.invalid/?)(?![\w/?#-]|\.\w)"
    rf"|{_ALONE}(?P<mail>(?P<m1>{_WORD})\.(?P<m2>{_WORD})@mail\.invalid){_ENDED}"
    rf"|(?<![A-Za-z0-9])(?P<user>(?P<n1>{_WORD})_(?P<n2>{_WORD}))(?![A-Za-z0-9])"
    rf"|(?<![A-Za-z0-9])(?<![A-Za-z0-9][.@_+/-])(?P<name>(?i:{_WORD}))"
    r"(?=s?(?![A-Za-z0-9]|[.@_+/-][A-Za-z0-9]))"
    rf"|{_ALONE}(?P<ipv4>2(?:4\d|5[0-4])(?:\.[12]\d\d){{3}}){_ENDED}"
    rf"|{_ALONE}(?P<ipv6>2001:db8(?::[0-9a-f]{{4}}){{6}}){_ENDED}"
    rf"|(?<![\w+-])(?P<phone>(?:\+1-)?{_AREA}-[2-9]\d\d-\d{{4}}|(?:\+1)?{_AREA}[2-9]\d{{6}})(?![\w-])"
    r"|(?<![\w-])(?P<ssn>[5-8]\d\d(?:-00-|00)\d{4})(?![\w-])"
    r"|(?<![\w-])(?P<card>4000(?P<gap>[ -]?)00\d\d(?P=gap)\d{4}(?P=gap)\d{4})(?![\w-])"
    r"|(?<!\w)(?P<iban>XX\d\d(?: ?\d{4}){4})(?!\w)"
)
SIMILAR = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,60}@mail\.invalid(?![\w-])"
    r"|(?<![\w.])2(?:4\d|5[0-4])(?:\.[12]\d\d){3}(?![\w.])"
    rf"|(?<![\w+-])(?:\+1-?)?{_AREA}(?:-[2-9]\d\d-\d{{4}}|[2-9]\d{{6}})(?!\w)"
    r"|(?<![\w-])[5-8]\d\d-00-\d{4}(?![\w-])"
)
"""What somebody may have meant for one; of words alone nobody could tell."""


def drawn(key: bytes, entity: str, written: str, *, check: bytes, attempt: int = 0) -> str | None:
    """Return what stands for a value within the scope of a key; None for types that have no range.

    Args:
        key: the key of the scope.
        entity: the value's type.
        written: the value, exactly as it is written; of a name one of its :func:`name_units`.
        check: the key by which the installation knows its own.
        attempt: how many of its surrogates stood for other values already.
    """
    said = "\x1f".join(("realistic", entity, str(attempt), _plain(entity, written)))
    number = int.from_bytes(hmac.digest(key, said.encode("utf-8", "surrogatepass"), "sha256"))
    match entity:
        case "PERSON":
            word = _word(number, _OF_NAMES, check)
            if written.isupper():
                return word.upper()
            return word if written.islower() else word.capitalize()
        case "EMAIL_ADDRESS":
            return f"{'.'.join(_words(number, check))}@mail.invalid"
        case "USERNAME":
            return "_".join(_words(number, check))
        case "PERSONAL_URL":
            bare = f"{'-'.join(_words(number, check))}.invalid"
            return f"https://{bare}/" if written.lower().startswith("http") else bare
        case "PHONE_NUMBER":
            return _phone(number, written, check)
        case "IP_ADDRESS" if ":" in written:
            return _ipv6(number % 2**64, check)
        case "IP_ADDRESS":
            return _ipv4(number % _IPV4_CHOICES, check)
        case "CREDIT_CARD":
            return _card(number, written, check)
        case "US_SSN":
            return _ssn(number, written, check)
        case "IBAN_CODE":
            return _iban(number, written, check)
    return None


def name_units(written: str) -> list[tuple[int, int]]:
    """Return where the words of a name stand, each with its initials and particles; none where it has no word."""
    return [one.span() for one in _NAME_UNIT.finditer(written)]


def own_spans(text: str, check: bytes) -> Iterator[tuple[int, int]]:
    """Yield where realistic surrogates of an installation stand in a text."""
    for found in _FORMS.finditer(text):
        if _holds_check(found, check):
            yield found.span()


def _holds_check(found: re.Match[str], check: bytes) -> bool:
    """Whether what has the form of a surrogate was made with this check."""
    written = found[0]
    digits = re.sub(r"\D", "", written)
    match found.lastgroup:
        case "phone":
            return digits[-4:] == _digits(int(digits[-10:-4]), 4, check)
        case "ssn":
            return digits[-3:] == _digits(int(digits[:-3]), 3, check)
        case "card":
            return digits == _card_digits(int(digits[6:12]), check)
        case "iban":
            return "XX" + digits == _account(int(digits[2:12]), check)
        case "ipv6":
            return written == _ipv6(int(written[9:28].replace(":", ""), 16), check)
        case "ipv4":
            return written == _ipv4(_number_of(written) // _IPV4_CHECKS, check)
    said = found.groupdict()
    words = [said[one] for one in ("u1", "u2", "m1", "m2", "n1", "n2", "name")]
    return all(_is_own(one.lower(), check) for one in words if one is not None)


def _plain(entity: str, written: str) -> str:
    """Return what a surrogate is drawn from: names by their letters, for each case keeps its own."""
    return written.lower() if entity == "PERSON" else written


def _word(number: int, kind: int, check: bytes) -> str:
    chosen = number % _OF_OTHERS | kind
    rest = chosen << _CHECK_BITS | _checked(chosen, 1 << _CHECK_BITS, check)
    letters = []
    for at in range(9):
        size, alphabet = (2, _VOWELS) if at % 2 else (4, _CONSONANTS)
        letters.append(alphabet[rest & (1 << size) - 1])
        rest >>= size
    return "".join(letters)


def _words(number: int, check: bytes) -> tuple[str, str]:
    return _word(number, _OF_OTHERS, check), _word(number >> 20, _OF_OTHERS, check)


def _checked(chosen: int, size: int, check: bytes) -> int:
    """Return the check of what was chosen, less than ``size``."""
    said = chosen.to_bytes(8) + size.to_bytes(8)
    hashed = blake2b(said, key=check, digest_size=8, person=b"surrogates")
    return int.from_bytes(hashed.digest()) % size


def _digits(chosen: int, count: int, check: bytes) -> str:
    """Return the check of what was chosen, as digits."""
    return f"{_checked(chosen, 10**count, check):0{count}d}"


def _is_own(word: str, check: bytes) -> bool:
    """Whether an invented word holds its check."""
    number = size = 0
    for at, letter in enumerate(word):
        bits, alphabet = (2, _VOWELS) if at % 2 else (4, _CONSONANTS)
        number |= alphabet.index(letter) << size
        size += bits
    size = 1 << _CHECK_BITS
    return number % size == _checked(number // size, size, check)


def _phone(number: int, written: str, check: bytes) -> str:
    """Return a telephone: its area and office are chosen, its line checks them."""
    area = f"{2 + number % 8}9{number // 8 % 10}"
    office = f"{200 + number // 80 % 800}"
    line = _digits(int(area + office), 4, check)
    gap = "" if written.lstrip("+").isdigit() else "-"
    return gap.join((*(["+1"] if written[:1] == "+" else []), area, office, line))


def _ssn(number: int, written: str, check: bytes) -> str:
    """Return a social security number of group 00, whose last three digits check the others."""
    area, first = f"{500 + number % 400}", f"{number // 400 % 10}"
    serial = first + _digits(int(f"{area}00{first}"), 3, check)
    return ("" if written.isdigit() else "-").join((area, "00", serial))


def _ipv6(chosen: int, check: bytes) -> str:
    said = f"{chosen:016x}{_checked(chosen, 2**32, check):08x}"
    return ":".join(("2001:db8", *(said[at : at + 4] for at in range(0, 24, 4))))


def _ipv4(chosen: int, check: bytes) -> str:
    rest = chosen * _IPV4_CHECKS + _checked(chosen, _IPV4_CHECKS, check)
    octets = []
    for _ in range(3):
        rest, octet = divmod(rest, _OCTETS)
        octets.append(f"{100 + octet}")
    return ".".join((f"{240 + rest}", *octets))


def _number_of(ipv4: str) -> int:
    """Return the number that an address of ours is written from."""
    first, *others = map(int, ipv4.split("."))
    number = first - 240
    for octet in reversed(others):
        number = number * _OCTETS + octet - 100
    return number


def _card_digits(chosen: int, check: bytes) -> str:
    """Return the digits of a test card: what was chosen, three that check it, and the last that all cards have."""
    bare = f"400000{chosen:06d}{_digits(chosen, 3, check)}"
    total = sum(sum(divmod(int(digit) * (2 - at % 2), 10)) for at, digit in enumerate(bare))
    return f"{bare}{-total % 10}"


def _card(number: int, written: str, check: bytes) -> str:
    digits = _card_digits(number % 10**6, check)
    gap = next((one for one in " -" if one in written), "")
    return gap.join(digits[at : at + 4] for at in range(0, 16, 4))


def _account(chosen: int, check: bytes) -> str:
    """Return an account of a country that will never be one, with the right check digits and ours."""
    account = f"{chosen:010d}{_digits(chosen, 6, check)}"
    left = 98 - int(account + "333300") % 97  # XX is 33 33
    return f"XX{left:02d}{account}"


def _iban(number: int, written: str, check: bytes) -> str:
    whole = _account(number % 10**10, check)
    gap = " " if " " in written else ""
    return gap.join(whole[at : at + 4] for at in range(0, len(whole), 4))
