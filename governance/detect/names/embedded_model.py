"""Names by the embedded model: what it finds itself, and its word on what the rules found by lists alone."""

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from operator import itemgetter

from governance.detect.finding import Finding, Unit
from governance.detect.named_tuples import new
from governance.detect.names.east_asian import FIRST_LETTER, names_nobody
from governance.detect.names.key_names import names_a_thing
from governance.detect.names.model import covered, segments
from governance.detect.names.patterns import BETWEEN_EMPHASISED
from governance.detect.names.person_checks import is_a_plain_word, names_no_person
from governance.detect.names.tagger import EMBEDDED, LABELS, Floats, NamesTagger, TextTokens
from governance.detect.rules.name_checks import is_known
from governance.names.words import common, is_put_together

VERSION = "embedded-5"
_LEAST: Mapping[str, float] = {"PERSON": 0.6, "USERNAME": 0.6, "LOCATION": 0.5, "ORGANIZATION": 0.5}
"""How likely a label is at least where it counts."""
_DOUBTED = 0.15
"""How likely a person is at least where a rule found one by lists alone."""
_GOES_ON = 0.7
"""How much of that is enough for the words beside."""
_SURE = 0.9
_NEVER = 2.0
"""More likely than anything is."""
_LIKELY = 0.75
"""How likely one word is somebody at least that no list has as a name."""
_SEGMENT = 1300
_CACHE_ENTRIES = 20_000
_AT_ONCE = 2500
"""So many characters are looked at together: their matrices stay within the processor's cache."""
_LONGEST_VALUE = 200
_WORDS = re.compile(r"(?<![@\w])[^\W\d_]{3,}")
_ANY_NUMBER = bytes.maketrans(b"0123456789", b"1111111111")
"""Which number it is says nothing of who is named: lines that differ in numbers are asked about once."""
_EMPHASIS = re.compile(rf"(?<=[^\W\d_])(?:{BETWEEN_EMPHASISED})(?=[^\W\d_])")
"""To the model, spaces."""
_PLAIN_KEYS = frozenset({"text", "content", "value", "arguments", "parts"})
_A_KEY = "*"
"""What stands in a key path for a key that is looked at itself."""
_OPAQUE = re.compile(
    r"(?:(?<!\w)[A-Za-z]\w{1,15}[-_:])?"
    r"(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?<![A-Za-z0-9])(?=(?:[A-Za-z]*\d+[A-Za-z]+){2})[A-Za-z0-9]{16,})(?!\w)"
)
"""An id that a program drew, with what kind of id it is: `chatcmpl-b4f16c27…`, `toolu_01Tx…`, UUIDs, hashes."""
_SHORTEST_OPAQUE = 16
_REMOTE = re.compile(
    r"(?:\bgit@[\w.\-]+:|\b(?:https?|ssh|git)://(?:[\w.\-]+@)?[\w.\-]*(?:git|bitbucket|codeberg)[\w.\-]*(?::\d+)?/)"
    r"[\w.~\-]+/[\w.~/\-]+"
)
"""Where a repository is; whose it is, the rules for accounts judge."""
_BRANCH = re.compile(
    r"(?<![\w.\-])(?:fix|feat|feature|bugfix|hotfix|chore|release|refactor|revert)/\Z"
)
"""What a branch begins with whose name says what changes."""
_IN_CAMEL_CASE = re.compile(r"[a-z]+(?:[A-Z][a-z0-9]*)+\Z")
_SHORT = 60
_FIRST_HALF = re.compile(r"(?<![^\W_])[^\W\d_a-z][^\W\d_]{1,16}-\Z")
"""The first half of a given name that is written with a hyphen."""
_LONGEST_HALF = 20
_PLACE = itemgetter(1, 2)

type _Span = tuple[str, int, int, float]
"""Label, start and end, and how likely it is."""


class EmbeddedNames:
    """Finds names, accounts, places and organisations by the embedded model."""

    name = "names_model"
    version = VERSION

    def __init__(self, entities: frozenset[str]) -> None:
        self.entities = frozenset(LABELS[1:])
        self._wanted = self.entities & entities
        people = {"PERSON", "USERNAME"}
        self._asked = [LABELS.index(label) for label in sorted(self._wanted | people)]
        self._tagger = _tagger()
        self._common = common()
        self._cache: OrderedDict[bytes, tuple[_Span, ...]] = OrderedDict()

    def find(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]] = ()
    ) -> list[list[Finding]]:
        """Return the names of wanted types that nobody has found yet."""
        least = {label: _LEAST[label] for label in self._wanted}
        out: list[list[Finding]] = []
        for place, (unit, all_spans) in enumerate(
            zip(units, self._spans(units, known), strict=True)
        ):
            found: list[Finding] = []
            out.append(found)
            spans = [span for span in all_spans if span[3] >= least.get(span[0], _NEVER)]
            if not spans:
                continue
            text = unit.view.text
            firsts, lasts = covered(known[place]) if known and known[place] else ([], [])
            opaque = _of_programs(text)
            is_thing = len(text) < _SHORT and names_a_thing(unit.keys)
            for label, start, end, likely in spans:
                if is_thing and label == "PERSON" and likely < _SURE:
                    continue
                if label == "PERSON" and _is_hardly_anybody(text[start:end], likely):
                    continue
                if opaque and any(first < end and start < last for first, last in opaque):
                    continue
                if start and text[start - 1] == "@":
                    continue  # an account, which the rules for accounts judge
                if label == "USERNAME" and _BRANCH.search(text, max(0, start - 10), start):
                    continue
                if label == "PERSON" and text[start - 1 : start] == "-":
                    start = _before_the_hyphen(text, start)
                begin, stop = unit.view.span(start, end)
                at = bisect_left(lasts, stop)
                if at < len(lasts) and firsts[at] <= begin:
                    continue
                if label == "PERSON" and (
                    _IN_CAMEL_CASE.match(text[start:end])
                    or is_a_plain_word(text[start:end])
                    or names_no_person(text, start, end)
                ):
                    continue
                score = 0.8 if likely > _SURE else 0.6
                found.append(new(Finding, (label, begin, stop, score, self.name)))
        return out

    def confirmed(
        self, units: Sequence[Unit], found: Sequence[list[Finding]]
    ) -> list[list[Finding]]:
        """Return what was found without what the model holds for nobody."""
        asked = [place for place, findings in enumerate(found) if findings]
        spans = self._spans([units[place] for place in asked])
        out: list[list[Finding]] = [[] for _ in found]
        for place, likely in zip(asked, spans, strict=True):
            view = units[place].view
            people = [
                view.span(start, end)
                for label, start, end, _ in likely
                if label in ("PERSON", "USERNAME")
            ]
            ends = [end for _, end in people]
            for finding in found[place]:
                at = bisect_left(ends, finding.start + 1)
                if at < len(people) and people[at][0] < finding.end:
                    out[place].append(finding)
        return out

    def _spans(
        self, units: Sequence[Unit], known: Sequence[Sequence[Finding]] = ()
    ) -> Iterator[list[_Span]]:
        """Yield the spans of each unit, also those that are hardly likely."""
        pieces: list[list[tuple[int, int, bytes]]] = []
        fresh: dict[bytes, str] = {}
        for place, unit in enumerate(units):
            text = unit.view.text
            of_unit: list[tuple[int, int, bytes]] = []
            pieces.append(of_unit)
            if unit.is_digits or not self._may_name(unit, known[place] if known else ()):
                continue
            before = _before(unit)
            for at, piece in segments(text, _SEGMENT):
                read = before + piece
                if "**" in read or "~~" in read:
                    read = _EMPHASIS.sub(lambda marks: " " * len(marks[0]), read)
                data = read.encode("utf-8", "surrogatepass").translate(_ANY_NUMBER)
                name = blake2b(data, digest_size=16).digest()
                of_unit.append((at - len(before), at, name))
                if name not in self._cache:
                    fresh[name] = data.decode("utf-8", "surrogatepass")
        self._ask(fresh)
        for of_unit in pieces:
            yield [
                (label, at + start, at + end, likely)
                for at, begin, name in of_unit
                for label, start, end, likely in self._cache[name]
                if at + start >= begin
            ]
        while len(self._cache) > _CACHE_ENTRIES:
            self._cache.popitem(last=False)

    def _may_name(self, unit: Unit, known: Sequence[Finding]) -> bool:
        """Whether there is a word, no everyday one, that nobody has found yet."""
        text = unit.view.text
        if unit.keys[-1:] == (_A_KEY,) and _IN_CAMEL_CASE.match(text):
            return False
        if known:
            starts, ends = covered(known)
            original = unit.view.original
            text = " ".join(
                [
                    original[end:start]
                    for end, start in zip((0, *ends), (*starts, None), strict=True)
                ]
            )
        if _SHORTEST_OPAQUE <= len(text) < _LONGEST_VALUE:
            text = _OPAQUE.sub(" ", text)
        return not self._common.issuperset(map(str.lower, _WORDS.findall(text)))

    def _ask(self, texts: Mapping[bytes, str]) -> None:
        held: list[bytes] = []
        size = 0
        for name, text in texts.items():
            held.append(name)
            size += len(text)
            if size >= _AT_ONCE:
                self._ask_together(held, [texts[one] for one in held])
                held, size = [], 0
        if held:
            self._ask_together(held, [texts[one] for one in held])

    def _ask_together(self, names: Sequence[bytes], group: Sequence[str]) -> None:
        tokens, likely = self._tagger(group)
        found: list[list[_Span]] = [[] for _ in group]
        for label in self._asked:
            for at, span in _grouped(group, tokens, likely[:, label], LABELS[label]):
                found[at].append(span)
        for name, spans in zip(names, found, strict=True):
            self._cache[name] = tuple(sorted(spans, key=_PLACE))


def _is_hardly_anybody(value: str, likely: float) -> bool:
    """Whether what may be somebody is put together of words, or no list has it and the model is in doubt."""
    if value[0] >= FIRST_LETTER:
        return names_nobody(value)
    return _is_unlisted(value) and (likely < _LIKELY or is_put_together(value.lower()))


def _is_unlisted(word: str) -> bool:
    """Whether this is one word of Latin letters that no list has as a name."""
    return " " not in word and word.isalpha() and word[0] < "\u0250" and not is_known(word)


def _before_the_hyphen(text: str, start: int) -> int:
    """Return where a name begins whose first half the model left out: Sun-hee."""
    half = _FIRST_HALF.search(text, max(0, start - _LONGEST_HALF), start)
    return half.start() if half else start


def _of_programs(text: str) -> list[tuple[int, int]]:
    """Return where ids that programs drew and remotes of repositories are."""
    may_be_ids = len(text) >= _SHORTEST_OPAQUE
    out = [match.span() for match in _OPAQUE.finditer(text)] if may_be_ids else []
    if "git" in text or "bitbucket" in text or "codeberg" in text:
        out += [match.span() for match in _REMOTE.finditer(text)]
    return out


def _before(unit: Unit) -> str:
    """Return what stands before a value as documents write it: its key."""
    if not unit.keys or unit.keys[-1] in _PLAIN_KEYS or len(unit.view.text) > _LONGEST_VALUE:
        return ""
    return '{"' if unit.keys[-1] == _A_KEY else f'"{unit.keys[-1]}": "'


def _grouped(
    texts: Sequence[str], tokens: TextTokens, scores: Floats, label: str
) -> Iterator[tuple[int, _Span]]:
    """Yield the spans of one label, each with its text's place: words that stand together, and marks between."""
    least = _DOUBTED if label == "PERSON" else _LEAST[label]
    chosen = (scores >= least).nonzero()[0].tolist()
    if not chosen:
        return
    starts, ends, text_of = tokens.starts.tolist(), tokens.ends.tolist(), tokens.text_of.tolist()
    likely = scores.tolist()
    free = 0
    for first in chosen:
        text = texts[text_of[first]]
        if first < free or not text[starts[first]].isalpha():
            continue
        goes_on = _GOES_ON * (least if likely[first] < _LEAST[label] else _LEAST[label])
        last = at = first
        while (
            at + 1 < len(starts)
            and text_of[at + 1] == text_of[first]
            and likely[at + 1] >= goes_on
            and "\n" not in text[starts[at + 1] : ends[at + 1]]
        ):
            at += 1
            if text[starts[at]].isalnum():
                last = at
        free = last + 1
        if ends[last] - starts[first] > 1:
            best = max(likely[first : last + 1])
            yield text_of[first], (label, starts[first], ends[last], best)


@cache
def _tagger() -> NamesTagger:
    """Return the embedded model; it keeps nothing of what it reads, so a process needs it once."""
    return NamesTagger(EMBEDDED)
