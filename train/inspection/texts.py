"""What no text of an artefact may hold: orders to the model, marks of roles, hidden characters, lures.

The patterns are plain and err on the safe side: a person may let pass what they stop. They read a text
as a model does, without what cannot be seen and with look-alike forms made equal (NFKC).
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import unquote

from trajectory.artifact import MARK

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
    "|(?<=[\\x20-\\x7e])[\u200c\u200d](?=[\\x20-\\x7e])"
)
"""What is not seen, or turns around what is; joiners belong to many scripts and to emoji."""
_MIXED = re.compile(
    "[A-Za-z][\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b9\u03bd\u03bf\u0400-\u052f]"
    "|[\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b9\u03bd\u03bf\u0400-\u052f][A-Za-z]"
)
"""Letters of two scripts within a word; Greek ones that look like Latin ones, so that units pass."""
_ROLES = re.compile(
    r"<\|[^|<>\n]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>"
    r"|</?(?:system|assistant|user|developer|tool_(?:call|result)|function_calls?|important|instructions?)\b[^>\n]{0,80}>"
    r"|^[^\S\n]*+(?:###\s*+)?(?:system|assistant|human|developer)\s*+(?:message|prompt)?\s*+:"
    r"|^[^\S\n]*+###\s*+(?:instructions?|response|system)\b",
    re.IGNORECASE | re.MULTILINE,
)


def _spaced(pattern: str) -> re.Pattern[str]:
    """Return a pattern whose blanks stand for any white space, line breaks included."""
    return re.compile(pattern.replace(" ?", r"\s*").replace(" ", r"\s+"), re.IGNORECASE)


_BEFORE = r"(?:all |any |the |your |these |those |of |every )*"
_ORDERS = _spaced(
    rf"\b(?:ignore|disregard|forget|override|bypass|drop)\b {_BEFORE}(?:previous|prior|above|earlier|preceding"
    r"|existing|other|system|safety|original) ?(?:\w+ )?(?:instruction|rule|prompt|guideline|polic|direction|message|context)"
    rf"|\b(?:ignore|disregard|forget|override|bypass) {_BEFORE}(?:instructions|rules|guidelines|everything|policies)\b"
    r"|\byou are (?:now|no longer)\b|\bfrom now on,? (?:you|act|answer|respond|always|never)|\bnew instructions?\b ?:"
    r"|\b(?:do not|don't|never|without) (?:tell|telling|inform|informing|mention|mentioning|reveal|revealing|notify|notifying)"
    r"\b.{0,30}\b(?:user|customer|client|person|human|operator|caller|anyone|anybody|this)"
    r"|\b(?:reveal|print|repeat|output|show|leak|send|share)\b.{0,30}\b(?:system prompt|instructions you|your instructions"
    r"|(?:chat|conversation|message) history|hidden prompt)"
    r"|\b(?:read|open|cat|send|include|pass|attach|copy|forward|upload|post|append|put)\b.{0,60}"
    r"(?:\.ssh\b|id_rsa|\.env\b|/etc/passwd|\bcredentials?\b|\bpasswords?\b|\bapi[ _-]?keys?\b|\bsecrets?\b"
    r"|\baccess tokens?\b|\b(?:whole|full|entire) (?:conversation|history)\b)"
    r"|\b(?:pretend|act|behave) (?:to be|as|like) (?:an? |the )?(?:admin|root|developer|unrestricted|different)"
    r"|\b(?:jailbreak|developer mode|god mode)\b"
    r"|\b(?:ignore|disregard|forget|override|bypass)(?: (?:all|any|the|your|these|those|of|every|previous|prior|above"
    r"|earlier))+\W*$",
)  # fmt: skip
# Of each language the verbs by which a rule is set aside, and the words for rules.
_SET_ASIDE = (
    (
        r"\b(?:ignorier|vergiss\b|vergesst\b|vergessen sie\b|missacht|verwirf|umgeh)",
        r"\b(?:anweisung|regel|vorgabe|instruktion|befehl)",
    ),
    (r"\b(?:ignor|oubli|neglig)", r"\b(?:instruction|consigne|regle|directive)"),
    (
        r"\b(?:ignor|olvid|omit|dimentic|scord|esquec|desconsider)",
        r"\b(?:instruc|istruz|regla|regol|regra)",
    ),
    (r"\b(?:negeer|vergeet|omzeil)", r"\b(?:instructie|aanwijzing|regel|voorschrift)"),
    (
        r"\b(?:zignoruj|ignoruj|zapomnij|pomin|zlekcewaz)",
        r"\b(?:instrukcj|polece|zasad|regul|wytyczn)",
    ),
    (
        r"\b(?:игнорир|проигнорир|забуд|отмени|пренебре|наруш)",
        r"\b(?:инструкц|указани|правил|команд|предписани)",
    ),
    (
        r"(?:忽略|无视|無視|忘记|忘記|不要理会|抛弃|放弃|绕过)",
        r"(?:指令|指示|说明|說明|规则|規則|提示)",
    ),
    (r"(?:指示|命令|ルール|規則|プロンプト)", r"(?:無視|忘れ|従わ)"),
    (r"(?:지시|명령|규칙|지침)", r"(?:무시|잊)"),
)
_OTHER_ORDERS = re.compile(
    "|".join(rf"{verb}[^.!?;。\n]{{0,40}}{rule}" for verb, rule in _SET_ASIDE), re.IGNORECASE
)
_SET_APART = re.compile(r"(?<!\w)(?:[^\W_][ ._*-]{1,3}){7,}[^\W_](?!\w)")
"""Letters that stand one by one, which a model reads as words; an underscore is none, or a form's blank
could be read in endlessly many ways."""
_DECODED_TIMES = 3
_JOINED_CHARACTERS = 200
_DO = (
    r"(?:approve|grant|accept|call|invoke|execute|reply|respond|tell|forward|delete|skip|send|transfer|waive|pay out"
    r"|use the tool)\b(?! (?:cent|number|line)|-)"
)
_IMPERATIVE = _spaced(
    r"\bthe (?:agent|assistant|model|ai|bot) (?:must|should|shall|has to|needs to|is allowed|may|can)\b"
    rf"|\byou (?:must|should|shall|have to|are to) (?:always |never |just )?{_DO}"
    rf"|^\W*(?:(?:always|never|please|immediately|just|simply)\W+)?{_DO}"
    r"|\bwhen(?:ever)? (?:asked|prompted|the (?:user|customer|client) (?:asks|says|wants|requests))\b.{0,60},"
    rf" ?(?:always |then |just )?{_DO}",
)
"""Orders that are usual in a procedure, and have no place in a fact."""
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_LURES = re.compile(
    r"!\[[^\]\n]{0,200}\]\(\s*(?:https?:)?//"  # an image is fetched without a click
    r"|https?://[^\s/@\"'<>]{1,100}:[^\s/@\"'<>]{1,100}@"
    r"|https?://\S{0,300}[?&#/=](?:[\w.-]{0,40}=)?(?:\{|%7b|<|\$|\[)"  # with a place for a value
    r"|\bdata:[\w.+-]{1,40}/[\w.+-]{1,40}[;,]|\bjavascript:"
    r"|https?://[^\s?]{1,300}\?\S{0,300}=\S{40,}",
    re.IGNORECASE,
)  # fmt: skip
_ENCODED = re.compile(
    r"(?<![\w+/])(?:(?:[A-Za-z0-9+/]{80,}+|(?=[a-z0-9+/]*[A-Z])(?=[A-Z0-9+/]*[a-z])(?=[A-Za-z+/]*\d)"
    r"[A-Za-z0-9+/]{40,}+)={0,2}|(?:[0-9a-fA-F]{2}){48,})(?![\w+/])"
)
_SKIPS = _spaced(
    r"\b(?:without|skip|skipping|omit|omitting|bypass|bypassing|waive|waiving|avoid)\b[^.!?\n]{0,30}"
    r"\b(?:confirm\w*|verif\w*|approv\w*|consent|asking|authenticat\w*|authori[sz]ation|identity check|second look)"
    r"|\b(?:no|not|n't|never)\b[^.!?\n]{0,20}\b(?:need|necessary|required|have|bother|wait|ask|request|obtain)\b[^.!?\n]{0,30}"
    r"\b(?:confirm\w*|verif\w*|approv\w*|consent|permission|authenticat\w*|authori[sz]ation)"
    r"|\b(?:confirmation|verification|approval|consent|authori[sz]ation) (?:is|was|are) (?:not|no longer|optional|unnecessary)"
    r"|\b(?:do not|don't|never) (?:ask|confirm|verify|check)\b[^.!?\n]{0,40}\b(?:first|again|before|customer|user|client|person)",
)  # fmt: skip
_ONE_PERSON = re.compile(
    r"\b(?:i|my|mine|me|his|her|hers|he|she)\b"
    r"|\b(?:the|this|that|our) (?:customer|user|client|patient|caller|guest|member|account ?holder|person|employee|buyer)"
    r"(?:['\u2019]s (?:[\w-]+ ){0,3}(?:is|are|was|were)|"
    r" (?:is|was|has|had|lives?|lived|prefers?|likes?|wants?|ordered|bought|owns?|owes?|paid|works?|worked|suffers?|booked))\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]{1,6}[-_]?\d{4,}|\d{6,}|[A-Z]*+\d[A-Z0-9]*+[-_][A-Z0-9_-]{4,})\b"
)
_PSEUDONYM = re.compile(r"<[A-Z][A-Z_]{2,40}(?:_[0-9a-z]{6,32}|:[0-9a-z]{16}|~[\w.-]{20,})?>")
"""What redaction leaves where a person's data stood."""

_RULES: Mapping[str, tuple[re.Pattern[str], str]] = MappingProxyType(
    {
        "role_mark": (_ROLES, "holds a mark by which models tell who speaks"),
        "link_with_data": (_LURES, "holds an address that carries data away"),
        "encoded_text": (_ENCODED, "holds encoded text that nobody can read"),
        "skipped_confirmation": (_SKIPS, "says that a confirmation may be left out"),
        "one_person": (_PSEUDONYM, "holds what stands for one person's data"),
    }
)


def visible(text: str) -> str:
    """Return a text as a model reads it: without hidden characters, look-alike forms made equal."""
    return unicodedata.normalize("NFKC", _HIDDEN.sub("", text))


def _unescaped(text: str) -> str:
    """Return a text without HTML entities and percent encoding."""
    for _ in range(_DECODED_TIMES):
        plain = unquote(html.unescape(text))
        if plain == text:
            break
        text = plain
    return visible(text)


def _plain(text: str) -> str:
    """Return a text without accents."""
    apart = unicodedata.normalize("NFD", text)
    return "".join([one for one in apart if not unicodedata.combining(one)])


def _holds_order(text: str) -> bool:
    plain = _plain(text)
    return any(_ORDERS.search(one) for one in {text, plain}) or bool(_OTHER_ORDERS.search(plain))


def order_over_both(one: str, other: str) -> bool:
    """Tell whether the end of a text and the beginning of another make an order together."""
    end, begin = _unescaped(one)[-_JOINED_CHARACTERS:], _unescaped(other)[:_JOINED_CHARACTERS]
    return _holds_order(f"{end} {begin}") and not (_holds_order(end) or _holds_order(begin))


def objections(text: str, *, is_fact: bool) -> Iterator[tuple[str, str]]:
    """Yield each rule that a text breaks, and what was found, without the text itself.

    Args:
        text: of an artefact.
        is_fact: whether it is a fact, in which orders have no place.
    """
    if _HIDDEN.search(text):
        yield "hidden_characters", "holds characters that nobody sees"
    read = visible(text)
    if _MIXED.search(read):
        yield "hidden_characters", "holds letters of another script within a word"
    if MARK in re.sub(r"[\s_-]+", "-", read.lower()):
        yield "own_mark", "holds the mark around blocks of Headrace"
    decoded = _unescaped(read)
    for rule, (pattern, said) in _RULES.items():
        if pattern.search(read) or (decoded != read and pattern.search(decoded)):
            yield rule, said
    if _holds_order(decoded):
        yield "instruction", "gives the model an order against its owner or its user"
    if _SET_APART.search(decoded):
        yield "encoded_text", "holds letters that stand one by one"
    if is_fact and any(_IMPERATIVE.search(one) for one in (read, *_SENTENCE.split(read))):
        yield "instruction", "is an order, not a fact"


def is_about_one(text: str) -> bool:
    """Tell whether a text speaks of one person, or holds a number that only one can have."""
    read = visible(text)
    return bool(_ONE_PERSON.search(read) or _IDENTIFIER.search(read) or _PSEUDONYM.search(read))
