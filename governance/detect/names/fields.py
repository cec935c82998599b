"""Words of special fields around a name: mathematics, sport, music, the sky, timetables, goods, history.

Where two words of one field stand around what only looks like a name, it is a club's, a work's, a station's.
"""

import re
from bisect import bisect_left
from functools import cached_property

import ahocorasick

from governance.names.words import common

_SCIENCE_STEMS = """
    theorem lemma inequalit algorithm kernel posterior distribution matrix matrices equation conjecture integral gradient
    graph lipschitz convex eigen polynomial heuristic entropy regression likelihood estimator gaussian sparse converge
    statistic alpha kappa variance significan p-value hypothesis corollary invariant derivative coefficient manifold
    stochastic bounded
    """
_SPORT_STEMS = """
    jornada|perdeu |venceu|ganó |perdió |vinse|spieltag|tabellenf|bundesliga|premier league|la liga|eredivisie|serie a|ekstraklasa|süper lig|empat|torneo|torneio|matchday|derby|relegat|abstieg|
    descenso|retrocess|rebaixamento|wedstrijd|campionato|classifica|kick-off|half-time|halbzeit|segundo tiempo|primera parte|secondo tempo|away win|home win|
    estadio|stadion|estádio| goles| gols|los puntos| tre punti| goals | tore | doelpunt|puntos del|liderato|standings|fixture|allsvenskan|kolejka
    """
_MUSIC_STEMS = """
    serenade| op. |bwv|(rv|(kv|(hwv|programma|programme|magnificat|sinfoni|symphon|orchest|orkest|orgel|organo|kantate|cantata|requiem|sonat|quartett|quartet|quatuor|oratori|philharmon|filharmon|
    kammerchor| chor |opus| op. | d-dur| c-moll| en ré| en do |in d major|in c minor|konzert|concerto|ouverture|ouvertüre|partita|prélude|nocturne|libretto|
    köchel| kv | k. | zwv | hwv | rv | sz. | hob.
    """
_TRAVEL_STEMS = """
    regionale|intercity|frecciarossa| bin. |binario| gleis|bahnsteig| andén|haltestelle|przystan|fermata |hållplats|tramwaj|elétrico| p.n.|giorni lavorativi|sospeso|linie s
    """
_SKY_STEMS = """
    asteroid|planet|satellite| moon| mond |luna |lune |lua |orbit|órbita|sonda |spacecraft|raumsonde|magnitud|magnitude|júpiter|jupiter|saturn|uranus|urano|neptun|
    comet|komet|crater|krater|telescop|teleskop|transit of|perihel|semi-major|eclip|astronom|ganimedes|ganymed|callisto|constellation|sternbild
    """
_GOODS_STEMS = """
    inhoud:|inhalt:|contenu|contenido|contenuto|conteúdo| ml | g,| kg| 1x | 2x |stück|stuks|loyalty| brand |hersteller|manufactur|
    resistor|capacitor|connector|header|jack|ohm|4k7|10k| 1%|mcu|datasheet|spare part|ersatzteil|pièce|recambio|ricambio|packung|pocket|pakket|levering
    """
_HISTORY_STEMS = """
    siècle|siglo|secolo|século|jahrhundert|century|empire|imperio|impero|reich |révolution|revolución|bataille|batalla|battaglia|schlacht|traité|dynast|
    brumaire|directoire|constitution de|napol|grenadiers|régiment|könig|kaiser|guerre de|guerra de|krieg
    """
_FIELDS = (
    _SCIENCE_STEMS.split(),
    *(
        [stem for stem in stems.replace("\n    ", "").strip("\n").split("|") if stem]
        for stems in (
            _SPORT_STEMS, _MUSIC_STEMS, _TRAVEL_STEMS, _SKY_STEMS, _GOODS_STEMS, _HISTORY_STEMS,
        )
    ),
)  # fmt: skip
_AROUND = 160
_TOKEN = re.compile(r"[^\W\d_]+")
_STEMS = ahocorasick.Automaton()
for _field, _stems in enumerate(_FIELDS):
    for _stem in _stems:
        _STEMS.add_word(_stem, (_field, _stem))
_STEMS.make_automaton()


class FieldWords:
    """Where the words of special fields stand in a text; looked for once, when first asked."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _found(self) -> list[tuple[int, int, str]]:
        """Ends of the words, each with its field."""
        return [(last + 1, *word) for last, word in _STEMS.iter(self._text.lower())]

    @cached_property
    def _ends(self) -> list[int]:
        return [end for end, _, _ in self._found]

    @cached_property
    def uncommon(self) -> set[str]:
        """The text's words in small letters, without everyday English ones."""
        return set(_TOKEN.findall(self._text.lower())) - common()

    def around(self, begin: int, stop: int) -> bool:
        """Whether two words of one field stand around a name: Bellman-Ford, Jensen; clubs, works, stations."""
        fields: dict[int, str] = {}
        for place in range(bisect_left(self._ends, begin - _AROUND), len(self._found)):
            end, field, stem = self._found[place]
            if end - len(stem) > stop + _AROUND:
                break
            if end > begin and end - len(stem) < stop:
                continue  # the name itself
            if fields.setdefault(field, stem) != stem:
                return True
        return False
