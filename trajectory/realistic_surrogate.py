"""Realistic surrogates: values that look real, pass for their type in a tool's schema, and are nobody's.

Mail, URLs and names of users are of invented words, under ``.invalid`` (RFC 2606); telephones are
555-01xx lines, addresses of 198.18.0.0/15 (RFC 2544) and 2001:db8::/32 (RFC 3849), cards of the range
of test cards, social security numbers of area 000, accounts of the country XX. Words and cards hold a
keyed check, so that the installation knows its own again; all others are known by ranges that nobody
has. No surrogate is the beginning of another.
"""

import hmac
import re
from collections.abc import Iterator
from hashlib import blake2b

_CONSONANTS, _VOWELS = "bdfghklmnprstvzj", "aeio"
_WORD = rf"[{_CONSONANTS}](?:[{_VOWELS}][{_CONSONANTS}]){{4}}"
"""Nine letters: 18 bits that say which word it is, and 10 that check it."""
_CHECK_BITS = 10
_OF_NAMES, _OF_OTHERS = 0, 1 << 17
"""Words of names and of addresses differ, so that no name begins an address."""
_AREAS = tuple(f"{a}{b}{c}" for a in range(2, 10) for b in range(9) for c in range(10))
_SHORT = r"[^\W\d_]{1,2}\b(?!['\u2019-])"
_NAME_UNIT = re.compile(
    rf"(?:{_SHORT}[.\s]*)*"
    r"(?:[^\W\d_]{3,}|[^\W\d_]{1,2}(?=['\u2019-]))(?:['\u2019-][^\W\d_]+)*"
    rf"(?:\s+{_SHORT}\.?)*"
)
"""A word of a name, with the initials and the particles before and behind it."""
_ALONE, _ENDED = r"(?<![\w.+-])", r"(?![\w-]|\.\w)"
_FORMS = re.compile(
    rf"{_ALONE}(?P<url>(?:https?://)?(?P<u1>{_WORD})-(?P<u2>{_WORD})\.invalid/?)(?![\w/?#-]|\.\w)"
    rf"|{_ALONE}(?P<mail>(?P<m1>{_WORD})\.(?P<m2>{_WORD})@mail\.invalid){_ENDED}"
    rf"|(?<![A-Za-z0-9])(?P<user>(?P<n1>{_WORD})_(?P<n2>{_WORD}))(?![A-Za-z0-9])"
    rf"|(?<![A-Za-z0-9])(?<![A-Za-z0-9][.@_+/-])(?P<name>(?i:{_WORD}))"
    r"(?=s?(?![A-Za-z0-9]|[.@_+/-][A-Za-z0-9]))"
    rf"|{_ALONE}(?:198\.1[89]\.[12]\d\d\.[12]\d\d|2001:db8(?::[0-9a-f]{{4}}){{6}}){_ENDED}"
    r"|(?<![\w+-])(?:\+1-?)?[2-9][0-8]\d(?:-555-01|55501)\d\d(?![\w-])"
    r"|(?<![\w-])000(?:-\d\d-|\d\d)\d{4}(?![\w-])"
    r"|(?<![\w-])(?P<card>4000(?P<gap>[ -]?)00\d\d(?P=gap)\d{4}(?P=gap)\d{4})(?![\w-])"
    r"|(?<!\w)XX\d\d(?: ?\d{4}){4}(?!\w)"
)
SIMILAR = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,60}@mail\.invalid(?![\w-])|(?<![\w.])198\.1[89]\.[12]\d\d\.[12]\d\d(?![\w.])"
    r"|(?<![\w+-])(?:\+1-?)?[2-9][0-8]\d(?:-555-01|55501)\d\d(?!\w)|(?<![\w-])000-\d\d-\d{4}(?![\w-])"
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
            return _phone(number, written)
        case "IP_ADDRESS" if ":" in written:
            groups = [f"{number >> 16 * at & 0xFFFF:04x}" for at in range(6)]
            return f"2001:db8:{':'.join(groups)}"
        case "IP_ADDRESS":
            third, fourth = number >> 1, (number >> 1) // 155
            return f"198.{18 + number % 2}.{100 + third % 155}.{100 + fourth % 155}"
        case "CREDIT_CARD":
            return _card(number, written, check)
        case "US_SSN":
            parts = ("000", f"{1 + number % 99:02d}", f"{1 + (number >> 8) % 9999:04d}")
            return ("" if written.isdigit() else "-").join(parts)
        case "IBAN_CODE":
            return _iban(number, written)
    return None


def name_units(written: str) -> list[tuple[int, int]]:
    """Return where the words of a name stand, each with its initials and particles; none where it has no word."""
    return [one.span() for one in _NAME_UNIT.finditer(written)]


def own_spans(text: str, check: bytes) -> Iterator[tuple[int, int]]:
    """Yield where realistic surrogates of an installation stand in a text."""
    for found in _FORMS.finditer(text):
        said = found.groupdict()
        if said["card"] is not None:
            digits = re.sub(r"\D", "", found[0])
            own = digits == _card_digits(int(digits[6:12]), check)
        else:
            words = [said[one] for one in ("u1", "u2", "m1", "m2", "n1", "n2", "name")]
            own = all(_is_own(one.lower(), check) for one in words if one is not None)
        if own:
            yield found.span()


def _plain(entity: str, written: str) -> str:
    """Return what a surrogate is drawn from: names by their letters, for each case keeps its own."""
    return written.lower() if entity == "PERSON" else written


def _word(number: int, kind: int, check: bytes) -> str:
    chosen = number % _OF_OTHERS | kind
    rest = chosen << _CHECK_BITS | _checked(chosen, check)
    letters = []
    for at in range(9):
        size, alphabet = (2, _VOWELS) if at % 2 else (4, _CONSONANTS)
        letters.append(alphabet[rest & (1 << size) - 1])
        rest >>= size
    return "".join(letters)


def _words(number: int, check: bytes) -> tuple[str, str]:
    return _word(number, _OF_OTHERS, check), _word(number >> 20, _OF_OTHERS, check)


def _checked(chosen: int, check: bytes) -> int:
    hashed = blake2b(chosen.to_bytes(8), key=check, digest_size=2, person=b"surrogates")
    return int.from_bytes(hashed.digest()) & (1 << _CHECK_BITS) - 1


def _is_own(word: str, check: bytes) -> bool:
    """Whether an invented word holds its check."""
    number = size = 0
    for at, letter in enumerate(word):
        bits, alphabet = (2, _VOWELS) if at % 2 else (4, _CONSONANTS)
        number |= alphabet.index(letter) << size
        size += bits
    return number & (1 << _CHECK_BITS) - 1 == _checked(number >> _CHECK_BITS, check)


def _phone(number: int, written: str) -> str:
    area, line = _AREAS[number % len(_AREAS)], f"{(number >> 16) % 100:02d}"
    if written.lstrip("+").isdigit():
        return f"{'+1' if written[0] == '+' else ''}{area}55501{line}"
    return f"{'+1-' if written[:1] == '+' else ''}{area}-555-01{line}"


def _card_digits(chosen: int, check: bytes) -> str:
    """Return the digits of a test card: what was chosen, three that check it, and the last that all cards have."""
    bare = f"400000{chosen:06d}{_checked(chosen, check) % 1000:03d}"
    total = sum(sum(divmod(int(digit) * (2 - at % 2), 10)) for at, digit in enumerate(bare))
    return f"{bare}{-total % 10}"


def _card(number: int, written: str, check: bytes) -> str:
    digits = _card_digits(number % 10**6, check)
    gap = next((one for one in " -" if one in written), "")
    return gap.join(digits[at : at + 4] for at in range(0, 16, 4))


def _iban(number: int, written: str) -> str:
    """Return an account number of a country that will never be one, with the right check digits."""
    account = f"{number % 10**16:016d}"
    left = 98 - int(account + "333300") % 97  # XX is 33 33
    whole = f"XX{left:02d}{account}"
    gap = " " if " " in written else ""
    return gap.join(whole[at : at + 4] for at in range(0, len(whole), 4))
