"""Names of people by rules: what stands around a name, and word lists of names."""

import re
from collections.abc import Callable, Iterator, Sequence

from governance.detect.code_terms import (
    ProgramSigns,
    is_declared,
    is_heading,
    is_plain_word,
    is_term,
)
from governance.detect.finding import Finding, Unit
from governance.detect.named_tuples import new
from governance.detect.names.acts import (
    acts_as_a_person,
    is_a_step,
    is_called_after,
    is_determined,
)
from governance.detect.names.cues import NONE, STRONG, cue
from governance.detect.names.key_names import (
    may_be_anybody,
    may_name_a_person,
    names_a_person,
    names_a_thing,
)
from governance.detect.names.patterns import (
    AFTER,
    AFTER_NAMED,
    BRACKETED,
    CAMEL_CASE,
    CLOSING,
    CLOSING_WORD,
    DIGITS_WITHIN,
    FAMILY_FIRST,
    GREETED_IN_SMALL,
    HANDLE_WORD,
    IN_CODE,
    LOWER_CASE_NAME,
    MAILBOX,
    NAME_AT,
    OF_THINGS,
    ONE_LINE_NAME,
    OTHER_SCRIPT,
    SMALL_WORD,
    SPEAKER,
    SPEAKER_LINE,
    SPEAKS,
    TELLS_NAME,
    TWO_IN_SMALL,
    WORD,
)
from governance.detect.normalized_text import TextView
from governance.detect.questions import ANSWERED_NAME, name_in_answer
from governance.detect.rules.account_checks import person_account
from governance.detect.rules.name_checks import (
    are_words,
    has_a_title,
    is_a_brand,
    is_a_team,
    likely,
)
from governance.names.companies import is_a_company
from governance.names.words import (
    ambiguous_names,
    common,
    everyday,
    family_names,
    first_names,
    hand_written_first_names,
    is_a_place,
    is_a_thing,
    is_listed,
    is_plain,
    plain_words,
    programs,
    things,
    within_a_thing,
)

_VERSION = "rules-13"

_LOOKALIKES = dict(zip("АВЕКМНОРСТХаеорсухіјѕԁɡ", "ABEKMHOPCTXaeopcyxijsdg", strict=True))
_LONGEST_CHAT = 400
_LONGEST_WORD = 64

_DATE_WORDS = frozenset(
    [
        "Jan",
        "Feb",
        "Mar",
        "Apr",
        "May",
        "Jun",
        "Jul",
        "Aug",
        "Sep",
        "Oct",
        "Nov",
        "Dec",
        "Mon",
        "Tue",
        "Wed",
        "Thu",
        "Fri",
        "Sat",
        "Sun",
    ]
)
_PARTICLES = frozenset(
    [
        "von",
        "van",
        "der",
        "den",
        "de",
        "del",
        "della",
        "di",
        "da",
        "dos",
        "das",
        "do",
        "du",
        "la",
        "le",
        "zu",
        "af",
        "av",
        "al",
        "bin",
        "ten",
        "ter",
    ]
)
"""What stands between a given and a family name, and in the names of places seldom."""
_SHORT = 60
_TOLD_BY = {
    why: f"name_rules.{why}"
    for why in ("cue", "key", "list", "mailbox", "pair", "participant", "signature", "told", "verb")
}


type Confirmed = Callable[[Sequence[Unit], Sequence[list[Finding]]], list[list[Finding]]]
"""Returns what was found without what is nobody."""
type _Run = tuple[int, int, list[str]]
"""Start and end of words that stand next to each other, and the words."""
type _Span = tuple[int, int, float, str]
"""Start and end of a name, how sure it is, and what told of it."""

_PARTICIPANT = ("participant", "name")
"""Key path of a message's ``name``: often an agent's or a role, now and then somebody's."""


def _is_weak(finding: Finding) -> bool:
    return finding.detector == _TOLD_BY["list"]


def _is_camel(word: str) -> bool:
    """Whether a word has capitals within it as names of programs have."""
    return not word.istitle() and CAMEL_CASE.match(word) is not None


def _in_one_script(word: str) -> str:
    """Return a word with Latin letters for those that look like them."""
    return "".join(map(_LOOKALIKES.get, word, word))


def _is_label(text: str, begin: int) -> bool:
    """Whether a word with a colon, and no sentence, announces a name."""
    return text[max(0, begin - 4) : begin].rstrip(" \"'")[-1:] in (":", "=")


def _may_close(text: str) -> bool:
    """Whether a letter may close in a text: a quick look at short ones, which most values are."""
    if len(text) > _SHORT:
        return True
    return not text.isalnum() and CLOSING_WORD.search(text.lower()) is not None


def _are_words(text: str) -> bool:
    return text.replace(" ", "").isalpha() and 1 < len(text) < 40 and text.count(" ") < 4


def _is_nobody(text: str) -> bool:
    """Whether what stands under a person's key is none: a company, a program, a word for nobody."""
    words = text.replace("-", " ").split()
    if is_a_company(text, 0, len(text), is_named=words[0].title() in first_names()):
        return True
    if any(word.title() in first_names() or word.title() in family_names() for word in words):
        return False
    plain = text.lower()
    if plain in things() or (person_account(plain) is False and plain.isalpha()):
        return True
    return all(is_plain(word.lower()) for word in words)


def _may_be_a_family(text: str) -> bool:
    """Whether one word has the shape of a family name, and is no word, program or place."""
    plain = text.replace("-", "").replace("'", "").replace("\u2019", "")
    if not 4 <= len(text) <= 24 or not plain.isalpha() or _is_camel(text):
        return False
    if not text[0].isupper() or text.isupper() or is_listed(text, 0, len(text)):
        return False
    if OF_THINGS.search(text):
        return False
    return not _is_nobody(text) and not any(map(is_plain, text.lower().split("-")))


def _is_nobodys(words: list[str], mailbox: str, host: str) -> bool:
    """Whether what stands before a mailbox is a program or a team; people answer from ``noreply@`` too."""
    if are_words(words):
        return True
    if person_account(mailbox.rpartition("+")[2]) is not False:
        return False
    first = words[0].lower()
    if len(words) == 1 and (first == host.partition(".")[0].lower() or first in programs()):
        return True
    return first in programs() and (are_words(words[1:]) or words[-1] in ("Bot", "Robot"))


def _of_a_mailbox(text: str, start: int, end: int) -> bool:
    """Whether words stand before the mailbox of a program."""
    if not text.startswith(" <", end):
        return False
    found = MAILBOX.match(text, end + 2)
    return found is not None and _is_nobodys(WORD.findall(text, start, end), found[1], found[2])


class NameRules:
    """Finds names of people by their surroundings."""

    name = "name_rules"
    version = _VERSION
    entities = frozenset({"PERSON"})

    def __init__(self, confirmed: Confirmed | None = None) -> None:
        """Find names.

        Args:
            confirmed: says which of those that lists alone speak for are people indeed.
        """
        self._confirmed = confirmed
        self._first = first_names()
        self._first_in_small = frozenset(map(str.lower, self._first))
        self._last = family_names()
        self._ambiguous = ambiguous_names()
        self._everyday = everyday()
        self._common_words = common()
        self._plain = plain_words()

    def find(
        self,
        units: Sequence[Unit],
        known: Sequence[Sequence[Finding]] = (),  # noqa: ARG002 - looks at everything
    ) -> list[list[Finding]]:
        """Return names with scores."""
        persons = {keys for keys in {unit.keys for unit in units} if names_a_person(keys)}
        found = [self._found(unit, unit.keys in persons) for unit in units]
        if self._confirmed is None:
            return found
        kept = self._confirmed(units, [list(filter(_is_weak, findings)) for findings in found])
        return [
            [one for one in findings if not _is_weak(one)] + sure
            for findings, sure in zip(found, kept, strict=True)
        ]

    def _found(self, unit: Unit, is_person: bool) -> list[Finding]:
        view, context, is_digits = unit
        text = view.text
        is_word = len(text) <= _LONGEST_WORD and text.isalpha() and max(text) < "\u0250"
        spans: dict[_Span, None] = {}
        if not is_digits:
            spans = dict.fromkeys(self._of_word(text) if is_word else self._spans(view))
        if context == _PARTICIPANT:
            if self._is_handle(text):
                spans[(0, len(text), 0.8, "participant")] = None
        elif context[-1:] == (ANSWERED_NAME,):
            if place := name_in_answer(text):
                spans[(*place, 0.8, "key")] = None
        elif is_person:
            whole = ONE_LINE_NAME.match(text)
            if whole and len(text) < 80:
                if not _is_nobody(whole[1]):
                    spans[(whole.start(1), whole.end(1), 0.8, "key")] = None
            elif _are_words(text) and not _is_nobody(text):
                spans[(0, len(text), 0.8, "key")] = None
        elif names_a_thing(unit.keys) and len(text) < _SHORT:
            spans = {}
        elif (may_name_a_person(unit.keys) and 1 < len(text) < 60 and self._likely(text)) or (
            may_be_anybody(unit.keys) and _may_be_a_family(text)
        ):
            spans[(0, len(text), 0.7, "key")] = None
        return [
            new(Finding, ("PERSON", *view.span(start, end), score, _TOLD_BY[why]))
            for start, end, score, why in spans
        ]

    @staticmethod
    def _likely(text: str) -> bool:
        """Whether all of a text has the shape of a name: capitals, and no everyday word first."""
        words = text.replace(", ", " ").split()
        if (
            not 1 <= len(words) <= 4
            or not "".join(words).replace("-", "").replace("'", "").replace(".", "").isalpha()
        ):
            return False
        if not text.isascii() and max(text) > "\u0590":
            return len(text) > 1
        if (
            not words[0][0].isupper()
            or not words[-1][0].isupper()
            or is_a_thing(text, 0, len(text))
        ):
            return False
        return likely(text) is None

    def _of_word(self, text: str) -> Iterator[_Span]:
        """Yield what there is in one word of Latin letters: a given name that is no other word."""
        if len(text) < 3 or not text[0].isupper() or CAMEL_CASE.match(text):
            return
        if self._is_first(text) and not self._common(text) and text.lower() not in things():
            yield 0, len(text), 0.5, "list"

    def _spans(self, view: TextView) -> Iterator[_Span]:
        text = view.text
        if DIGITS_WITHIN.match(text):
            return
        signs = ProgramSigns(text)
        for match in NAME_AT.finditer(text):
            if match[0].lower() in self._everyday and match[0] not in self._ambiguous:
                continue  # one word that no name begins or ends with
            start, end = match.span()
            cued = cue(view.data, start)
            if cued and (is_a_step(text, start, end) or _of_a_mailbox(text, start, end)):
                continue
            if cued and (given := self._given_that_is_a_word(text, start, end, cued)):
                yield given
            if judged := self._judged(view, start, end, cued, signs):
                yield judged
        for match in CLOSING.finditer(text) if _may_close(text) else ():
            found = NAME_AT.match(text, match.end())
            if found and self._alone(text, found.end()):
                run = self._trimmed(text, found.start(), found.end())
                if run is not None and run[1] - run[0] > 1 and not is_a_team(found[0]):
                    yield *run[:2], 0.8, "signature"
        if "name" in text and TELLS_NAME.search(text):
            for match in LOWER_CASE_NAME.finditer(text):
                words = match.group(1).split()
                told = match.group()[:3].lower() in ("my ", "his", "her")
                if not any(
                    word in (self._everyday if told else self._common_words) for word in words
                ):
                    yield *match.span(1), 0.7, "told"
        if len(text) <= _LONGEST_CHAT and " " in text and not text.istitle():
            yield from self._in_small_letters(text)
        if ": " in text and "\n" in text:
            yield from self._speakers(text)
        if ", " in text:
            for match in FAMILY_FIRST.finditer(text):
                if self._is_family_first(text, match):
                    yield *match.span(), 0.7, "list"
        if not text.isascii():
            for match in OTHER_SCRIPT.finditer(text):
                if cue(view.data, match.start()) != NONE:
                    yield match.start(), match.end(), 0.7, "cue"
        if "@" in text:
            for match in BRACKETED.finditer(text):
                run = self._trimmed(text, *match.span(1))
                if run is not None and not _is_nobodys(run[2], match[2], match[3]):
                    yield *run[:2], 0.85, "mailbox"

    def _in_small_letters(self, text: str) -> Iterator[_Span]:
        """Yield names that somebody wrote without capitals: maria gonzalez; this is maria."""
        if self._first_in_small.isdisjoint(SMALL_WORD.findall(text)):
            return  # a quick look: most texts end here
        for match in TWO_IN_SMALL.finditer(text):
            first, last = match[1].capitalize(), match[2].capitalize()
            if (
                first not in self._first
                or last not in self._last
                or any(map(is_plain, match.groups()))
            ):
                continue
            if f"{match[1]} {match[2]}" not in things():
                yield match.start(), match.end(2), 0.7, "list"
        for match in GREETED_IN_SMALL.finditer(text):
            word = match[1]
            if word.capitalize() in self._first and not is_plain(word) and word not in things():
                goes_on = match[2] and not is_plain(match[2]) and match[2] not in things()
                yield match.start(1), match.end(2 if goes_on else 1), 0.7, "cue"

    def _speakers(self, text: str) -> Iterator[_Span]:
        """Yield who speaks in a chat: one of them is a listed name, or somebody speaks twice."""
        lines = [
            match
            for match in SPEAKER_LINE.finditer(text)
            if not any(is_plain(word.lower()) for word in match[1].split())
            and match[1].lower() not in things()
        ]
        speakers = [match[1] for match in lines]
        known = any(word in self._first for speaker in speakers for word in speaker.split())
        if len(lines) > 1 and (known or len(set(speakers)) < len(speakers)):
            yield from ((*match.span(1), 0.6, "verb") for match in lines)

    def _is_family_first(self, text: str, match: re.Match[str]) -> bool:
        """Whether two words with a comma between them are a family and a given name."""
        family, given = match[1], match[2]
        if (
            given not in self._first
            or is_plain(family.lower())
            or family in hand_written_first_names()
        ):
            return False
        if is_listed(text, *match.span(1)) or is_listed(text, *match.span(2)):
            return False
        if family in self._last and given in hand_written_first_names():
            return True
        before = text[max(0, match.start() - 3) : match.start()].strip(" \t\"'*>-(")
        return before in ("", ":", "=", "|", ";") and not family.isupper()

    def _is_handle(self, text: str) -> bool:
        """Whether what a participant calls itself holds somebody's name (``alice_smith``)."""
        words = {word.capitalize() for word in HANDLE_WORD.findall(text)}
        named = {w for w in words if w.lower() not in self._common_words}
        return not named.isdisjoint(self._first | self._last | self._ambiguous)

    @staticmethod
    def _alone(text: str, end: int) -> bool:
        """Whether the line ends here, apart from punctuation."""
        rest = text[end : end + 3]
        return not rest or rest.lstrip(" .,!\r")[:1] in ("", "\n")

    def _common(self, word: str) -> bool:
        plain = word.rstrip(".'").lower()
        if plain in self._everyday:
            return True
        if not word.isupper() or len(plain) < 2 or word in self._first:
            return False
        return len(plain) < 4 or plain in self._plain or plain in things()

    def _trimmed(self, text: str, start: int, end: int) -> _Run | None:
        """Cut everyday words off both ends of a capitalised run; None when nothing is left."""
        run = text[start:end]
        words: list[str] = run.split() if run.replace(" ", "").isalpha() else WORD.findall(run)
        if self._all_may_name(words):
            return start, end, words
        first, last = 0, len(words)
        while first < last and (self._common(words[first]) or self._is_plain(words, first, last)):
            first += 1
        while first + 1 < last and self._common(words[last - 1]):
            last -= 1
        while first < last and _is_camel(words[first]):
            first += 1
        for place in range(first, last) if last - first > 1 else ():
            word = words[place]
            if _is_camel(word) or (
                place < last - 1 and self._common(word) and not word.rstrip(".").islower()
            ):
                last = place
                break
        if first == last:
            return None
        stop = start
        for place, word in enumerate(words[:last]):
            begin = text.find(word, stop, end)  # no letter stands between words
            stop = begin + len(word)
            if place == first:
                start = begin
        if word[-1] == "." and len(word) > 2:
            stop -= 1
        if text[stop - 2 : stop] == "'s":
            stop -= 2
        left = words[first:last]
        left[-1] = text[begin:stop]
        return start, stop, left

    def _is_plain(self, words: list[str], first: int, last: int) -> bool:
        """Whether a word that is no name stands before one that begins with a given name."""
        word = words[first].rstrip(".")
        if (
            last - first < 3
            or word.lower() not in self._plain
            or not self._is_first(words[first + 1])
        ):
            return False
        return not (self._is_first(word) or self._is_last(word) or word in self._ambiguous)

    def _all_may_name(self, words: list[str]) -> bool:
        """Whether all are written as names are, and none is an everyday word: a quick look."""
        for word in words:
            if not word.istitle() or word.isupper() or word.lower() in self._everyday:
                return False
        return len(words) < 3 or words[0].lower() not in self._plain

    def _given_that_is_a_word(self, text: str, start: int, end: int, cued: int) -> _Span | None:
        """Return a given name that is a word too, where a cue and perhaps a family name tell of it."""
        given = WORD.match(text, start, start + _LONGEST_WORD)
        if given is None or given.group() not in self._ambiguous:
            return None
        behind = given.end() + 1
        inner = WORD.match(text, behind, behind + _LONGEST_WORD)
        family = inner is not None and inner.end() <= end and self._is_last(inner.group())
        if cued == STRONG or family or given.group().lower() not in self._everyday:
            return start, inner.end() if inner and family else given.end(), 0.6, "cue"
        return None

    def _judged(
        self, view: TextView, start: int, end: int, cued: int, signs: ProgramSigns
    ) -> _Span | None:
        """Return what of a capitalised run is somebody's name; None where nothing is."""
        text = view.text
        run = self._trimmed(text, start, end)
        if run is None:
            return None
        begin, stop, words = run
        if stop - begin < 2:
            return None
        words = [word.rstrip(".") for word in words]
        alone = stop - begin == len(text)
        if (
            words[-1] in _DATE_WORDS
            and sum(map(_DATE_WORDS.__contains__, text[start:end].split())) > 1
        ):
            return None
        if begin != start:
            cued = cue(view.data, begin)
        known_first = self._is_first(words[0])
        known_last = self._is_last(words[-1])
        is_named = known_first and (len(words) > 1 or words[0].lower() not in things())
        titled = cued == STRONG and has_a_title(text, begin)
        if is_a_company(text, begin, stop, is_named=is_named or titled):
            return None
        if cued:
            lone = len(words) == 1 and not known_first and not known_last
            if lone and (is_plain(words[0].lower()) or words[0].isupper()):
                return None
            if within_a_thing(text, begin, stop):
                return None
            if len(words) > 1 and (is_a_brand(words) or are_words(words)):
                return None
            if text.startswith("'s", stop) and is_listed(text, begin, stop):
                return None
            strong = cued == STRONG
            named = known_first or words[0] in self._ambiguous
            if (strong or named or known_last or len(words) > 1) and not (
                (cued != STRONG or _is_label(text, begin))
                and (not named or words[-1].lower() in programs())
                and is_listed(text, begin, stop)
            ):
                return begin, stop, 0.8 if strong or known_first else 0.6, "cue"
        if is_called_after(text, begin, words):
            return None
        if is_listed(text, begin, stop):
            speaks = words[0].lower() not in programs() and self._speaks(text, begin, stop, words)
            return (begin, stop, 0.5, "verb") if not alone and speaks else None
        if len(words) == 1 and not alone and is_a_place(text, begin, stop):
            named = known_first or known_last or words[0] in self._ambiguous
            speaks = named and self._speaks(text, begin, stop, words)
            return (begin, stop, 0.5, "verb") if speaks else None
        if len(words) > 1 and known_first and not known_last and is_determined(text, begin):
            return None
        if len(words) > 1 and (known_first or known_last or words[0] in self._ambiguous):
            sure = known_first or (known_last and words[0] in self._ambiguous)
            if not sure and (words[0].lower() in self._plain or words[0].lower() in things()):
                return None
            if known_last or not all(word.lower() in self._common_words for word in words[1:]):
                acts = not alone and AFTER.match(text, stop) is not None
                why = "verb" if acts else "pair" if self._is_pair(words) else "list"
                return begin, stop, 0.75 if sure else 0.5, why
        elif not alone and len(words) > 1 and AFTER.match(text, stop):
            return begin, stop, 0.5, "verb"
        elif known_first and self._stands_alone(text, begin, stop, signs):
            speaks = self._confirmed is not None and self._speaks(text, begin, stop, words)
            return begin, stop, 0.5, "verb" if speaks and not alone else "list"
        elif not alone and self._speaks(text, begin, stop, words):
            return begin, stop, 0.5, "verb"
        return None

    def _is_pair(self, words: list[str]) -> bool:
        """Whether a given and a family name stand side by side, and neither is another word."""
        if words[0] not in hand_written_first_names():
            return False
        if len(words) > 2 and all(word in _PARTICLES for word in words[1:-1]):
            return words[-1][:1].isupper()
        if len(words) != 2:
            return False
        return words[1] in self._last and not any(
            word in self._ambiguous or is_plain(word.lower()) for word in words
        )

    def _stands_alone(self, text: str, begin: int, stop: int, signs: ProgramSigns) -> bool:
        """Whether a given name by itself is a person: no identifier, term, month or plain word."""
        word = text[begin:stop].rstrip(".")
        if len(word) < 3 or is_term(text, stop) or is_declared(text, begin):
            return False
        if is_heading(text, word):
            return False
        if signs.may_be() and (
            IN_CODE.search(text[max(0, begin - 2) : stop + 2]) or signs.around(begin, stop)
        ):
            return False
        return word not in self._ambiguous or not is_plain_word(text, begin, stop)

    def _speaks(self, text: str, begin: int, stop: int, words: list[str]) -> bool:
        """Whether what stands around a capitalised word makes it somebody who speaks or is named."""
        if words[0].lower() in self._common_words or words[0].isupper():
            return False
        behind = text[stop : stop + 1]
        if words[-1].lower() in self._plain:
            return False
        if behind in (" ", ",") and (
            SPEAKS.match(text, stop) or (len(words) == 1 and acts_as_a_person(text, begin, stop))
        ):
            return True
        if behind in (" ", ":") and SPEAKER.match(text, stop):
            before = text[max(0, begin - 8) : begin].rstrip(" \t>*")
            if before[-1:] in ("", "\n"):
                return True
        if text[begin - 1 : begin] not in (" ", "\t"):
            return False
        return AFTER_NAMED.search(text, max(0, begin - 24), begin) is not None

    def _is_first(self, word: str) -> bool:
        plain = word if word.isascii() else _in_one_script(word)
        return plain in self._first or (word.isupper() and word.title() in self._first)

    def _is_last(self, word: str) -> bool:
        plain = word if word.isascii() else _in_one_script(word)
        return plain in self._last or plain in self._first or plain.title() in self._last
