"""Check digits of identity numbers by country; each takes a number's letters and digits alone."""

from collections.abc import Callable, Sequence
from datetime import date
from string import ascii_uppercase, digits

from governance.detect.rules.checks import luhn

_CHARACTERS = digits + ascii_uppercase


def _sum(number: str, weights: Sequence[int]) -> int:
    return sum(
        _CHARACTERS.index(char) * weight for char, weight in zip(number, weights, strict=False)
    )


def _weighted(*weights: int, modulus: int, least: int = 0) -> Callable[[str], bool]:
    """Return whether digits, weighted and summed, are a multiple of ``modulus``."""

    def holds(number: str) -> bool:
        return number.isdigit() and _sum(number, weights) % modulus == least

    return holds


def _checked(
    modulus: int, *weights: int, ten: int = 0, minus: bool = True
) -> Callable[[str], bool]:
    """Return whether the digit behind the weighted ones is the rest, or what is missing to it."""

    def holds(number: str) -> bool:
        body, check = number[: len(weights)], number[len(weights)]
        rest = _sum(body, weights) % modulus
        if minus:
            rest = -rest % modulus
        return number.isdigit() and int(check) == (ten if rest == 10 else rest)

    return holds


def _all(*checks: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda number: all(check(number) for check in checks)


def _born(year: int, month: int, day: int) -> Callable[[str], bool]:
    """Return whether two digits each at these places are a day of some year."""

    def holds(number: str) -> bool:
        try:
            date(
                2000 + int(number[year : year + 2]),
                int(number[month : month + 2]),
                int(number[day : day + 2]),
            )
        except ValueError:
            return False
        return True

    return holds


def _iso_7064(number: str) -> bool:
    rest = 10
    for char in number[:-1]:
        rest = (int(char) + rest) % 10 or 10
        rest = rest * 2 % 11
    return (11 - rest) % 10 == int(number[-1])


def _de_tax_id(number: str) -> bool:
    counts = sorted(number[:10].count(char) for char in set(number[:10]))
    return number[0] != "0" and counts[-1] in (2, 3) and _iso_7064(number)


def _de_id_card(number: str) -> bool:
    return _sum(number[:9], (7, 3, 1) * 3) % 10 == int(number[9]) if number[9:].isdigit() else False


def _de_social(number: str) -> bool:
    plain = f"{number[:8]}{ord(number[8]) - 64:02}{number[9:11]}"
    weights = (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)
    total = sum(sum(map(int, str(int(c) * w))) for c, w in zip(plain, weights, strict=True))
    return total % 10 == int(number[11])


def _es_letter(number: str) -> bool:
    body = number[:-1].translate(str.maketrans("XYZ", "012"))
    return body.isdigit() and "TRWAGMYFPDXBNJZSQVHLCKE"[int(body) % 23] == number[-1]


_ODD = dict(zip(_CHARACTERS, (
    1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8,
    12, 14, 16, 10, 22, 25, 24, 23,
), strict=True))  # fmt: skip


def _it_fiscal_code(number: str) -> bool:
    even = sum(int(c) if c.isdigit() else ord(c) - 65 for c in number[1:15:2])
    return chr(65 + (even + sum(_ODD[c] for c in number[:15:2])) % 26) == number[15]


def _fi(number: str) -> bool:
    body = number[:6] + number[-4:-1]
    return body.isdigit() and "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(body) % 31] == number[-1]


def _two_digits(first: Sequence[int], second: Sequence[int]) -> Callable[[str], bool]:
    """Return whether two check digits hold, each what is missing to a multiple of 11."""

    def holds(number: str) -> bool:
        body = number[: len(first)]
        for weights in (first, second):
            body += str(-_sum(body, weights) % 11 % 10)
        return len(set(number)) > 1 and body == number

    return holds


_D5 = (
    "01234567891234067895234017895634012895674012395678"
    "59876043216598710432765982104387659321049876543210"
)
_P8 = "01234567891576283094580379614289160435279453126870428657390127938064157046913258"


def _verhoeff(number: str) -> bool:
    check = 0
    for place, char in enumerate(reversed(number)):
        moved = int(_P8[place % 8 * 10 + int(char)])
        check = int(_D5[check * 10 + moved])
    return check == 0


def _cn(number: str) -> bool:
    weights = [2 ** (17 - place) % 11 for place in range(17)]
    return (
        number[:17].isdigit()
        and _born(8, 10, 12)(number)
        and "10X98765432"[_sum(number[:17], weights) % 11] == number[17]
    )


def _jp(number: str) -> bool:
    rest = _sum(number[:11], (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return int(number[11]) == (0 if rest <= 1 else 11 - rest)


def _kr(number: str) -> bool:
    check = (11 - _sum(number, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10
    return _born(0, 2, 4)(number) and int(number[12]) == check


def _ru_snils(number: str) -> bool:
    return _sum(number, range(9, 0, -1)) % 101 % 100 == int(number[9:])


def _ru_inn(number: str) -> bool:
    body = number[:10]
    for weights in ((7, 2, 4, 10, 3, 5, 9, 4, 6, 8), (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)):
        body += str(_sum(body, weights) % 11 % 10)
    return body == number


def _tr(number: str) -> bool:
    tenth = (7 * sum(map(int, number[:9:2])) - sum(map(int, number[1:8:2]))) % 10
    return int(number[9]) == tenth and sum(map(int, number[:10])) % 10 == int(number[10])


def _sg(number: str) -> bool:
    total = _sum(number[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(number[0], 0)
    letters = "JZIHGFEDCBA" if number[0] in "ST" else "XWUTRQPNMLK"
    return letters[total % 11] == number[8] or number[0] == "M"


def _at(number: str) -> bool:
    total = _sum(number[:3] + number[4:], (3, 7, 9, 5, 8, 4, 2, 1, 6))
    return total % 11 == int(number[3])


def _be(number: str) -> bool:
    return any(97 - int(head + number[:9]) % 97 == int(number[9:]) for head in ("", "2"))


def _fr(number: str) -> bool:
    plain = number.replace("2A", "19").replace("2B", "18")
    return plain.isdigit() and 97 - int(plain[:13]) % 97 == int(plain[13:])


def _cz(number: str) -> bool:
    month = int(number[2:4]) % 50
    return (1 <= month <= 12 or 21 <= month <= 32) and int(number) % 11 == 0


def _no(number: str) -> bool:
    return _two_digits((3, 7, 6, 1, 8, 9, 4, 5, 2), (5, 4, 3, 2, 7, 6, 5, 4, 3, 2))(number)


def _ie(number: str) -> bool:
    more = number[8:]
    total = _sum(number[:7], range(8, 1, -1)) + 9 * (ord(more) - 64 if more else 0)
    return "WABCDEFGHIJKLMNOPQRSTUV"[total % 23] == number[7]


def _gr(number: str) -> bool:
    return _sum(number, [2 ** (8 - place) for place in range(8)]) % 11 % 10 == int(number[8])


def _ro(number: str) -> bool:
    rest = _sum(number, (2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)) % 11
    return _born(1, 3, 5)(number) and int(number[12]) == (1 if rest == 10 else rest)


def _hu(number: str) -> bool:
    return _sum(number, range(1, 10)) % 11 == int(number[9])


def _mx(number: str) -> bool:
    alphabet = "0123456789ABCDEFGHIJKLMN\u00d1OPQRSTUVWXYZ"
    total = sum(alphabet.index(char) * (18 - place) for place, char in enumerate(number[:17]))
    return str(-total % 10) == number[17]


def _cl(number: str) -> bool:
    check = -_sum(number[-2::-1], (2, 3, 4, 5, 6, 7, 2, 3)) % 11
    return "0123456789K"[check] == number[-1]


def _th(number: str) -> bool:
    return (11 - _sum(number, range(13, 1, -1)) % 11) % 10 == int(number[12])


def _ee(number: str) -> bool:
    rest = _sum(number, (1, 2, 3, 4, 5, 6, 7, 8, 9, 1)) % 11
    if rest == 10:
        rest = _sum(number, (3, 4, 5, 6, 7, 8, 9, 1, 2, 3)) % 11 % 10
    return _born(1, 3, 5)(number) and rest == int(number[10])


def _lu(number: str) -> bool:
    is_month = "01" <= number[4:6] <= "12"
    return is_month and luhn(number[:12]) and _verhoeff(number[:11] + number[12])


def _is(number: str) -> bool:
    check = -_sum(number, (3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return _born(4, 2, 0)(number) and number[9] in "890" and check == int(number[8])


def _co(number: str) -> bool:
    rest = _sum(number[-2::-1], (3, 7, 13, 17, 19, 23, 29, 37, 41)) % 11
    return int(number[-1]) == (rest if rest < 2 else 11 - rest)


def _nothing(number: str) -> bool:
    return len(set(number)) > 2


def _vat(number: str) -> bool:
    """Whether a VAT number is what its country calls a person by: elsewhere a company's is another number."""
    body = number[2:]
    match number[:2]:
        case "EL" | "GR":
            return _digits(body, 9) and _gr(body)
        case "ES":
            return (
                len(body) == 9
                and body[-1].isalpha()
                and body[1:8].isdigit()
                and body[0] in "0123456789XYZ"
            )
        case "PT":
            return _digits(body, 9) and body[0] in "123" and CHECKS["pt_nif"](body)
        case "BG":
            return _digits(body, 10) and CHECKS["bg_egn"](body)
        case "HR":
            return _digits(body, 11) and _iso_7064(body)
        case "IE":
            return len(body) in (8, 9) and body[:7].isdigit() and body[7:].isalpha() and _ie(body)
        case "CZ" | "SK":
            return _digits(body, 10) and _cz(body)
        case "NL":
            return body[9:10] == "B" and _digits(body[:9], 9) and CHECKS["nl_bsn"](body[:9])
        case "SE":
            return _digits(body, 12) and CHECKS["se_personnummer"](body[:10])
        case "RO":
            return _digits(body, 13) and _ro(body)
        case _:
            return False


def _digits(text: str, count: int) -> bool:
    return len(text) == count and text.isdigit()


CHECKS: dict[str, Callable[[str], bool]] = {
    "format": _nothing,
    "luhn": luhn,
    "iso_7064": _iso_7064,
    "de_tax_id": _de_tax_id,
    "de_id_card": _de_id_card,
    "de_social": _de_social,
    "es_letter": _es_letter,
    "it_fiscal_code": _it_fiscal_code,
    "nl_bsn": _weighted(9, 8, 7, 6, 5, 4, 3, 2, -1, modulus=11),
    "pl_pesel": _checked(10, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3),
    "se_personnummer": lambda number: _born(0, 2, 4)(number[-10:]) and luhn(number[-10:]),
    "fi_hetu": _fi,
    "br_cpf": _two_digits(range(10, 1, -1), range(11, 1, -1)),
    "br_cnpj": _two_digits(
        (5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2), (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)
    ),
    "verhoeff": _verhoeff,
    "cn_resident": _cn,
    "jp_my_number": _jp,
    "kr_resident": _kr,
    "ru_snils": _ru_snils,
    "ru_inn": _ru_inn,
    "tr_kimlik": _tr,
    "au_tfn": _weighted(1, 4, 3, 7, 5, 8, 6, 9, 10, modulus=11),
    "au_medicare": _checked(10, 1, 3, 7, 9, 1, 3, 7, 9, minus=False),
    "sg_nric": _sg,
    "ean_13": _checked(10, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3),
    "at_svnr": _at,
    "be_national": _be,
    "fr_nir": _fr,
    "pt_nif": _checked(11, 9, 8, 7, 6, 5, 4, 3, 2),
    "cz_birth": _cz,
    "day_first": _born(4, 2, 0),
    "no_birth": _no,
    "ie_pps": _ie,
    "gr_afm": _gr,
    "gr_amka": _all(_born(4, 2, 0), luhn),
    "ro_cnp": _ro,
    "bg_egn": _checked(11, 2, 4, 8, 5, 10, 9, 7, 3, 6, minus=False),
    "hu_tax": _hu,
    "za_id": _all(_born(0, 2, 4), luhn),
    "mx_curp": _mx,
    "ar_cuit": _checked(11, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2),
    "cl_rut": _cl,
    "th_pin": _th,
    "ee_code": _ee,
    "lu_matricule": _lu,
    "is_kennitala": _is,
    "co_nit": _co,
    "vat_of_a_person": _vat,
}
"""By the names that the table of identity numbers uses."""
