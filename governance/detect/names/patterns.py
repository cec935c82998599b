"""How names are written, and what is written around them."""

import re

_U = "A-Z" + "".join(
    char for char in map(chr, (*range(0xC0, 0x250), *range(0x370, 0x482), *range(0x1E00, 0x1F00))) if char.isupper()
)  # fmt: skip
_BEHIND_CAPITAL = (
    rf"(?:(?:[^\W\d_]|['\-](?=[^\W\d_]))*[^\W\d_](?![^\W_]|_\w)|\.(?:[{_U}]\.)*|(?=[ \n,.;]|$))"
)
PARTICLE = r"(?:de|del|della|der|den|di|da|dos|das|du|van|von|vom|zu|la|le|al|el|bin|ben|ibn|ter|ten|y|e|af|av|st\.?|und|of)"
_MORE = rf"(?:[ \u00a0](?:{PARTICLE}[ ]){{0,2}}[{_U}]{_BEHIND_CAPITAL}){{0,3}}"
NAME = rf"[{_U}]{_BEHIND_CAPITAL}{_MORE}"
NAME_AT = re.compile(rf"[{_U}](?<![^\W_].)(?<!\w_.){_BEHIND_CAPITAL}{_MORE}")
"""``NAME`` where a word begins: 26 µs per kilobyte instead of 71, because it looks for a capital first."""
OTHER_SCRIPT = re.compile(
    r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{1,6}(?:[ \u00b7・][\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{1,6})?"
    r"|[\u0600-\u06ff\u0590-\u05ff\u0900-\u097f]{2,12}(?: [\u0600-\u06ff\u0590-\u05ff\u0900-\u097f]{2,12}){1,2}"
)
BETWEEN_EMPHASISED = r"\*{2,3} ?\*{2,3}|~~ ?~~"
"""Marks of Markdown between two words of which each is emphasised."""
CAMEL_CASE = re.compile(r"(?!Mc|Mac|De|Di|Da|La|Le|Fitz|Van|O')[^\W\d_]*[a-z][A-Z]")
SMALL_WORD = re.compile(r"[a-z]{3,14}")
"""All first words of the two patterns below are among what it finds."""
TWO_IN_SMALL = re.compile(r"(?<![\w./@\-])([a-z]{3,14})(?= ([a-z]{4,20})(?![\w/@=(\-]|\.\w))")
GREETED_IN_SMALL = re.compile(
    r"(?i:\b(?:it'?s|this is|i'?m|i am|my name is|here is|call me|ask|tell|from|for|with|ich bin|hier ist|soy|sono|je suis|ik ben))"
    r" ([a-z]{4,14})(?: ([a-z]{4,20}))?(?= *(?:$|[,.!?\n]| (?:here|from|again|and|und|et|y|e|speaking)\b))"
)
FAMILY_FIRST = re.compile(
    rf"(?<![\w,.\-])(?<!, )([{_U}][^\W\d_]+(?:[-'][{_U}]?[^\W\d_]+)?), ([{_U}][^\W\d_]+)(?: [{_U}]\b\.?)?(?![\w,]|, )"
)
"""A family name before a given one: ``Gonzalez, Maria``."""
ONE_LINE_NAME = re.compile(rf"\s*[\"'(]?({NAME}(?:, {NAME})?)[\"')]?[.,;:]?\s*$")
WORD = re.compile(r"[^\W\d_][\w'\-]*\.?")
AFTER = re.compile(
    r"(?:'s\b)?[ ,]{1,2}(?:(?:will|would|can|should|has|had|also|just|already|then) )?"
    r"(?:ask(?:ed|s|ing)?|said|says|wrote|writes|told|tells|sign(?:ed|s)?|call(?:ed|s)|wants|wanted|"
    r"lives|lived|works|worked|repl(?:ied|ies)|emailed|mailed|confirms|ordered|requested|joined|"
    r"bought|thinks|thought|knew|was born|picks? up|picked up|collect(?:s|ed)?)\b",
)
SPEAKS = re.compile(
    r"[ ,]{1,2}(?:shouted|said|says|asked|replied|answered|whispered|added|nodded|smiled|laughed|wrote|told|"
    r"can I (?:please )?speak|could I (?:please )?speak|lives (?:on|at|in)|is from|was born|hat (?:angerufen|geschrieben)|"
    r"rief an|a (?:appel\u00e9|\u00e9crit)|m'a (?:appel\u00e9|\u00e9crit)|llam\u00f3|escribi\u00f3|(?:mi |ci )?ha (?:chiamato|scritto|telefonato)|"
    r"heeft (?:gebeld|geschreven)|zadzwoni\u0142a?|napisa\u0142a?|ligou|telefonou|escreveu)\b"
)
"""What follows a single word that only a person can be."""
SPEAKER = re.compile(
    r"[ ]{0,2}:[ ]{0,2}[\"\u201c\u2018']|:[ ]{1,2}(?:What|Who|Why|How|I|You|Yes|No|Hi|Hello|Hey|Well|But|And|Oh)\b"
)
AFTER_NAMED = re.compile(
    r"\b(?:says|named (?:him|her|them)|starring|[Dd]irected [Bb]y:?|[Ww]ritten by|\bex-[A-Z]\w+|leave me|gender of)[ \t]{1,6}\Z"
)
LOWER_CASE_NAME = re.compile(
    r"(?i:\b(?:my|his|her|their|full|the|customer|patient|client)\s+(?:full |first |last )?name(?: is|'s|:)\s+)"
    r"([^\W\d_A-Z]{2,20}(?: [^\W\d_A-Z]{2,20}){0,2})(?=\s*(?:[.,;!?\n]|and\b|but\b|\Z))"
)
TELLS_NAME = re.compile(r"[Nn][Aa][Mm][Ee](?: [Ii][Ss]|'[Ss]|:)\s")
"""What :data:`LOWER_CASE_NAME` cannot do without: a quick look at texts that speak of names."""
SPEAKER_LINE = re.compile(
    rf"^[ \t>*_\-]{{0,6}}(?:\[?\d\d:\d\d(?::\d\d)?\]? )?([{_U}][^\W\d_]+(?: [{_U}][^\W\d_]+)?)[*_]{{0,2}}:[*_]{{0,2}} {{1,2}}(?=[^\W\d_]+,? [^\W\d_A-Z][^\W\d_]*[ ,'.?!]|ok|yes|no|ja|oui|s\u00ed)",
    re.MULTILINE,
)
"""A line of a chat: somebody, a colon, a sentence."""
IN_CODE = re.compile(r"\A\w?\.(?=[^\W\d_]{3})|[^\W\d_](?:=|\(|\[)")
CLOSING = re.compile(
    r"(?im)^[ \t>*\-]*(?:.{0,60}[.!?,] )?(?:(?:kind|best|warm|many|with|yours?|warmest|kindest)?[ ]?(?:regards|wishes|thanks)|best|thanks(?: again| so much| a lot)?|thank you(?: (?:so|very) much)?|"
    r"sincerely(?: yours)?|yours (?:sincerely|truly|faithfully)|cheers|respectfully|cordially|love|signed|greetings|mit freundlichen grüßen|cordialement|saludos|sent by)"
    r"[ \t]*[,.!\-]*[ \t]*(?:\r?\n[ \t>]*){0,3}"
)
CLOSING_WORD = re.compile(
    r"regards|wishes|thank|best|sincerely|yours|cheers|respectfully|cordial|love|signed|greetings"
    r"|mit freund|saludos|sent by"
)
BRACKETED = re.compile(
    rf"[\"']?({NAME})[\"']?\s*[<(\[](?:mailto:)?([\w.+\-]{{1,64}})@([\w.\-]{{0,64}})"
)
MAILBOX = re.compile(r"([\w.+\-\[\]]{1,64})@([\w.\-]{0,64})")
HANDLE_WORD = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+")
OF_THINGS = re.compile(
    r"(?:tory|[ts]ion|ment|ness|ity|ance|ence|ship|ware|able|ible|ism|ics|logy|graphy|ture|hood|ful|less|ly|ized|ised|ers|tor|ung|heit|keit|schaft|"
    r"ci\u00f3n|\u00e7\u00e3o|zione|isme|ismo|DB|SQL|API|base|board|flow|hub|kit|lab|net|soft|tech|cloud|sync)\Z"
)
"""How nouns and names of programs end that one might take for somebody's."""
DIGITS_WITHIN = re.compile(r"[A-Za-z]*[0-9][A-Za-z0-9]*[+/=]*\Z")
"""One word with digits, as identifiers and base64 are: no name begins or ends in it."""
