"""What only people do, and what places, prizes and products are called: the words around a capitalised word."""

import re

from governance.detect.names.key_names import names_a_thing
from governance.names.words import places

_ADVERB = r"(?:(?:will|would|can|could|should|must|might|may|has|had|never|always|also|just|already|still|then|probably|definitely|really) ){0,2}"
_ENGLISH = (
    _ADVERB
    + r"(?:forgot|forgotten|forgets|promised|promises|apologi[sz]ed|apologi[sz]es|complained|complains|resigned|retired|emailed|phoned|texted|pinged|messaged|"
    r"insisted|insists|hopes|hoped|feels|felt|thinks|believes|disagrees|disagreed|mentioned|knows|remembers|wonders|is wondering|"
    r"call(?:ed)? in sick|calls (?:me|us|back)|sent (?:me|us) (?:a|an|the|his|her|their)|asked (?:me|us|for|if|whether|to)|wants (?:a|an|the|to|me|us|him|her|it)|"
    r"is (?:now |currently |still |also )?(?:on (?:holiday|vacation|leave|sick leave|parental leave|maternity leave|paternity leave|pto|jury duty|a call|a break)|off (?:sick|today|until|this|on)|sick|ill|"
    r"out (?:of (?:the )?office|sick|until|today|tomorrow|this|next|on)|away (?:until|this|next|on|today|from)|pregnant|married|not feeling|ooo|travell?ing|annoyed|upset|unhappy|happy|worried|"
    r"looking into|waiting for (?:a|an|the|your|my|his|her|us|me)|in a meeting|my|our new|joining us|moving to|taking over|covering for|back (?:on|from|next|in the office))|"
    r"was (?:ill|sick|absent|on (?:holiday|leave|vacation)|born|hired|promoted|late for|asking|wondering|upset)|"
    r"be (?:back|late|out of|away|on leave|joining)|take over|takes over|took over|speaks|(?:moved|switched|changed) to (?:another|a different|the other) (?:team|department|company|office|shift)|left the (?:company|team|office|firm)|joins us|got (?:married|sick|ill)|came back|went home|lives (?:in|at|on|with)|works (?:from home|as a|for us|with me))\b"
)
_GERMAN = (
    r"(?:(?:hat|hatte) (?:\w+ ){0,5}?(?:vergessen|gesagt|gemeint|angerufen|geschrieben|versprochen|gek\u00fcndigt|gefragt|gebeten|unterschrieben|zugesagt|abgesagt|erz\u00e4hlt|geantwortet|beschwert)\b|"
    r"ist (?:\w+ ){0,3}?(?:krank(?:geschrieben)?|im urlaub|in urlaub|in elternzeit|im homeoffice|verreist|schwanger|auf dienstreise|nicht im b\u00fcro)\b|"
    r"(?:sagt|sagte|meint|meinte|fragt|fragte|glaubt|wei\u00df|wusste|ruft (?:\w+ ){0,3}?(?:an|zur\u00fcck)|k\u00fcmmert sich|meldet sich|k\u00fcndigte|m\u00f6chte)\b)"
)
_ROMANCE = (
    r"(?:(?:a|avait) (?:encore |d\u00e9j\u00e0 |bien )?(?:oubli\u00e9|dit|demand\u00e9|promis|appel\u00e9|d\u00e9missionn\u00e9|r\u00e9pondu|pr\u00e9venu)|est (?:\w+ )?(?:en (?:vacances|cong\u00e9s?|arr\u00eat|d\u00e9placement|t\u00e9l\u00e9travail)|malade|enceinte)|"
    r"(?:dit|pense|croit) que|demande (?:si|de|que)|s'occupe d|m'a |nous a |veut |sait |n'est pas l\u00e0|"
    r"(?:se )?(?:olvid\u00f3|dijo|pidi\u00f3|prometi\u00f3|avis\u00f3|pregunt\u00f3|contest\u00f3|quiere|sabe|cree que|dice que|piensa que)|(?:se )?ha (?:dicho|olvidado|pedido|llamado|avisado)|est\u00e1 (?:\w+ )?(?:de (?:baja|vacaciones|permiso|viaje)|enferm[oa]|embarazada)|(?:me|nos) (?:ha|dijo|pidi\u00f3)|"
    r"(?:si )?(?:ha|\u00e8) (?:gi\u00e0 |sempre )?(?:detto|dimenticat[oa]|chiesto|promesso|avvisato|risposto)|dice (?:che|di)|pensa che|vuole|sa che|\u00e8 (?:in (?:ferie|malattia|maternit\u00e0|trasferta)|malat[oa]|incinta)|si occupa|"
    r"disse|esqueceu|pediu|avisou|prometeu|perguntou|respondeu|acha que|falou|quer|sabe|vai (?:ligar|mandar|enviar)|est\u00e1 (?:\w+ )?(?:de (?:f\u00e9rias|baixa|licen\u00e7a|folga)|doente|gr\u00e1vida))\b"
)
_OTHERS = (
    r"(?:heeft (?:\w+ ){0,4}?(?:gezegd|vergeten|gebeld|gevraagd|beloofd|geschreven)\b|(?:zegt|zei|vindt dat|denkt dat|vroeg|wil|weet)\b|is (?:\w+ )?(?:ziek|op vakantie|met verlof|zwanger)\b|"
    r"(?:zapomnia\u0142a?|powiedzia\u0142a?|prosi\u0142a?|prosi|m\u00f3wi|chce|obieca\u0142a?|jest (?:na (?:urlopie|zwolnieniu|l4)|chor[ya]))\b|"
    r"(?:\w+ ){0,3}?(?:unuttu|s\u00f6yledi|dedi|istedi|arad\u0131|izinde|hastaland\u0131|hasta)\b)"
)
_DOES = re.compile(rf",? (?:{_ENGLISH}|{_GERMAN}|{_ROMANCE}|{_OTHERS})", re.IGNORECASE)
_ARTICLE = re.compile(
    r"\b(?:the|an|our|my|your|his|her|their|this|that|each|every|der|die|das|den|dem|des|eine?[mnrs]?|kein|mein|unser|ihr|sein|jeder|dieser|le|les|un|une|mon|notre|votre|"
    r"el|los|las|il|lo|gli|het|de|een|bir)[ ]\Z",
    re.IGNORECASE,
)


def acts_as_a_person(text: str, begin: int, stop: int) -> bool:
    """Whether what follows a capitalised word is done by people alone, and no article stands before it."""
    if text[stop : stop + 1] not in (" ", ",") or _DOES.match(text, stop) is None:
        return False
    return _ARTICLE.search(text, max(0, begin - 10), begin) is None


_DETERMINED = re.compile(
    r"\b(?:the|an|this|our|your|new|used|der|die|das|den|dem|eine?[mnr]?|el|los|las|les|un|une|il|gli)[ ]\Z",
    re.IGNORECASE,
)


def is_determined(text: str, begin: int) -> bool:
    """Whether an article stands before what may be a product: the Mercedes Sprinter."""
    return _DETERMINED.search(text, max(0, begin - 8), begin) is not None


_CALLED_AFTER_PEOPLE = """
    ponte pont puente brücke bridge plaza praça piazza platz parque stadion stadium estadio estádio museo museum musée
    museu teatro theater théâtre mercado marché liceo liceu gymnasium instituto istituto hôpital hospital ospedale
    colegio école escola escuela scuola lycée collège universidad université universidade iglesia église chiesa igreja
    raum besprechungsraum konferenzraum saal hörsaal sala salle zaal gasthof gasthaus autohaus bäckerei metzgerei
    boulangerie panadería ristorante trattoria pizzeria farmacia pharmacie negozio
    catedral cathédrale basílica basilica aeropuerto aéroport aeroporto estación gare stazione estação barrio quartier
    quartiere bairro isla île isola ilha monte lago cabo playa plage spiaggia praia puerto
    """
_KIND_BEFORE_A_NAME = frozenset(_CALLED_AFTER_PEOPLE.split())
"""What stands before a name that is a place's: Ponte, Plaza de, Hospital de la Santa."""
_BETWEEN = frozenset(
    ("de", "la", "di", "da", "do", "del", "della", "du", "des", "san", "santa", "santo", "são", "saint", "sainte", "d.", "dom", "dona")
)  # fmt: skip
_NOT_OF_A_WORD = re.compile(r"\W+")


def _follows_a_kind_of_place(text: str, begin: int) -> bool:
    """Whether a bridge, a square or a school stands before a name, with at most four small words between."""
    if text[begin - 1 : begin] != " ":
        return False
    before = text[max(0, begin - 40) : begin].lower()
    words = before[:-1].split(" ")[-5:]
    while len(words) > 1 and words[-1] in _BETWEEN:
        words.pop()
    return _NOT_OF_A_WORD.split(words[-1])[-1] in _KIND_BEFORE_A_NAME


_KINDS = """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday Day Eve County Island Islands Airport
    Stadium Museum Prize Award Awards Symphony Requiem Theorem Lemma Valley Canyon Falls Bridge Street
    Avenue Road Boulevard River Bay Beach Peninsula Desert Glacier Palace Castle Cathedral Church Abbey
    Hospital University College School Academy Foundation Institute Library Gallery Festival Marathon
    Cup Trophy Act Plan Edition Series Model Method Algorithm Protocol Bahnhof Hauptbahnhof Hbf
    Ostbahnhof Westbahnhof Flughafen Airbase Arena Müzesi Sarayı Meydanı Camii Köprüsü Hastanesi Üniversitesi Lisesi Stadyumu
    Havalimanı Parkı Athletic United Rovers Wanderers Orient Albion Hotspur Palads Slot Slott Kirke Kyrka Kirkko Museet Teatern
    """
_KIND_OF_PLACE = frozenset(_KINDS.split())
"""What a place, a prize, a feast or a method has behind a name."""
_NUMERAL = re.compile(r"(?:II|III|IV|VI{1,3}|IX|XI{0,3}|XIV|XVI{0,3}|I(?:er|re))\Z")
_SAINT = re.compile(r"\b(?:San|Santa|Santo|S\u00e3o|Sant|Saint|Sainte|St\.?|Ste|Sankt|Puerto|Ciudad|Villa|Monte|R\u00edo|Port|Mount|Lake|Fort|New|Cape|Bad)[ -]\Z")  # fmt: skip
_SAINTS = frozenset(
    ("San", "Santa", "Santo", "S\u00e3o", "Saint", "Sainte", "Sankt", "Sint", "St", "St.")
)
_CONNECTIVES = frozenset(("y", "e", "i", "und", "and", "et", "en"))


def is_called_after(text: str, begin: int, words: list[str]) -> bool:
    """Whether a place or a prize has somebody's name: Ponte D. Luís, Mariposa County, Santa Cruz, Gijón y Avilés."""
    if len(words) > 1 and (words[-1] in _KIND_OF_PLACE or _NUMERAL.match(words[-1])):
        return True
    if len(words) > 1 and words[0] in _SAINTS:
        return True
    if not begin:
        return _are_places(words)
    if _is_labelled_a_thing(text, begin):
        return True
    if _SAINT.search(text, max(0, begin - 9), begin):
        if len(words) == 1:
            return True
        left = [word for word in words[1:] if word not in _CONNECTIVES]
        if all(word.lower() in places() for word in left):
            return True
    elif _are_places(words):
        return True
    if text[max(0, begin - 4) : begin] == "via " or _of_a_program(
        text, begin, begin + len(words[0])
    ):
        return True
    return _follows_a_kind_of_place(text, begin)


def _are_places(words: list[str]) -> bool:
    """Whether these are places with an "and" between them."""
    return not _CONNECTIVES.isdisjoint(words) and all(
        word in _CONNECTIVES or word.lower() in places() for word in words
    )


_LABEL_BEFORE = re.compile(r"([^\W\d_]+)[\"']?[ ]?[:=][ ]?[\"']?\Z")


def _is_labelled_a_thing(text: str, start: int) -> bool:
    """Whether the word before a colon says that a thing is named: a brand, a stop, a river."""
    between = text[max(0, start - 3) : start]
    if ":" not in between and "=" not in between:
        return False
    label = _LABEL_BEFORE.search(text, max(0, start - 32), start)
    return label is not None and names_a_thing((label[1],))


_STEP_NAME = re.compile(r"(?:\A|[\n+\-])[ \t+\-]*name: [\"']?\Z")
_STEP = re.compile(
    r"[^\n]{0,40}\n[ \t+\-]*(?:run|uses|with|if|env|hosts|steps|version|on|cron|script|command|[a-z_]+\.[a-z_.]+):"
)


def is_a_step(text: str, begin: int, stop: int) -> bool:
    """Whether a word stands behind ``name:`` in a file of settings whose next line says what a program does."""
    if text[begin - 1 : begin] not in (" ", '"', "'"):
        return False
    return (
        _STEP_NAME.search(text, max(0, begin - 32), begin) is not None
        and _STEP.match(text, stop) is not None
    )


_COMPONENT = re.compile(r"(?:[\dZ]|INFO|WARN|WARNING|ERROR|DEBUG)\]?:? ?\[\Z")
_NAME_OF_A_THING = re.compile(
    r"\b(?:app|application|project|service|cluster|team|product|repo|repository|release|database|db|server|bot|channel|queue|topic|theme|brand|module|plugin|instance|node|pod|image)[ _-]?name[\"']?[ ]?[:=][ ]?[\"']?\Z",
    re.IGNORECASE,
)


def _of_a_program(text: str, begin: int, stop: int) -> bool:
    """Whether a word is the component of a log line, or follows the label of a thing's name."""
    if text[begin - 1 : begin] == "[" and text[stop : stop + 1] == "]":
        return _COMPONENT.search(text, max(0, begin - 12), begin) is not None
    before = text[max(0, begin - 32) : begin]
    return before.rstrip(" \"'")[-1:] in (":", "=") and _NAME_OF_A_THING.search(before) is not None


_SCIENCE_STEMS = """
    theorem lemma inequalit algorithm kernel posterior distribution matrix matrices equation conjecture integral gradient
    graph lipschitz convex eigen polynomial heuristic entropy regression likelihood estimator gaussian sparse converge
    statistic alpha kappa variance significan p-value hypothesis corollary invariant derivative coefficient manifold
    stochastic bounded
    """
_SCIENCE = tuple(_SCIENCE_STEMS.split())
_AROUND = 160


def is_of_science(text: str, begin: int, stop: int) -> bool:
    """Whether two words of mathematics stand around a family name: Bellman-Ford, Jensen."""
    around = text[max(0, begin - _AROUND) : stop + _AROUND].lower()
    return sum(stem in around for stem in _SCIENCE) > 1
