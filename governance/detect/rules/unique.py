"""Rules for policies that let no identifier through: biometric records, any number with a word for it.

They are tried only where policy asks for `BIOMETRIC` or `IDENTIFIER`: in learning data most such numbers,
and what looks a little like a place, a date or a page, are harmless and worth keeping.
"""

import re

from governance.detect.rules.residence import place
from governance.detect.rules.rule import MONTHS, Rule
from governance.names.words import first_names

_SAID = r"[\"']?\s{0,2}(?:is|was|ending(?: in| with)?|[:#=])?\s{0,2}[\"'#]?"
_CHARS = r"[A-Z0-9_\-./]"
_VALUE = rf"(?:[A-Z]{{0,4}}\d{_CHARS}{{0,40}}(?: \d{{2,6}}){{1,4}}|[A-Z0-9](?:{_CHARS}{{0,60}}[A-Z0-9])?)"
_NUMBER = (
    r"(?:id|ident(?:ifier|ification)?|numbers?|num\.?|no\.?|nr\.?|#|code|ref(?:erence)?\.?|key)"
)
_RECORD = (
    r"(?:scans?|codes?|images?|templates?|recognition|embeddings?|encodings?|vectors?|profiles?|"
    r"signatures?|hash|prints?|maps?|models?|descriptors?|minutiae|samples?|data|records?|"
    rf"enrol+ment|geometry|token|{_NUMBER})"
)
_BIOMETRIC = (
    r"(?:(?:finger|thumb|palm|voice|foot|face)[ _\-]?prints?|biometrics?|minutiae|face[ _\-]?id|"
    rf"(?:iris|retinal?|palm vein|vein|facial|face|hand|gait|ear|voice|speaker|dna|genetic)[ _\-]{_RECORD})"
)

BIOMETRIC_KEY = re.compile(
    r"(?:^|_)(?:(?:finger|thumb|palm|voice|foot|face)_?prints?|biometrics?|minutiae|face_?id|voice_?id|"
    r"(?:iris|retinal?|palm_?vein|facial|face|hand|gait|ear|voice|speaker|dna|genetic)_"
    r"(?:scans?|codes?|images?|templates?|embeddings?|encodings?|vectors?|profiles?|signatures?|hash|"
    r"prints?|maps?|descriptors?|samples?|data|records?|enrol+ments?|geometry|token|id|number))(?:_|$)"
)
"""Keys under which everything is a biometric record, however deep."""
IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:id|ids|identifier|number|num|no|nr|code|serial|ref|reference|guid|uuid|barcode|badge|"
    r"account|permit|registration|accession|medicaid|medicare|fin|case|visit|rx)$"
)
"""Keys whose value is a number or code for something."""
NO_IDENTIFIER_KEY = re.compile(
    r"(?:^|_)(?:call|tool|tool_call|tool_use|model|response|status|error|exit|http|return|result|reason|icd|"
    r"icd_?10|icd_?9|cpt|hcpcs|loinc|snomed|rxnorm|ndc|drg|cvx|diagnosis|procedure|country|currency|"
    r"language|lang|state|line|page|version|port|step|row|column|chapter|section|source|color)_"
    r"(?:id|number|num|no|nr|code|ref|reference)$"
)
"""Keys of codes that say what something is, and of what a call and its answer are joined by."""

_OF_NO_PERSON = (
    "icd", "icd10", "icd9", "10", "9", "cm", "cpt", "hcpcs", "loinc", "snomed", "rxnorm", "ndc", "drg",
    "cvx", "diagnosis", "procedure", "billing", "status", "error", "exit", "http", "return", "response",
    "country", "currency", "language", "line", "page", "version", "model", "port", "step", "row",
    "column", "chapter", "section", "figure", "table", "issue", "rfc", "dose", "version",
)  # fmt: skip
"""Words before `number` or `code` after which it says what something is, not which one."""
_YEAR = re.compile(r"(?:19|20)\d\d")
_DATE = re.compile(r"(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})")
_MEASURE = re.compile(r"(?i)\d+(?:\.\d+)?(?:mg|mcg|ml|g|kg|cm|mm|bpm|mmhg|hrs?|min|days?|weeks?|x)")


def _is_code(value: str) -> bool | None:
    """Return False for words, small numbers, years, dates and doses."""
    digits = sum(char.isdigit() for char in value)
    if digits < 3 and not (digits and len(value) >= 5 and value.isalnum()):
        return False
    if _YEAR.fullmatch(value) or _MEASURE.fullmatch(value) or _is_date(value):
        return False
    return None


def _is_date(value: str) -> bool:
    date = _DATE.fullmatch(value)
    if date is None:
        return False
    first, second, third = (int(part) for part in date.groups())
    day_first = (first <= 31 and second <= 12) or (first <= 12 and second <= 31)
    return day_first or (first > 31 and second <= 12 and third <= 31)


def _is_biometric(value: str) -> bool | None:
    letters_of_hex = len(value) >= 6 and value.isupper() and set(value) <= set("ABCDEF")
    return None if letters_of_hex or any(char.isdigit() for char in value) else False


def _is_surname_first(value: str) -> bool | None:
    first = value.partition(", ")[2].split()[0]
    return None if first.capitalize() in first_names() else False


UNIQUE = (
    Rule(
        "biometric_record",
        "BIOMETRIC",
        rf"\b{_BIOMETRIC}(?:[ _\-]{_RECORD}){{0,3}}{_SAID}"
        r"([A-Z0-9](?:[A-Z0-9_\-+/=:.]{1,200}[A-Z0-9=])?|\[[\d\s,.eE+\-\[\]]+\])",
        0.8,
        1,
        needs=(
            "print", "biometric", "minutiae", "iris", "retina", "vein", "facial", "face", "hand", "gait",
            "ear ", "ear_", "ear-", "voice", "speaker", "dna", "genetic",
        ),
        check=_is_biometric,
        right=r"\w",
    ),
    Rule(
        "told_of_the_body",
        "BIOMETRIC",
        r"\b(?:finger|thumb|palm|iris|retina|face|voice)\b[^.\n\[\]]{0,30}\b(?:is|as)[ :]{1,2}[\"'#]?"
        r"([A-Z]{0,8}[\-_]?\d[A-Z0-9_\-]{4,200})",
        0.7,
        1,
        needs=("finger", "thumb", "palm", "iris", "retina", "face", "voice"),
        right=r"\w",
    ),
    Rule(
        "numbered",
        "IDENTIFIER",
        rf"(?:\b[a-z]{{2,20}}[ _\-]?{_NUMBER}|\b(?:id|identifier|ref(?:erence)?|barcode|serial)"
        rf"(?:[ _\-]?{_NUMBER})?){_SAID}({_VALUE})",
        0.6,
        1,
        needs=("id", "num", "no", "nr", "#", "code", "ref", "key", "barcode", "serial"),
        against=_OF_NO_PERSON,
        check=_is_code,
        right=r"\w",
    ),
    Rule(
        "told_by_its_kind",
        "IDENTIFIER",
        r"\b(?:fin|rx|dl|cdl|mrn?|hicn|csn|har|badge|case|order|invoice|ticket|visit|encounter|"
        r"accession|claim|permit|licen[cs]e|certificate|registration|participant|subject|specimen|"
        r"sample|tracking|account|acct|prescription|card|authorization|referral|study|tag|plates?|"
        r"medicaid|medicare|passport|policy|group|member(?:ship)?|enrol+ment|customer|client|user|employee|staff|"
        r"student|patient|lot|transmitter|sensor|s/?n|fob|locker|docket|report|record)"
        rf"{_SAID}({_VALUE})",
        0.6,
        1,
        needs=(
            "fin", "rx", "dl", "mr", "hicn", "csn", "har", "badge", "case", "order", "invoice", "ticket",
            "visit", "encounter", "accession", "claim", "permit", "licen", "certificate", "registration",
            "participant", "subject", "specimen", "sample", "tracking", "account", "acct", "prescription",
            "card", "authorization", "referral", "study", "tag", "plate", "medicaid", "medicare",
            "passport", "policy", "group", "member", "enrol", "customer", "client", "user", "employee",
            "staff", "student", "patient", "lot", "transmitter", "sensor", "sn", "s/n", "fob", "locker",
            "docket", "report", "record",
        ),
        check=_is_code,
        right=r"\w",
    ),
    Rule(
        "told_user_name",
        "USERNAME",
        r"\b(?:user ?name|login(?: name| id)?|screen ?name|user ?id)[\"']?\s{0,2}(?:is|was|[:=])?\s{0,2}[\"']?([a-z][\w.\-]{3,30})",
        0.6,
        1,
        needs=("user", "login", "screen"),
        check=place,
        right=r"\w(",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "precinct",
        "LOCATION",
        r"\bprecinct[_ ]?(?:no\.? ?|number |#)?[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"']?(\d{1,5}(?:-?[A-Z])?)",
        0.8,
        1,
        needs=("precinct",),
        right=r"\w",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "picture_file",
        "IDENTIFIER",
        r"[\w.\-/:~%]{1,200}\.(?:jpe?g|png|gif|bmp|tiff?|heic|webp|dcm|wav|mp3|m4a|mp4|mov)\b",
        0.7,
        needs=(
            ".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".heic", ".webp", ".dcm", ".wav", ".mp3",
            ".m4a", ".mp4", ".mov",
        ),
    ),
    Rule(
        "county",
        "LOCATION",
        r"\b((?:[A-Z][a-z'\-]{1,20} ){0,2}[A-Z][a-z'\-]{1,20}) (?:County|Parish|Borough|Township|Municipality)\b",
        0.7,
        1,
        needs=(" county", " parish", " borough", " township", " municipality"),
        ignore_case=False,
        with_entity="IDENTIFIER",
    ),
    Rule(
        "told_place",
        "LOCATION",
        r"\b(?:in|from|near|outside|(?:moved|flown|driven|drove|travel+ed|returned|transferred|sent) to) (?:the )?"
        r"([A-Z][a-z'\-]{2,20}(?: [A-Z][a-z'\-]{2,20}){0,2})\b",
        0.5,
        1,
        needs=("in ", "from ", "near ", "outside ", " to "),
        check=place,
        ignore_case=False,
        with_entity="IDENTIFIER",
    ),
    Rule(
        "surname_first",
        "PERSON",
        r"\b([A-Z][A-Z'\-]{1,24}, [A-Z][A-Z'\-]{2,20}(?: [A-Z]\b\.?)?)",
        0.7,
        1,
        needs=(", ",),
        check=_is_surname_first,
        ignore_case=False,
        right=r"\w",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "age_in_words",
        "AGE",
        r"\b(?:aged?|turn(?:ed|s|ing)?|is|was|at) ((?:ninety|(?:a |one )?hundred)(?:[ \-](?:and[ \-])?(?:one|two|three|four|five|six|seven|eight|nine|ten))?)\b"
        r"|\b((?:ninety|(?:a |one )?hundred)(?:[ \-](?:and[ \-])?(?:one|two|three|four|five|six|seven|eight|nine|ten))?)[ \-]years?[ \-]old\b",
        0.7,
        0,
        needs=("ninety", "hundred"),
        with_entity="IDENTIFIER",
    ),
    Rule(
        "month_and_year",
        "DATE_TIME",
        r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
        r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?,? (?:of )?(?:(?:19|20)\d\d|'\d\d)",
        0.6,
        needs=MONTHS,
        fewest_digits=2,
        right=r"\w",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "day_without_year",
        "DATE_TIME",
        r"\b(?:on|seen|since|until|by|dated?|before|after|from|due|visit|appointment)[ :]{1,2}"
        r"((?:1[0-2]|0?[1-9])/(?:[12]\d|3[01]|0?[1-9])|(?:[12]\d|3[01]|0?[1-9])/(?:1[0-2]|0?[1-9]))",
        0.6,
        1,
        needs=("/",),
        fewest_digits=2,
        right=r"\w/",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "date_in_one",
        "DATE_TIME",
        r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:T?(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?",
        0.6,
        digits=True,
        digits_in_a_row=8,
        left=r"\w.\-",
        right=r"\w\-",
        with_entity="IDENTIFIER",
    ),
    Rule(
        "bare_domain",
        "URL",
        r"\b(?:[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?\.){1,5}"
        r"(?:com|net|org|edu|gov|mil|biz|health|clinic|hospital|blog|online|uk|ca|au|de|fr|eu)\b"
        r"(?:/[^\s\"'<>]{0,200})?",
        0.6,
        needs=(
            ".com", ".net", ".org", ".edu", ".gov", ".mil", ".biz", ".health", ".clinic", ".hospital",
            ".blog", ".online", ".uk", ".ca", ".au", ".de", ".fr", ".eu",
        ),
        left=r"\w@.\-/",
        right=r"\w@(",
        with_entity="IDENTIFIER",
    ),
)  # fmt: skip
