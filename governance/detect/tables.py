"""Tables in text: CSV and Markdown. The head of a column is the key of its cells."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise

from governance.detect.fields import Field, fields
from governance.detect.finding import Detector, Finding, Unit
from governance.detect.keys import tells_anything
from governance.detect.names.file_names import may_be_family
from governance.detect.names.key_names import may_name_a_person, names_a_person
from governance.detect.normalized_text import view_of
from governance.detect.phone_words import TELLS_PHONE
from governance.names.words import first_names

_MARKS = "|\t;,"
_HEAD = re.compile(r"[^\W\d_][\w .,'\-/()]{0,40}\Z")
_RULE = re.compile(r"[\s|:+\-]+\Z")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_MOST_CELLS = 5000
_MOST_LINES = 200
"""How far below a head without marks its columns reach."""
_MOST_HEADS = 4
"""So many heads without marks count for one line, the first and the latest: a row in capitals may look like one."""
_GIVEN = frozenset(
    [
        "first",
        "given",
        "vorname",
        "rufname",
        "prénom",
        "prenom",
        "forename",
        "firstname",
        "first_name",
        "given_name",
        "givenname",
        "imię",
        "imie",
        "voornaam",
        "имя",
    ]
)
_FAMILY = frozenset(
    [
        "last",
        "family",
        "nachname",
        "familienname",
        "apellido",
        "apellidos",
        "surname",
        "lastname",
        "last_name",
        "family_name",
        "familyname",
        "cognome",
        "sobrenome",
        "apelido",
        "nazwisko",
        "achternaam",
        "soyad",
        "фамилия",
    ]
)
_EITHER = frozenset(
    ["name", "nom", "nombre", "nome", "naam", "ad", "first", "last", "given", "family", "имя"]
)
"""Heads that mean a part of a name where another column has the other part."""

_GOODS = frozenset(
    [
        "sku",
        "price",
        "stock",
        "qty",
        "quantity",
        "version",
        "license",
        "licence",
        "isbn",
        "brand",
        "unit",
        "units",
        "cpu",
        "memory",
        "params",
        "size",
        "weight",
        "colour",
        "color",
        "preis",
        "menge",
        "bestand",
        "lager",
        "prix",
        "quantité",
        "precio",
        "cantidad",
        "prezzo",
        "quantità",
        "preço",
        "quantidade",
        "prijs",
        "aantal",
        "cena",
        "ilość",
        "type",
        "category",
        "population",
        "country",
        "latency",
        "p95",
        "replicas",
        "namespace",
        "status",
        "ready",
        "image",
        "port",
        "url",
        "repo",
        "language",
        "stars",
        "downloads",
    ]
)
"""Heads of tables of things: what their column of names names is no person."""
_OF_PEOPLE = frozenset(
    [
        "email",
        "mail",
        "e-mail",
        "phone",
        "mobile",
        "tel",
        "telefon",
        "birth",
        "birthday",
        "dob",
        "geburtsdatum",
        "salary",
        "age",
        "title",
        "role",
        "team",
        "department",
    ]
)

type _Cell = tuple[int, str]
"""Where a cell begins, and what is in it."""
type _WideHead = tuple[_Cell, ...]
"""The heads of columns that spaces part."""


def _cells(line: str, at: int, mark: str) -> list[_Cell]:
    """Return the cells of a line without the space and quotation marks around them."""
    out: list[_Cell] = []
    for cell in line.split(mark) if '"' not in line else _fields(line, mark):
        value = cell.strip(" \t\r\"'*`_")
        out.append((at + cell.find(value) if value else at, value))
        at += len(cell) + 1
    return out


def _fields(line: str, mark: str) -> list[str]:
    """Return the fields of a line where marks within quotation marks are text."""
    out: list[str] = []
    held = ""
    for piece in line.split(mark):
        held = f"{held}{mark}{piece}" if held else piece
        if held.count('"') % 2 == 0:
            out.append(held)
            held = ""
    return [*out, held] if held else out


def _said_by(heads: Sequence[str]) -> list[str]:
    """Return the keys that heads give: a column beside that of the other part of a name is a part too."""
    plain = [head.lower().strip().rstrip("12") for head in heads]
    last = {key.replace("_", " ").split()[-1] for key in plain if key}
    if not (last & (_GIVEN | _FAMILY)):
        return [*heads]
    return [
        "family_name"
        if key and key.replace("_", " ").split()[-1] in _EITHER | _GIVEN | _FAMILY
        else head
        for key, head in zip(plain, heads, strict=True)
    ]


def _heads(line: str, following: str) -> tuple[str, list[str]] | None:
    """Return what stands between the cells of a head, and the keys that it gives."""
    for mark in _MARKS:
        if mark in line and mark in following:
            heads = [value for _, value in _cells(line, 0, mark)]
            fits = len(heads) == len(_cells(following, 0, mark)) and any(heads)
            if fits and all(not head or _HEAD.match(head) for head in heads):
                return mark, _said_by(heads)
    return None


def _tells(key: str) -> bool:
    keys = (key,)
    return (
        names_a_person(keys)
        or may_name_a_person(keys)
        or tells_anything(keys)
        or not TELLS_PHONE.isdisjoint(key.lower().replace("_", " ").split())
    )


def columns(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield key, place and value of each cell of the tables in a text whose head says something."""
    lines = text.split("\n")
    at, place, body, left = 0, 0, 0, _MOST_CELLS
    wide: dict[int, _WideHead] = {}
    while place < len(lines) - 1 and left > 0:
        line = lines[place]
        body = max(body, place + 1)  # rules below a line are below the one before too
        while body < len(lines) - 1 and lines[body] and _RULE.match(lines[body]):
            body += 1
        head = _heads(line, lines[body]) if line and not _RULE.match(line) else None
        told = [number for number, key in enumerate(head[1]) if key and _tells(key)] if head else []
        if head is not None and told and _is_of_things(head[1]):
            told = [number for number in told if head[1][number].lower() not in _EITHER]
        if head is None or not told:
            if line and (columns_of_line := _wide_columns(line)):
                left -= 1
                wide[place] = columns_of_line
            yield from _beside_given_names(line, at)
            at += len(line) + 1
            place += 1
            continue
        mark, keys = head
        at += sum(len(one) + 1 for one in lines[place:body])
        place = body
        while place < len(lines) and left > 0:
            line = lines[place]
            if not _RULE.match(line):
                cells = _cells(line, at, mark)
                if len(cells) != len(keys):
                    break
                for number in told:
                    if cells[number][1]:
                        left -= 1
                        yield keys[number], *cells[number]
            elif not line:
                break
            at += len(line) + 1
            place += 1
    if wide:
        yield from _cells_below(wide, lines)


def _is_of_things(heads: Sequence[str]) -> bool:
    """Whether a table lists things, and nobody."""
    words = {word for head in heads for word in head.lower().replace("_", " ").split()}
    return not words.isdisjoint(_GOODS) and words.isdisjoint(_OF_PEOPLE)


_INSERT = re.compile(
    r"\binsert\s+into\s+[\w.\"`\[\]]{1,120}\s*\(([^()]{1,2000})\)\s*values\s*(?=\()", re.IGNORECASE
)
_COPY = re.compile(
    r"^copy\s+[\w.\"`]{1,120}\s*\(([^()\n]{1,2000})\)\s+from\s+stdin[^\n]*\n",
    re.IGNORECASE | re.MULTILINE,
)
_WRITES = re.compile(r"(?i:values|from stdin)")
_SQL_ROW = re.compile(
    r"\s*+,?\s*+\(((?:[^()'\"]|'(?:[^'\\]|''|\\.)*+'|\"[^\"]*\"|\([^()]{0,80}\))*+)\)"
)
_SQL_TEXT = re.compile(r"'(?:[^'\\]|''|\\.)*+'|\"[^\"]*\"")
_QUOTE = re.compile("['\"]")
_SQL_VALUE = re.compile(rf"(?:{_SQL_TEXT.pattern}|\([^()]{{0,80}}\)|[^,'\"()])++")


def _statements(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield key, place and value of what ``INSERT`` and ``COPY`` write under columns that say something."""
    for found in _INSERT.finditer(text):
        keys = [key.strip(' \t\n"`[]') for key in found[1].split(",")]
        told = [number for number, key in enumerate(keys) if key and _tells(key)]
        if _is_of_things(keys):
            told = [number for number in told if keys[number].lower() not in _EITHER]
        row = _SQL_ROW.match(text, found.end()) if told else None
        while row is not None:
            values = [*_SQL_VALUE.finditer(text, row.start(1), row.end(1))]
            values = [value for value in values if value[0].strip()]
            if len(values) == len(keys):
                for number in told:
                    quote = _QUOTE.search(text, *values[number].span())
                    written = quote and _SQL_TEXT.match(text, quote.start(), values[number].end())
                    if written:
                        yield keys[number], written.start() + 1, written[0][1:-1]
            row = _SQL_ROW.match(text, row.end())
    copies = [*_COPY.finditer(text)]
    for number, found in enumerate(copies):
        keys = [key.strip(' "`') for key in found[1].split(",")]
        at = found.end()
        stop = copies[number + 1].start() if number + 1 < len(copies) else len(text)
        for line in text[at : min(stop, at + 200_000)].split("\n"):
            cells = line.split("\t")
            if len(cells) != len(keys):
                break
            for key, value in zip(keys, cells, strict=True):
                if value and _tells(key):
                    yield key, at, value
                at += len(value) + 1


def _wide_columns(line: str) -> _WideHead | None:
    """Return where the columns of a head begin whose words stand apart by two spaces or more."""
    if "   " not in line.strip() or not line.isupper():
        return None
    heads = tuple((match.start(), match.group()) for match in _COLUMN.finditer(line))
    return heads if len(heads) > 1 and any(_tells(head) for _, head in heads) else None


def _cells_below(
    wide: Mapping[int, _WideHead], lines: Sequence[str]
) -> Iterator[tuple[str, int, str]]:
    """Yield the cells of each line under the heads above it, up to an empty line between them."""
    above: list[tuple[int, _WideHead]] = []
    at = 0
    for place, line in enumerate(lines):
        above = [one for one in above if place - one[0] < _MOST_LINES] if line.strip() else []
        for _, heads in above:
            yield from _cells_of_wide(heads, line, at)
        if place in wide:
            others = [one for one in above if one[1] != wide[place]]
            above = [*others[:1], *others[1:][2 - _MOST_HEADS :], (place, wide[place])]
        at += len(line) + 1


def _cells_of_wide(heads: _WideHead, line: str, at: int) -> Iterator[tuple[str, int, str]]:
    for number, (start, head) in enumerate(heads):
        stop = heads[number + 1][0] if number + 1 < len(heads) else len(line)
        value = line[start:stop].strip()
        if value and _tells(head) and (start == 0 or line[start - 1 : start] == " "):
            yield head, at + line.find(value, start), value


def _beside_given_names(line: str, at: int) -> Iterator[tuple[str, int, str]]:
    """Yield what stands in a cell beside a given name, in a row without a head."""
    for mark in "\t;,|":
        if line.count(mark) < 2:
            continue
        if mark == "," and ", " in line:
            return
        cells = _cells(line, at, mark)
        for one, other in pairwise(cells):
            for given, family in ((one, other), (other, one)):
                if given[1] in first_names() and may_be_family(family[1]):
                    yield "family_name", *family
        return


_SOMEBODY = frozenset({"PERSON"})


class TableCells:
    """Asks other detectors for each cell under a head, and each value behind a label, that says what it is."""

    name = "tables"
    version = "tables-4"

    def __init__(self, detectors: Sequence[Detector]) -> None:
        """Ask these."""
        self._detectors = tuple(detectors)
        self.entities = frozenset(chain.from_iterable(one.entities for one in detectors))

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return what is in the cells of tables and behind labels."""
        return [self._found(unit) for unit in units]

    def _found(self, unit: Unit) -> list[Finding]:
        text = unit.view.original
        if unit.is_digits:
            return []
        cells = list(columns(text) if "\n" in text else _beside_given_names(text, 0))
        if "(" in text and _WRITES.search(text):
            cells += _statements(text)
        told: list[tuple[Field, Unit]] = []
        out: list[Finding] = []
        for field in fields(unit.view.text):
            if field.entities != _SOMEBODY:
                told.append((field, Unit(view_of(field.value), (field.key,))))
            elif "PERSON" in self.entities:
                whole = Finding("PERSON", 0, len(field.value), 0.8, self.name)
                out.append(_within(unit, field, whole))
        asked = [Unit(view_of(value), (key,)) for key, _, value in cells]
        for detector in self._detectors if cells or told else ():
            here = [one for one in told if not one[0].entities.isdisjoint(detector.entities)]
            found = _asked_once(detector, [*asked, *(value for _, value in here)])
            for (_, at, _), some in zip(cells, found, strict=False):
                out += [one._replace(start=one.start + at, end=one.end + at) for one in some]
            for (field, _), some in zip(here, found[len(cells) :], strict=True):
                out += [_within(unit, field, one) for one in some if one.entity in field.entities]
        return out


def _asked_once(detector: Detector, units: Sequence[Unit]) -> list[list[Finding]]:
    """Return what is in each of these; those that are the same are looked at once."""
    once = {(unit.view.original, unit.keys): unit for unit in units}
    found = dict(zip(once, detector.find([*once.values()], ()), strict=True))
    return [found[unit.view.original, unit.keys] for unit in units]


def _within(unit: Unit, field: Field, finding: Finding) -> Finding:
    start, end = unit.view.span(field.start + finding.start, field.start + finding.end)
    return finding._replace(start=start, end=end)
