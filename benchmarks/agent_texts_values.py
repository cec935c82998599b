"""Identity numbers and phones of many countries for labelled texts, with check digits worked out.

They are drawn at random and belong to nobody on purpose. How a check digit is made is written here
by itself, apart from the detectors' checks.
"""

import random
import string
from collections.abc import Callable, Sequence

type Draw = random.Random
type Maker = Callable[[Draw], str]


def digits(draw: Draw, count: int, first: str = string.digits) -> str:
    """Return so many random digits."""
    return draw.choice(first) + "".join(draw.choices(string.digits, k=count - 1))


def _sum(text: str, weights: Sequence[int]) -> int:
    return sum(int(char) * weight for char, weight in zip(text, weights, strict=False))


def _born(draw: Draw) -> tuple[int, int, int]:
    return draw.randrange(1950, 2000), draw.randrange(1, 13), draw.randrange(1, 29)


def _yymmdd(draw: Draw) -> str:
    year, month, day = _born(draw)
    return f"{year % 100:02}{month:02}{day:02}"


def _ddmmyy(draw: Draw) -> str:
    year, month, day = _born(draw)
    return f"{day:02}{month:02}{year % 100:02}"


def _luhn(body: str) -> str:
    total = 0
    for place, char in enumerate(reversed(body)):
        value = int(char) * (2 - place % 2)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


def _until(make: Callable[[], str | None]) -> str:
    while (value := make()) is None:
        pass
    return value


def _iso_11_10(body: str) -> str:
    rest = 10
    for char in body:
        rest = (int(char) + rest) % 10 or 10
        rest = rest * 2 % 11
    return str((11 - rest) % 10)


def de_tax_id(draw: Draw) -> str:
    """Ten digits of which exactly one stands twice, and the check digit."""
    chosen = draw.sample(string.digits, 9)
    chosen.append(draw.choice(chosen))
    draw.shuffle(chosen)
    while chosen[0] == "0":
        draw.shuffle(chosen)
    body = "".join(chosen)
    return body + _iso_11_10(body)


def de_id_card(draw: Draw) -> str:
    """One letter of the office, eight characters, check digit by 7, 3, 1."""
    alphabet = "CFGHJKLMNPRTVWXYZ0123456789"
    body = draw.choice("LMNPRTVWXY") + "".join(draw.choices(alphabet, k=8))
    worth = [int(c) if c.isdigit() else ord(c) - 55 for c in body]
    return body + str(sum(v * (7, 3, 1)[i % 3] for i, v in enumerate(worth)) % 10)


def de_social(draw: Draw) -> str:
    """Area, birth, letter, serial, check digit."""
    area = draw.choice(("12", "15", "65", "53", "26", "44"))
    letter = draw.choice("BHKMSW")
    serial = digits(draw, 2)
    body = f"{area}{_ddmmyy(draw)}{letter}{serial}"
    plain = f"{body[:8]}{ord(letter) - 64:02}{serial}"
    total = sum(
        sum(map(int, str(int(c) * w)))
        for c, w in zip(plain, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1), strict=True)
    )
    return body + str(total % 10)


_DNI = "TRWAGMYFPDXBNJZSQVHLCKE"


def es_dni(draw: Draw) -> str:
    """Eight digits and their letter."""
    body = digits(draw, 8)
    return body + _DNI[int(body) % 23]


def es_nie(draw: Draw) -> str:
    """X, Y or Z, seven digits and their letter."""
    head, body = draw.choice("XYZ"), digits(draw, 7)
    return head + body + _DNI[int(str("XYZ".index(head)) + body) % 23]


_ODD = dict(
    zip(
        string.digits + string.ascii_uppercase,
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3,
         6, 8, 12, 14, 16, 10, 22, 25, 24, 23),
        strict=True,
    )
)  # fmt: skip


def it_fiscal_code(draw: Draw) -> str:
    """Six letters, birth, place and control letter."""
    consonants = "BCDFGLMNPRSTVZ"
    year, _, day = _born(draw)
    day += 40 * draw.randrange(2)
    body = "".join(draw.choices(consonants, k=6))
    body += f"{year % 100:02}{draw.choice('ABCDEHLMPRST')}{day:02}{draw.choice('ABCDFGHL')}{digits(draw, 3)}"
    even = sum(int(c) if c.isdigit() else ord(c) - 65 for c in body[1::2])
    return body + chr(65 + (even + sum(_ODD[c] for c in body[::2])) % 26)


def nl_bsn(draw: Draw) -> str:
    """Nine digits by the eleven test."""

    def one() -> str | None:
        body = digits(draw, 8, "123456789")
        rest = _sum(body, range(9, 1, -1)) % 11
        return body + str(rest) if rest < 10 else None

    return _until(one)


def pl_pesel(draw: Draw) -> str:
    """Birth, serial, check digit."""
    body = _yymmdd(draw) + digits(draw, 4)
    return body + str(-_sum(body, (1, 3, 7, 9) * 3) % 10)


def se_personnummer(draw: Draw) -> str:
    """Birth, hyphen, serial, Luhn."""
    body = _yymmdd(draw) + digits(draw, 3)
    number = body + _luhn(body)
    return f"{draw.choice(('', '19'))}{number[:6]}-{number[6:]}"


def fi_hetu(draw: Draw) -> str:
    """Birth, hyphen, serial, letter."""
    born, serial = _ddmmyy(draw), f"{draw.randrange(2, 900):03}"
    return f"{born}-{serial}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(born + serial) % 31]}"


def br_cpf(draw: Draw) -> str:
    """Nine digits and two check digits."""
    body = digits(draw, 9)
    for start in (10, 11):
        body += str(-_sum(body, range(start, 1, -1)) % 11 % 10)
    return draw.choice((body, f"{body[:3]}.{body[3:6]}.{body[6:9]}-{body[9:]}"))


def br_cnpj(draw: Draw) -> str:
    """Twelve digits and two check digits."""
    body = digits(draw, 8) + "0001"
    for weights in ((5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2), (6, 5, 4, 3, 2, 9, 8, 7, 6, 5, 4, 3, 2)):
        body += str(-_sum(body, weights) % 11 % 10)
    return f"{body[:2]}.{body[2:5]}.{body[5:8]}/{body[8:12]}-{body[12:]}"


def gb_nino(draw: Draw) -> str:
    """Two letters, six digits, a letter."""
    number = draw.choice(("AB", "CE", "JK", "LM", "PR", "SX", "WZ", "HE")) + digits(draw, 6)
    number += draw.choice("ABCD")
    spaced = " ".join((number[:2], number[2:4], number[4:6], number[6:8], number[8:]))
    return draw.choice((number, spaced))


_VERHOEFF_D = tuple(
    tuple(
        (a + b) % 5 if a < 5 and b < 5
        else (a + b - 5) % 5 + 5 if a < 5
        else (a - 5 - b) % 5 + 5 if b < 5
        else (a - b) % 5
        for b in range(10)
    )
    for a in range(10)
)  # fmt: skip
_VERHOEFF_P = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)


def _verhoeff_digit(body: str) -> str:
    check = 0
    for place, char in enumerate(reversed(body), start=1):
        value = int(char)
        for _ in range(place % 8):
            value = _VERHOEFF_P[value]
        check = _VERHOEFF_D[check][value]
    return str((0, 4, 3, 2, 1, 5, 6, 7, 8, 9)[check])


def in_aadhaar(draw: Draw) -> str:
    """Twelve digits by Verhoeff."""
    body = digits(draw, 11, "23456789")
    number = body + _verhoeff_digit(body)
    return draw.choice((number, f"{number[:4]} {number[4:8]} {number[8:]}"))


def in_pan(draw: Draw) -> str:
    """Three letters, P for a person, a letter, four digits, a letter."""
    letters = "".join(draw.choices(string.ascii_uppercase, k=5))
    return f"{letters[:3]}P{letters[3]}{digits(draw, 4, '123456789')}{letters[4]}"


def cn_ric(draw: Draw) -> str:
    """Area, birth, serial, check character."""
    year, month, day = _born(draw)
    area = draw.choice(("110105", "310104", "440305", "510107", "330102", "420106"))
    body = f"{area}{year}{month:02}{day:02}{digits(draw, 3)}"
    weights = [2 ** (17 - place) % 11 for place in range(17)]
    return body + "10X98765432"[_sum(body, weights) % 11]


def jp_my_number(draw: Draw) -> str:
    """Eleven digits and a check digit."""
    body = digits(draw, 11, "123456789")
    rest = _sum(body, (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    number = body + str(0 if rest <= 1 else 11 - rest)
    return draw.choice((number, f"{number[:4]} {number[4:8]} {number[8:]}"))


def kr_rrn(draw: Draw) -> str:
    """Birth, hyphen, seven digits."""
    body = _yymmdd(draw) + draw.choice("12") + digits(draw, 5)
    check = (11 - _sum(body, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10
    return f"{body[:6]}-{body[6:]}{check}"


def ru_snils(draw: Draw) -> str:
    """Nine digits and two of a sum."""
    body = digits(draw, 9, "123456789")
    check = _sum(body, range(9, 0, -1)) % 101 % 100
    return f"{body[:3]}-{body[3:6]}-{body[6:]} {check:02}"


def ru_inn(draw: Draw) -> str:
    """Ten digits and two check digits."""
    body = digits(draw, 10, "123456789")
    body += str(_sum(body, (7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10)
    return body + str(_sum(body, (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10)


def tr_kimlik(draw: Draw) -> str:
    """Nine digits and two check digits."""
    body = digits(draw, 9, "123456789")
    tenth = (7 * sum(map(int, body[::2])) - sum(map(int, body[1::2]))) % 10
    body += str(tenth)
    return body + str(sum(map(int, body)) % 10)


def au_tfn(draw: Draw) -> str:
    """Nine digits, their weighted sum a multiple of 11."""

    def one() -> str | None:
        body = digits(draw, 9, "123456789")
        return body if _sum(body, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0 else None

    number = _until(one)
    return f"{number[:3]} {number[3:6]} {number[6:]}"


def au_medicare(draw: Draw) -> str:
    """Eight digits, a check digit, an issue number."""
    body = digits(draw, 8, "23456")
    number = body + str(_sum(body, (1, 3, 7, 9, 1, 3, 7, 9)) % 10) + draw.choice("123")
    return f"{number[:4]} {number[4:9]} {number[9]}"


def sg_nric(draw: Draw) -> str:
    """S or T, seven digits, a letter."""
    head, body = draw.choice("ST"), digits(draw, 7)
    total = _sum(body, (2, 7, 6, 5, 4, 3, 2)) + (4 if head == "T" else 0)
    return head + body + "JZIHGFEDCBA"[total % 11]


def ch_ahv(draw: Draw) -> str:
    """756, nine digits, check digit of EAN-13."""
    body = "756" + digits(draw, 9)
    number = body + str(-_sum(body, (1, 3) * 6) % 10)
    return f"{number[:3]}.{number[3:7]}.{number[7:11]}.{number[11:]}"


def at_svnr(draw: Draw) -> str:
    """Serial, check digit, birth."""

    def one() -> str | None:
        serial, born = digits(draw, 3, "123456789"), _ddmmyy(draw)
        check = _sum(serial + born, (3, 7, 9, 5, 8, 4, 2, 1, 6)) % 11
        return f"{serial}{check} {born}" if check < 10 else None

    return _until(one)


def be_nn(draw: Draw) -> str:
    """Birth, serial, 97 less the rest by 97."""
    body = _yymmdd(draw) + f"{draw.randrange(1, 998):03}"
    number = body + f"{97 - int(body) % 97:02}"
    return f"{number[:2]}.{number[2:4]}.{number[4:6]}-{number[6:9]}.{number[9:]}"


def fr_nir(draw: Draw) -> str:
    """Sex, birth, department, town, serial, key."""
    year, month, _ = _born(draw)
    place = draw.choice(("75", "69", "13", "33", "59", "31")) + f"{draw.randrange(1, 500):03}"
    body = f"{draw.choice('12')}{year % 100:02}{month:02}{place}{draw.randrange(1, 999):03}"
    key = f"{97 - int(body) % 97:02}"
    spaced = f"{body[0]} {body[1:3]} {body[3:5]} {body[5:7]} {body[7:10]} {body[10:]} {key}"
    return draw.choice((body + key, spaced))


def pt_nif(draw: Draw) -> str:
    """Nine digits by 11."""
    body = digits(draw, 8, "123")
    rest = _sum(body, range(9, 1, -1)) % 11
    return body + str(0 if rest < 2 else 11 - rest)


def cz_rc(draw: Draw) -> str:
    """Birth, slash, four digits, all divisible by 11."""

    def one() -> str | None:
        year, month, day = _born(draw)
        body = f"{year % 100:02}{month + 50 * draw.randrange(2):02}{day:02}{digits(draw, 3)}"
        rest = int(body) % 11
        return f"{body[:6]}/{body[6:]}{rest}" if rest < 10 and year >= 1954 else None

    return _until(one)


def dk_cpr(draw: Draw) -> str:
    """Birth, hyphen, serial."""
    return f"{_ddmmyy(draw)}-{digits(draw, 4, '123')}"


def no_fnr(draw: Draw) -> str:
    """Birth, serial, two check digits."""

    def one() -> str | None:
        body = _ddmmyy(draw) + f"{draw.randrange(0, 500):03}"
        for weights in ((3, 7, 6, 1, 8, 9, 4, 5, 2), (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)):
            check = -_sum(body, weights) % 11
            if check == 10:
                return None
            body += str(check)
        return body

    return _until(one)


def ie_pps(draw: Draw) -> str:
    """Seven digits and a letter or two."""
    body, more = digits(draw, 7, "123456789"), draw.choice(("", "A", "B"))
    total = _sum(body, range(8, 1, -1)) + 9 * (ord(more) - 64 if more else 0)
    return body + "WABCDEFGHIJKLMNOPQRSTUV"[total % 23] + more


def gr_afm(draw: Draw) -> str:
    """Nine digits by powers of two."""
    body = digits(draw, 8, "01234")
    return body + str(_sum(body, [2 ** (8 - place) for place in range(8)]) % 11 % 10)


def gr_amka(draw: Draw) -> str:
    """Birth, serial, Luhn."""
    body = _ddmmyy(draw) + digits(draw, 4)
    return body + _luhn(body)


def ro_cnp(draw: Draw) -> str:
    """Sex, birth, county, serial, check digit."""
    body = f"{draw.choice('12')}{_yymmdd(draw)}{draw.choice(('01', '12', '23', '40', '35'))}"
    body += f"{draw.randrange(1, 999):03}"
    rest = _sum(body, (2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)) % 11
    return body + str(1 if rest == 10 else rest)


def bg_egn(draw: Draw) -> str:
    """Birth, serial, check digit."""
    body = _yymmdd(draw) + digits(draw, 3)
    return body + str(_sum(body, (2, 4, 8, 5, 10, 9, 7, 3, 6)) % 11 % 10)


def hu_tax_id(draw: Draw) -> str:
    """8, eight digits, check digit."""

    def one() -> str | None:
        body = "8" + digits(draw, 8)
        rest = _sum(body, range(1, 10)) % 11
        return body + str(rest) if rest < 10 else None

    return _until(one)


def lu_matricule(draw: Draw) -> str:
    """Return a Luxembourg number: a date, three digits, and check digits by Luhn and by Verhoeff."""
    year, month, day = _born(draw)
    body = f"{year}{month:02}{day:02}{digits(draw, 3)}"
    return body + _luhn(body) + _verhoeff_digit(body)


def is_kennitala(draw: Draw) -> str:
    """Return an Icelandic number: a date, two digits, a check digit, the century."""

    def one() -> str | None:
        body = _ddmmyy(draw) + digits(draw, 2)
        check = -_sum(body, (3, 2, 7, 6, 5, 4, 3, 2)) % 11
        return None if check == 10 else f"{body[:6]}-{body[6:]}{check}9"

    return _until(one)


def co_nit(draw: Draw) -> str:
    """Return a Colombian tax number."""
    body = digits(draw, 9, "89")
    rest = _sum(body, (41, 37, 29, 23, 19, 17, 13, 7, 3)) % 11
    return f"{body[:3]}.{body[3:6]}.{body[6:]}-{rest if rest < 2 else 11 - rest}"


def za_id(draw: Draw) -> str:
    """Birth, serial, citizenship, Luhn."""
    body = _yymmdd(draw) + digits(draw, 4) + "08"
    return body + _luhn(body)


def mx_curp(draw: Draw) -> str:
    """Letters of the name, birth, sex, state, consonants, check digit."""
    letters = draw.choice("GMRLHSP") + draw.choice("AEIO") + "".join(draw.choices("GLMRST", k=2))
    body = (
        f"{letters}{_yymmdd(draw)}{draw.choice('HM')}{draw.choice(('DF', 'JC', 'NL', 'OC', 'VZ'))}"
    )
    body += "".join(draw.choices("BCDFGLMNPRST", k=3)) + draw.choice("0123456789")
    alphabet = "0123456789ABCDEFGHIJKLMN\u00d1OPQRSTUVWXYZ"
    total = sum(alphabet.index(char) * (18 - place) for place, char in enumerate(body))
    return body + str(-total % 10)


def ar_cuit(draw: Draw) -> str:
    """Kind, DNI, check digit."""

    def one() -> str | None:
        body = draw.choice(("20", "27", "23")) + digits(draw, 8, "1234")
        check = -_sum(body, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
        return f"{body[:2]}-{body[2:]}-{check}" if check < 10 else None

    return _until(one)


def cl_rut(draw: Draw) -> str:
    """Seven or eight digits and a check character."""
    body = str(draw.randrange(5_000_000, 25_000_000))
    check = -_sum(body[::-1], (2, 3, 4, 5, 6, 7, 2, 3)) % 11
    dotted = f"{int(body):,}".replace(",", ".")
    return f"{draw.choice((body, dotted))}-{'K' if check == 10 else check}"


def th_pin(draw: Draw) -> str:
    """Twelve digits and a check digit."""
    body = digits(draw, 12, "12345678")
    number = body + str((11 - _sum(body, range(13, 1, -1)) % 11) % 10)
    return draw.choice(
        (number, f"{number[0]}-{number[1:5]}-{number[5:10]}-{number[10:12]}-{number[12]}")
    )


def il_id(draw: Draw) -> str:
    """Eight digits and Luhn."""
    body = digits(draw, 8, "0123")
    return body + _luhn(body)


def hr_oib(draw: Draw) -> str:
    """Ten digits and a check digit of ISO 7064."""
    body = digits(draw, 10)
    return body + _iso_11_10(body)


def ca_sin(draw: Draw) -> str:
    """Eight digits and Luhn."""
    body = digits(draw, 8, "124567")
    number = body + _luhn(body)
    return f"{number[:3]} {number[3:6]} {number[6:]}"


def ee_ik(draw: Draw) -> str:
    """Century, birth, serial, check digit."""
    body = f"{draw.choice('34')}{_yymmdd(draw)}{digits(draw, 3)}"
    rest = _sum(body, (1, 2, 3, 4, 5, 6, 7, 8, 9, 1)) % 11
    if rest == 10:
        rest = _sum(body, (3, 4, 5, 6, 7, 8, 9, 1, 2, 3)) % 11 % 10
    return body + str(rest)


NUMBERS: dict[str, Maker] = {
    "de_tax_id": de_tax_id, "de_id_card": de_id_card, "de_social": de_social, "es_dni": es_dni,
    "es_nie": es_nie, "it_fiscal_code": it_fiscal_code, "nl_bsn": nl_bsn, "pl_pesel": pl_pesel,
    "se_personnummer": se_personnummer, "fi_hetu": fi_hetu, "br_cpf": br_cpf, "br_cnpj": br_cnpj,
    "gb_nino": gb_nino, "in_aadhaar": in_aadhaar, "in_pan": in_pan, "cn_ric": cn_ric,
    "jp_my_number": jp_my_number, "kr_rrn": kr_rrn, "ru_snils": ru_snils, "ru_inn": ru_inn,
    "tr_kimlik": tr_kimlik, "au_tfn": au_tfn, "au_medicare": au_medicare, "sg_nric": sg_nric,
    "ch_ahv": ch_ahv, "at_svnr": at_svnr, "be_nn": be_nn, "fr_nir": fr_nir, "pt_nif": pt_nif,
    "cz_rc": cz_rc, "dk_cpr": dk_cpr, "no_fnr": no_fnr, "ie_pps": ie_pps, "gr_afm": gr_afm,
    "gr_amka": gr_amka, "ro_cnp": ro_cnp, "bg_egn": bg_egn, "hu_tax_id": hu_tax_id, "za_id": za_id,
    "mx_curp": mx_curp, "ar_cuit": ar_cuit, "cl_rut": cl_rut, "th_pin": th_pin, "il_id": il_id,
    "hr_oib": hr_oib, "ca_sin": ca_sin, "ee_ik": ee_ik,
    "lu_matricule": lu_matricule, "is_kennitala": is_kennitala, "co_nit": co_nit,
}  # fmt: skip
"""Makers of identity numbers, by country and kind."""

PHONES: dict[str, tuple[str, tuple[str, ...]]] = {
    "us": ("+1 ", ("(###) 555-####", "###-555-####")),
    "gb": ("+44 ", ("07### ######", "020 7### ####")),
    "de": ("+49 ", ("0151 ########", "030 #######", "089/#######")),
    "fr": ("+33 ", ("06 ## ## ## ##", "01 4# ## ## ##")),
    "es": ("+34 ", ("6## ## ## ##", "9## ### ###")),
    "it": ("+39 ", ("3## ### ####", "06 ########")),
    "nl": ("+31 ", ("06-########", "020 #######")),
    "be": ("+32 ", ("0470 ## ## ##",)),
    "pl": ("+48 ", ("5## ### ###", "22 ### ## ##")),
    "pt": ("+351 ", ("91# ### ###",)),
    "se": ("+46 ", ("070-### ## ##",)),
    "dk": ("+45 ", ("2# ## ## ##",)),
    "no": ("+47 ", ("4## ## ###",)),
    "fi": ("+358 ", ("040 ### ####",)),
    "ch": ("+41 ", ("079 ### ## ##",)),
    "at": ("+43 ", ("0664 #######",)),
    "cz": ("+420 ", ("60# ### ###",)),
    "gr": ("+30 ", ("694 ### ####", "6945######")),
    "tr": ("+90 ", ("0532 ### ## ##", "0532#######")),
    "ru": ("+7 ", ("8 (916) ###-##-##", "8 903 ### ## ##")),
    "in": ("+91 ", ("98### #####", "98########")),
    "cn": ("+86 ", ("138########", "139 #### ####")),
    "jp": ("+81 ", ("090-####-####", "03-####-####")),
    "kr": ("+82 ", ("010-####-####",)),
    "br": ("+55 ", ("(11) 9####-####", "21 9####-####")),
    "mx": ("+52 ", ("55 #### ####",)),
    "ar": ("+54 ", ("11 ####-####",)),
    "au": ("+61 ", ("0412 ### ###", "02 9### ####")),
    "za": ("+27 ", ("082 ### ####",)),
    "il": ("+972 ", ("054-###-####",)),
    "sa": ("+966 ", ("055 ### ####", "055#######")),
    "ie": ("+353 ", ("087 ### ####",)),
}
"""Prefix and national forms by country; # is a digit."""


def phone(draw: Draw, country: str, *, national: bool) -> str:
    """Return a phone number as people write it."""
    prefix, forms = PHONES[country]
    written = "".join(
        draw.choice("23456789") if char == "#" else char for char in draw.choice(forms)
    )
    if national:
        return written
    if country == "ru":
        written = written[2:]
    return prefix + (written.removeprefix("0") if country != "it" else written)
