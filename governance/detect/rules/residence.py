"""Rules for what describes a person without naming one: home, age, pages, plans, cars, devices."""

from governance.detect.rules import checks
from governance.detect.rules.rule import Rule
from governance.names.words import everyday, programs

_UPPER = r"[A-Z\xc0-\xde]"
_WORD = rf"{_UPPER}[\w\xaa\xb5\xba\xc0-\xf6\xf8-\xff'\-]{{1,24}}"
_PLACE = rf"({_WORD}(?: (?:de|la|le|del|di|da|do|of|am|nad|{_WORD})){{0,3}})"
_NOT_A_PLACE = everyday() | {
    "i", "january", "production", "python", "docker", "linux", "am", "pm", "utc", "gmt",
}  # fmt: skip


_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)


def place(value: str) -> bool | None:
    """Return False for what begins with an everyday word, or is a program."""
    first = value.split()[0].lower()
    return False if first in _NOT_A_PLACE or first in programs() else None


def _age(value: str) -> bool | None:
    return None if 0 < int(value) < 120 else False


PERSONAL = (
    Rule(
        "lives_in",
        "RESIDENCE",
        r"\b(?i:(?:i|we|he|she|they|who)(?:'m|'ve|'s|'re| am| have| has| is| are| was| were)? (?:also |now |currently |always |originally |both )?"
        r"(?:(?:live[sd]?|living|born|raised|grew up|resid(?:e|es|ed|ing)|based|settled|stay(?:s|ed|ing)?|moved|work(?:s|ed)? remotely) (?:here )?(?:in|to|from)"
        r"|(?:come|comes|came|hail|hails|moved here|originally)?[ ]?from|in)|(?:originally|moved here|moving here|family|born and raised|home ?town(?: is|:)|home city(?: is|:)?) ?(?:from|in|to)?)"
        rf" (?:the )?{_PLACE}",
        0.6,
        1,
        needs=(
            " in ",
            "from ",
            " to ",
            "home",
            "family",
            "originally",
            "moved here",
            "moving here",
            "born and raised",
        ),
        check=place,
        ignore_case=False,
    ),
    Rule(
        "told_postcode",
        "POSTCODE",
        r"\b(?:zip|zip[ _-]?code|post[ _-]?code|postal[ _-]?code|plz|code postal)[\"']?(?: is|:|=)?\s{0,3}[\"']?((?:[A-Z]{1,2}-)?\d{3,5}(?:[- ]\d{2,4})?(?: ?[A-Z]{2}\b)?|[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b|[A-Z]\d[A-Z] ?\d[A-Z]\d\b)",
        0.7,
        1,
        not_in_queries=True,
        needs=("zip", "post", "plz"),
        right=r"\w",
    ),
    Rule(
        "told_italian_postcode",
        "POSTCODE",
        r"\bcap[\"']?(?: is|:|=)?\s{0,3}[\"']?(\d{5})",
        0.7,
        1,
        not_in_queries=True,
        needs=("cap",),
        fewest_digits=5,
        right=r"\w",
    ),
    Rule(
        "told_age",
        "AGE",
        r"\b(?:aged?|(?:just |i'll |will |i'm |she's |he's )(?:turn(?:ed|ing)?)|(?:when|since) (?:i|he|she) (?:was|turned)|age(?: of| is|:|=)|i'm|i am)[\"']?\s{0,3}(\d{1,3})(?:\s{0,2}(?:years?|yrs?|y[./]?o|,|\.|;|$|\n))",
        0.6,
        1,
        not_in_queries=True,
        needs=("age", "turn", "when ", "i'm", "i am", "since"),
        check=_age,
    ),
    Rule(
        "age_in_years",
        "AGE",
        r"\b(\d{1,3})(?:[\- ]{1,2}years?[\- ]{1,2}old\b|[\- ]?y[./]?o\b|[\- ]year[\- ]old|[\- ]yr[\- ]old)",
        0.8,
        1,
        needs=("year", "y/o", "yo", "y.o", "yr"),
        against=("to",),
        check=_age,
    ),
    Rule(
        "personal_page",
        "PERSONAL_URL",
        r"\b(?:my (?:web ?site|blog|home ?page|profile|portfolio)(?: is|:)?|personal (?:web ?site|page):?|web ?site:)\s{1,4}((?:https?://|www\.)[^\s\"'<>]{3,200})",
        0.8,
        1,
        needs=("http", "www."),
    ),
    Rule(
        "profile_page",
        "PERSONAL_URL",
        r"\b((?:https?://)?(?:[a-z]{2,3}\.)?(?:linkedin\.com/in|facebook\.com|instagram\.com|twitter\.com|x\.com|t\.me|tiktok\.com/@|vk\.com)/[\w.\-%]{3,60})",
        0.8,
        1,
        needs=(
            "linkedin",
            "facebook",
            "instagram",
            "twitter",
            "x.com",
            "t.me",
            "tiktok",
            "vk.com",
        ),
        check=lambda value: (
            None
            if value.rsplit("/", 1)[-1].lower()
            not in ("share", "sharer", "intent", "login", "home")
            else False
        ),
    ),
    Rule(
        "health_plan",
        "HEALTH_PLAN",
        r"\b(?:(?:health )?(?:plan|insurance|policy|member|subscriber|beneficiary|medicare|medicaid|group|payer)[ _-]?(?:id|number|no\.?|#|mbi)|health plan|medicare)[\"']?\s{0,2}(?:is|[:#=])\s{0,2}[\"'#]?([A-Z]{0,5}[\-]?\d[A-Z\d\-]{4,20})",
        0.8,
        1,
        needs=(
            "plan",
            "insurance",
            "policy",
            "member",
            "subscriber",
            "beneficiary",
            "medicare",
            "medicaid",
            "group",
            "payer",
        ),
        right=r"\w",
    ),
    Rule(
        "vin",
        "VEHICLE_ID",
        r"[A-HJ-NPR-Z0-9]{17}",
        0.4,
        ignore_case=False,
        digits=False,
        shortest=17,
        fewest_digits=1,
        context=("vin", "vehicle", "chassis", "car", "truck"),
        check=checks.vin,
        left=r"\w\-",
        right=r"\w\-",
    ),
    Rule(
        "number_plate",
        "VEHICLE_ID",
        r"\b(?:licen[cs]e plate|number ?plate|(?:plate|tag) (?:number|no\.?)|registration (?:plate|mark)|vehicle registration|plates?)(?: (?:number|no\.?))?[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"'#]?([A-Z0-9]{1,4}[\- ]?[A-Z0-9]{2,5}(?:[\- ]?[A-Z0-9]{1,4})?)",
        0.7,
        1,
        needs=("plate", "registration mark", "vehicle registration", "tag n"),
        check=lambda value: (
            None if any(c.isdigit() for c in value) and any(c.isupper() for c in value) else False
        ),
        right=r"\w",
    ),
    Rule(
        "device_serial",
        "DEVICE_ID",
        r"\b(?:ser(?:ial|\.)?[ _-]?(?:number|no\.?|#)|s/n|imei|imsi|meid|udid|device[ _-]?(?:id|identifier|serial)|advertising id|idfa|gaid)[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"'#]?([A-Z0-9][A-Z0-9\-]{4,39})",
        0.7,
        1,
        needs=(
            "serial",
            "ser.",
            "ser n",
            "ser_n",
            "ser-n",
            "sern",
            "ser#",
            "ser #",
            "ser_#",
            "ser-#",
            "s/n",
            "imei",
            "imsi",
            "meid",
            "udid",
            "device",
            "advertising id",
            "idfa",
            "gaid",
        ),
        check=lambda value: None if sum(c.isdigit() for c in value) >= 3 else False,
        right=r"\w",
    ),
    Rule(
        "date_in_words",
        "DATE_TIME",
        rf"\b(?:{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}\.?(?:,? \d{{4}})?)",
        0.6,
        needs=(
            "jan",
            "feb",
            "mar",
            "apr",
            "may",
            "jun",
            "jul",
            "aug",
            "sep",
            "oct",
            "nov",
            "dec",
        ),
        right=r"\w",
    ),
)
