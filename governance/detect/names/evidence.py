"""How little a name that a list has says by itself: at the head of a sentence, in a table, before a number.

A given name is an ordinary word of some language often enough. These are the places where an ordinary word has
a capital too, so that a list alone is no proof.
"""

import re

from governance.detect.code_terms import is_named_for
from governance.detect.names.key_names import names_a_thing

_WORDS_ABROAD = """
    dan art die sabah deniz umut barış savaş güneş bahar yağmur toprak irmak ırmak pınar çınar rüzgar yıldız gül çiçek onur özgür
    dünya doğa kader devrim evren ufuk işık ışık eser engin derin aydın bulut duman kaya ada can ece ay su yaz tan ateş şafak
    mira ella una lei mai mia sole luna alma rosa viola marina gloria consuelo luz sol cielo mar flor perla linda clara
    blanca bruno franco santo domingo angel salvador reyes cruz paz vera sara era ora sera lea tara ines pia mina lena
    per bei ihm ihn mit nun jan juni mai april august ernst wolf hans gut emil marta karte mark pfeil stern rose
    nu nou kort mei daar toon wil wim bart beer roos fleur lies els mare marc
    lemma alt del som vil siv bo ask dag liv solveig saga vår ester berg lind kai ove per eli eva aida amen aria
    pan lila mila pola ola ala iga ewa wiosna gala kora lira mira nada hala bela
    elle claire prune aube ange fleur violette olive marine celeste blanche france océane lise anse aime rémi
    pois puis ainda sem nem salve vida vitória esperança jacinto
    anda rama usha kiran jyoti asha maya mala roti chandra suraj aasha pooja puja deepak prem
    art. max min tim pat gen ed ned al sam ty
    """
_ABROAD = frozenset(_WORDS_ABROAD.split())
"""Names that begin sentences as words in some language."""
_HEAD = re.compile(r"(?:\A|[\n.!?:;|•–—»«\"“”„>*#\]]|\d\.)[ \t\-*>#]*\Z")
_GOES_ON = re.compile(r" [^\W\d_A-Z]|[ ]?\(")
_DOES = re.compile(
    r" (?:[a-z]{2,}ed|said|says|wrote|told|asks|wants|lives|works|knows|thinks|went|came)\b"
)
_SHORTENED = re.compile(r"\.(?:-| ?\d| ?[a-z]{1,3}\.)")
_COUNTED = re.compile(r"(?: (?:from |to )?v?|\[[^\]\n]{1,20}\]|[>=]=)\d+\.\d")
_TYPE = re.compile(
    r"\b(?:typ|type|model|modell|mod\u00e8le|modelo|modello|sort|sorte|variety|cultivar|style|codename|project|projekt|release|theme|font|serie|series|version|ausf\u00fchrung|farbe|colou?r)"
    r"[ ]?:?[ ]?[\"'\u201e\u00ab\u201c\u2018]\Z",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "„": "“", "«": "»", "»": "«", "“": "”", "'": "'", "‘": "’"}
_APART = re.compile(r"\s{2,}|\t|\|")
_CELLS = re.compile(r"\S+(?: \S+)*")
_MOST_ROWS, _LONGEST_ROW = 40, 400


def is_weak(text: str, begin: int, stop: int) -> bool:
    """Whether one listed name stands where an ordinary word, a thing or an abbreviation does as often."""
    word = text[begin:stop]
    if len(word) < 6 and _SHORTENED.match(text, stop):
        return True
    if _COUNTED.match(text, stop) or is_named_for(text, begin):
        return True
    if (
        word.lower() in _ABROAD
        and _GOES_ON.match(text, stop)
        and _DOES.match(text, stop) is None
        and _begins_a_sentence(text, begin)
    ):
        return True
    return _is_a_type(text, begin, stop) or is_under_things(text, begin, stop)


def _begins_a_sentence(text: str, begin: int) -> bool:
    return _HEAD.search(text, max(0, begin - 12), begin) is not None


def _is_a_type(text: str, begin: int, stop: int) -> bool:
    """Whether a word stands in quotation marks behind what calls it a type: Typ "Karl"."""
    closing = _QUOTES.get(text[begin - 1 : begin]) if begin else None
    if closing is None or text[stop : stop + 1] != closing:
        return False
    return _TYPE.search(text, max(0, begin - 20), begin) is not None


def is_under_things(text: str, begin: int, stop: int) -> bool:
    """Whether a cell of a table in columns stands below a head that is a thing's."""
    line = text.rfind("\n", max(0, begin - _LONGEST_ROW), begin) + 1
    if line and (mark := text[stop : stop + 1] or text[begin - 1 : begin]) in ("|", ";", ",", "\t"):
        return _under_a_mark(text, line, begin, mark)
    if not line or "  " not in text[line : stop + 80].split("\n", 1)[0]:
        return False
    before = text[line:begin]
    if before.strip() and _APART.search(before[-2:]) is None:
        return False
    if _APART.match(text, stop) is None:
        return False
    head = _head_of(text, line)
    if head is None:
        return False
    column = begin - line
    for cell in _CELLS.finditer(head):
        if cell.start() <= column + 1 and column < cell.end() + 1:
            return _of_things(cell[0])
    return False


def _under_a_mark(text: str, line: int, begin: int, mark: str) -> bool:
    """Whether the head of a cell between marks is a thing's; the head is the first line of its block."""
    first, rows = line, 0
    while first and rows < _MOST_ROWS:
        above = text.rfind("\n", 0, first - 1) + 1
        if mark not in text[above : first - 1]:
            break
        first, rows = above, rows + 1
    heads = text[first : text.find("\n", first)].split(mark)
    end = text.find("\n", begin, begin + _LONGEST_ROW)
    row = text[line : end if end >= 0 else begin + _LONGEST_ROW].split(mark)
    column = text.count(mark, line, begin)
    if not rows or len(heads) < 2 or len(heads) != len(row):
        return False
    return _of_things(heads[column].strip(" \"'*`"))


def _head_of(text: str, line: int) -> str | None:
    """Return the first line of the block that a line stands in, where it is the head of columns."""
    first, rows = line, 0
    while first and rows < _MOST_ROWS:
        above = text.rfind("\n", 0, first - 1) + 1
        if not text[above : first - 1].strip():
            break
        first, rows = above, rows + 1
    head = text[first : text.find("\n", first)]
    cells = _CELLS.findall(head)
    if not rows or len(cells) < 2 or any(cell[0].isdigit() for cell in cells):
        return None
    return head


_THINGS_WORDS = """
    object objekt objet objeto oggetto body metal metall métal metallo element station stop halt haltestelle arrêt
    parada fermata przystanek sensor device gerät appareil dispositivo host server node pod vm machine maschine
    printer drucker species art espèce especie specie soort gatunek moon planet star stern mond asteroid comet ort
    stadt city place location site lieu lugar luogo plaats miejsce town team club verein équipe equipo squadra
    elftal drużyna ship schiff navire buque nave vessel horse pferd cheval cavallo dog cat variety sorte cultivar
    wine wein vin vino room raum salle sala zaal street straße rue calle via opening eröffnung work werk œuvre
    obra opera piece stück composer komponist theorem method model typ type description bezeichnung désignation
    descripción descrizione omschrijving opis ref pos item artikel article artículo
    """
_THINGS = frozenset(_THINGS_WORDS.split())
"""Heads of columns of things that are often called after people."""


def _of_things(head: str) -> bool:
    word = head.lower().strip(" :.")
    return word in _THINGS or names_a_thing((head,))
