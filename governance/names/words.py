"""The word lists of names, and the everyday words that are never taken for a name."""

import re
from functools import cache
from pathlib import Path

from governance.names.companies import is_a_company

_HERE = Path(__file__).parent

_EVERYDAY = """
a about account accounts actually add address admin after again agent ai alexa all also although am
amount an and another any anybody anyone api app apple april are as ask assistant at august authorization
autumn aws azure back bank be because been before being below best bill billing body both bug but buy by
bye call can card case cc cheers chat chatgpt check christmas city claude client code com company
congratulations contact copilot copy could customer customers data date day dear december december's
delivery department description design details developer development did director do does doing done
down each easter edit editor either email en english enough error european even every everybody
everyone everything example excel exactly february feel few file finally first folks following for
france french friday from full function gemini general german get github gmail go good google got
great group guest guys had happy has have having he head hello help her here hey hi him his home hope
how however human i id if important in indeed info information input instead internal international
internet into invoice is issue it item items its january java javascript job json july june just key
kind kindly know ladies last later legal let lets like line linkedin list llm local login look lord
lots mac madam mail main manager many march marketing may maybe me meeting message microsoft might
miss model monday month more morning most mr mrs ms much must my name need new next no nobody none nor
not note nothing november now number object october of off office ok okay on once one online only open
openai or order orders our out output over page paris part party password payment people perhaps person
phone plan please point police post president price pricing problem product products professor project
prompt python quick quote re read really regards regarding reply report request research response
result return review right rule russian said sales same saturday saw say search second section see
send sender senior september server service services session set several shall she ship shipping
should show signed sincerely since sir so software some somebody someone something sorry source spring
staff standard start state status step still stop store street subject such sunday sure support sync
system table take tax team teams tech technical test text than thank thanks that the their them then
there therefore these they thing this those three through thursday thus time title to today token
tomorrow tonight too tool total try tuesday two type under unfortunately united university unless
until up update upon urgent us use used user users usually valued value very via want was we web
wednesday week welcome well were what when where whether which while who whole whom why will windows
winter wish with within without wonderful word work world would xml year yes yesterday yet you your
yours yourself zip zoom north south east west
jython cython ironpython pypy solaris unix linux posix debian ubuntu account's widget widgets business personal premium basic gold silver enterprise retail wholesale
guten gruß grüße grüsse viele liebe danke bitte hallo merci salut gracias saludos obrigado grazie ciao bonjour hola señor senor herr frau
"""


@cache
def _read(name: str) -> frozenset[str]:
    lines = (_HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def words_of_other_languages() -> frozenset[str]:
    """Return the words of other languages, in small letters, that are family names too."""
    return _read("other_languages")


@cache
def hand_written_first_names() -> frozenset[str]:
    """Return the given names that were written down for this project, capitalised."""
    return _read("first_names")


_NO_PEOPLE = """
America Dane Dominica Francia Georgian Gregorian Oman Polonia Syria
Abril Alleen Ante Avril Beste Dalla Dann Davon Deja Della Domenica Durante Eres Esta Hasta Juli Juni Kort Leider
Lundi Nada Nelle Nello Pero Prima Sine Tamam
"""
"""Places, peoples, calendars and words that begin sentences among the given names that were gathered."""


@cache
def first_names() -> frozenset[str]:
    """Return given names, capitalised; of the gathered ones no words of other languages."""
    gathered = {name for name in _read("given_names") if name.lower() not in _read("nouns")}
    return (hand_written_first_names() | gathered).difference(_NO_PEOPLE.split())


@cache
def last_names() -> frozenset[str]:
    """Return family names, capitalised."""
    return _read("last_names")


@cache
def family_names() -> frozenset[str]:
    """Return family names of many countries, those that were gathered too, capitalised."""
    return last_names() | _read("family_names")


@cache
def ambiguous_names() -> frozenset[str]:
    """Return given names that are words, months or places too."""
    return _read("ambiguous_names")


@cache
def things() -> frozenset[str]:
    """Return names of programs, companies, places and typefaces in small letters, whole and word by word."""
    lines = (_HERE / "things.txt").read_text(encoding="utf-8").splitlines()
    found = [line.strip().lower() for line in lines if line and not line.startswith("#")]
    plain = (name for line in found for name in (line.split() if line.count(" ") > 4 else [line]))
    return frozenset(plain)


@cache
def service_accounts() -> frozenset[str]:
    """Return accounts of programs, roles and examples, in small letters."""
    return _read("service_accounts")


@cache
def parts_of_programs() -> frozenset[str]:
    """Return words that names in programs are made of, in small letters."""
    return _read("parts_of_programs")


_ACTS = re.compile(
    r" (?:[a-z]{2,}(?<!is clos)(?<!is delay)ed|said|says|wrote|told|asks|wants|lives|works|knows|thinks|went|came)\b"
)


@cache
def programs() -> frozenset[str]:
    """Return names of programs, libraries and models in small letters."""
    text = (_HERE / "things.txt").read_text(encoding="utf-8")
    return frozenset(text[text.index("\nJenkins") : text.index("\nWells Fargo")].lower().split())


_VARIANTS = frozenset(
    [
        "pro",
        "lite",
        "max",
        "mini",
        "nano",
        "micro",
        "large",
        "small",
        "medium",
        "ultra",
        "flash",
        "turbo",
        "instruct",
        "coder",
        "chat",
        "text",
        "mono",
        "sans",
        "serif",
        "display",
        "slab",
        "condensed",
        "vision",
        "express",
        "next",
        "plus",
        "premier",
        "preview",
        "thinking",
        "code",
        "cloud",
        "server",
        "desktop",
        "enterprise",
        "community",
        "studio",
        "online",
        "mobile",
        "hub",
    ]
)
"""What stands behind the name of a product."""
_CONNECTIVES = frozenset(
    [
        "&",
        "and",
        "und",
        "et",
        "y",
        "e",
        "i",
        "en",
        "of",
        "von",
        "de",
        "del",
        "di",
        "da",
        "the",
        "or",
        "oder",
        "ou",
        "o",
        "ja",
        "og",
        "och",
    ]
)
_BESIDE = re.compile(r"[\w.'&-]+")


def is_a_thing(text: str, start: int, stop: int) -> bool:
    """Whether a capitalised run is the name of a program, company, place or typeface, and does nothing."""
    value = text[start:stop]
    is_named = " " in value and value.split()[0].title() in first_names()
    return is_a_company(text, start, stop, is_named=is_named) or is_listed(text, start, stop)


def is_listed(text: str, start: int, stop: int) -> bool:
    """Whether a capitalised run is a thing that the list has, and does nothing."""
    known, value = things(), text[start:stop]
    if text.startswith("'s", stop) and f"{value}'s".lower() in known:
        return True
    plain = value.lower().replace("'s", "").strip(" .")
    if plain in known or value.lower() in known:
        if value not in first_names() and value not in ambiguous_names():
            return True
        return _ACTS.match(text, stop) is None
    if " " not in value and text[stop : stop + 2] in _ROMAN_BEGINS and _MONARCH.match(text, stop):
        return True
    words = plain.replace("-", " ").split()
    if words[0] in _begin_a_thing() and _are_a_thing(words):
        return True
    return within_a_thing(text, start, stop)


def _are_a_thing(words: list[str]) -> bool:
    """Whether words are things, a thing behind everyday words, or a product and its variant."""
    known = things()
    first = 0
    while first < len(words) - 1 and (words[first] in common() or words[first] in foreign()):
        first += 1
    left = words[first:]
    if (first or len(left) > 1) and _with_connectives().issuperset(left):
        return True
    if first and " ".join(left) in known:
        return True
    if words[0] in known and len(words) > 1 and all(w in _VARIANTS for w in words[1:]):
        return True
    return words[0] in programs() and all(
        w in _VARIANTS or w in known or w.isdigit() for w in words[1:]
    )


_MONARCH = re.compile(r" (?:I(?:er|re)|II|III|IV|VI{1,3}|IX|XI{1,3}|XIV|XV|XVI{0,3}|XX)\b")
"""A number behind a single given name: a king, a pope, a ship."""
_ROMAN_BEGINS = frozenset((" I", " V", " X"))

_REGIONS = """
piemont piedmont piemonte toskana tuscany toscana lombardei lombardia veneto venetien sizilien sicilia sardinien
bretagne normandie provence burgund bourgogne alsace elsass lorraine lothringen savoyen champagne algarve alentejo
minho andalusien andalucía aragón galicia asturias katalonien catalunya bayern sachsen hessen saarland thüringen
tirol kärnten steiermark wallis tessin friesland zeeland brabant limburg drenthe mazowsze śląsk małopolska pomorze
alba sintra lena darling murray rhein rhine donau danube dunaj elbe oder weser isar neckar mosel main inn maas
waal schelde seine loire rhône garonne dordogne marne tiber tevere arno adige tagus tajo tejo duero douro ebro
guadiana wisła odra bug warta volga dnieper don ural ob jenissei amur ganges indus mekong jangtse nile niger congo
zambezi orange hudson ohio potomac yukon orinoco thames severn tweed tyne clyde shannon etna vesuv
"""
"""Regions and rivers; written by hand."""
_IN_A_PLACE = re.compile(
    r"\b(?:[Ii]n|near|across|throughout|outside|around|[Tt]he|[Ii]m|w|em)[ ]\Z"
    r"|\b(?i:country|region|city|town|state|capital|province|county|land|stadt|ort|pays|ville|pa\u00eds|ciudad|paese|citt\u00e0|cidade|kraj|miasto|stad|\u00fclke|\u015fehir)(?:_?(?:name|code))?"
    r"[\"']?(?: (?:is|of))?[ ]?(?:[=!:]=?=?|in)?[ ]?[\[({]?[\"']?\Z"
)
_OF_A_PLACE = re.compile(
    r"'?s? (?:lies|liegt|is located|is situated|offices?|airport|station|weather|freezes|flows|flie\u00dft|region|branch|plant|warehouse|depot|"
    r"clusters?|data ?cent(?:er|re)|site|campus|stadium|county|river|bridge|boots|chairs?|desk|lamp|table|sofa|jacket|shirt|shoes|bag|dress|beat|drew|lost to|won at)\b"
)
_LISTED_BEFORE = re.compile(
    r"([^\W\d_]{3,})[\"']?(?:, ?| (?:and|und|et|y|e|i|en|or|oder|ou|o|to|nach|[-/&]) )[\"']?\Z"
)
_LISTED_BEHIND = re.compile(
    r"[\"']?(?:, ?| (?:and|und|et|y|e|i|en|or|oder|ou|o|to|nach|[-/&]) )[\"']?([^\W\d_]{3,})"
)
_EPITHET = re.compile(
    r" (?:(?:german|ital|afric|americ|japon|chin|ind|pers|hispan|gall|britann|sin|orient|occident|sibir|austral|canad|virgin|mexic|arab|europ)(?:ica|icum|icus|ana|anum|anus|aea?|aeus|ensis|iensis|alis|is)|[a-z]{2,}(?:[^aeiou]us|ensis|ense|oides|ifolia|iflora|alis|aris|orum|arum)|canina|catus|abies|gallica|rugosa|sylvatica|"
    r"alba|nigra|rubra|trutta|domestica|japonica|tricolor|odorata|sativa|perenne|robur)\b"
)
"""What stands behind a genus in the name of a species."""


@cache
def places() -> frozenset[str]:
    """Return names of places that are one word, in small letters; some are names of people too."""
    return _read("places").union(_REGIONS.split())


def is_a_place(text: str, start: int, stop: int) -> bool:
    """Whether one capitalised word is a place, a degree or a species, and does nothing that people do."""
    value = text[start:stop]
    epithet = _EPITHET.match(text, stop)
    if epithet is not None and epithet[0][1:] not in plain_words():
        return True
    if value == "Kelvin" and text[max(0, start - 2) : start - 1].isdigit():
        return True
    if value.lower() not in places() or _ACTS.match(text, stop):
        return False
    if value not in _people():
        return True
    before = _IN_A_PLACE.search(text, max(0, start - 24), start)
    if before is not None or _OF_A_PLACE.match(text, stop) is not None:
        return True
    return _among_places(text, start, stop)


def _among_places(text: str, start: int, stop: int) -> bool:
    """Whether a word stands in a list of places: beside one that nobody is called, or beside two."""
    beside: list[str] = []
    for _ in range(2):
        found = _LISTED_BEFORE.search(text, max(0, start - 32), start)
        if found is None:
            break
        beside.append(found[1])
        start = found.start()
    for _ in range(2):
        found = _LISTED_BEHIND.match(text, stop)
        if found is None:
            break
        beside.append(found[1])
        stop = found.end()
    found_places = [word for word in beside if word[0].isupper() and word.lower() in places()]
    return len(found_places) > 1 or any(word not in _people() for word in found_places)


@cache
def _people() -> frozenset[str]:
    return first_names() | ambiguous_names() | last_names()


@cache
def _with_connectives() -> frozenset[str]:
    return things() | _CONNECTIVES


@cache
def _begin_a_thing() -> frozenset[str]:
    """Return what one of several words that are a thing may begin with."""
    return _with_connectives() | programs() | common() | foreign()


@cache
def _beside_in_things() -> frozenset[str]:
    """Return the words of things that have several."""
    several = (_BESIDE.findall(thing) for thing in things() if not thing.isalpha())
    return frozenset(word for words in several for word in words)


def within_a_thing(text: str, start: int, stop: int) -> bool:
    """Whether the words around make it part of a known name: J.P. *Morgan*, *Ernst* & Young."""
    if not start and stop == len(text):
        return False
    before = _BESIDE.findall(text[max(0, start - 24) : start].lower())[-2:]
    behind = _BESIDE.findall(text[stop : stop + 24].lower())[:2]
    if not _beside_in_things().intersection((*before[-1:], *behind[:1])):
        return False
    words = text[start:stop].lower().split()
    value = (
        words[-1] if behind[:1] == ["&"] else words[0] if before[-1:] == ["&"] else " ".join(words)
    )
    for left in range(len(before) + 1):
        for right in range(len(behind) + 1):
            if left or right:
                around = " ".join((*before[len(before) - left :], value, *behind[:right]))
                if around.strip(" .") in things():
                    return True
    return False


@cache
def foreign() -> frozenset[str]:
    """Return words of other languages that are capitalised where a sentence or a label begins."""
    return _read("foreign_words")


@cache
def office_words() -> frozenset[str]:
    """Return words that begin a label, a subject or the name of a file, in small letters."""
    return _read("office_words")


@cache
def nouns() -> frozenset[str]:
    """Return nouns and trades of other languages, in small letters; some are family names too."""
    return _read("nouns") | _read("gathered_words")


@cache
def east_asian_words() -> frozenset[str]:
    """Return what sentences and labels of Japanese, Chinese and Korean begin with, and no name does."""
    return _read("east_asian_words")


_COMPOUND = re.compile(
    r"[^\W\d_]{3,}(?:abteilung|adresse|agentur|anfrage|angebot|antrag|arbeiten|artikel|auftrag|ausweis|behörde|beitrag|"
    r"bericht|bescheid|bestand|betreuung|betrieb|büro|daten|dienst(?:e|es|en)?|dienstleister|einheit|ergebnis|fehler|formular|gebühr|gericht|gerät|"
    r"gesellschaft|gesetz|größe|gruppe|karten?|kasse|konto|kosten|leistung|leitung|linie|listen?|löhne?|maschine|"
    r"maßnahme|material|minister(?:ium)?|nummern?|ordnung|pflicht|preis|preise|problem|programm|projekt|quote|rechnung|"
    r"regierung|schaft|schalter|schein|schule|schutz|service|sicherheit|steuer|stelle|stunden?|system|tabelle|tage?|teams?|technik|"
    r"termin|verband|verein|verfahren|verkehr|vertrag|verträge|versicherung|verwaltung|wechsel|wesen|wirtschaft|woche|zahlen?|zahlung|zeichen|zeit(?:en)?|"
    r"zentrale|zentrum|ziele?|zugang|zustand|möbel|stühle?|tische|papier|drucker|lieferung|bestellung|reifen|bedarf|waren|teile|geräte|maschinen|werkzeuge?|fahrzeuge?|räume|reinigung|wartung|reparatur|umzug|planung|übergabe|schulung|beratung|besprechung|sitzung|feier|urlaub|pläne|vorlagen?|hinweise?|regeln|afdeling|beheer|bestuur|kantoor|kosten|lijst|raad|rekening|vergadering|verzekering|file)\Z"
)
"""Words that German and Dutch put together, by what they end with; no family name ends so."""


def is_plain(word: str) -> bool:
    """Whether a word in small letters is an everyday word of some language, put together or not."""
    return word in plain_words() or is_put_together(word)


def is_put_together(word: str) -> bool:
    """Whether a word in small letters is put together of others, as German and Dutch do: bürostühle."""
    return len(word) > 7 and _COMPOUND.match(word) is not None


@cache
def plain_words() -> frozenset[str]:
    """Return every word in small letters that is no name by itself, of all languages."""
    return common() | foreign() | office_words() | nouns()


@cache
def everyday() -> frozenset[str]:
    """Return lower-case words that are capitalised often without being names."""
    return frozenset(_EVERYDAY.split())


@cache
def common() -> frozenset[str]:
    """Return everyday words and those that people write in lower case."""
    return everyday() | _read("common_words")
