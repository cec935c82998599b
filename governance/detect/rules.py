"""Pattern rules of our own, as data: what Presidio lacks, and what it does dangerously.

All patterns are written for RE2 on one byte per character: no lookaround, no backreference, and
repetition is bounded, so that no text costs more than linear time.
"""

from collections.abc import Callable
from dataclasses import dataclass

from governance.detect import checks

VERSION = "1"
_W = r"\w\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\xff"
"""Word characters, letters beyond ASCII included (for use within a character class)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One pattern that names one entity."""

    name: str
    entity: str
    regex: str
    score: float
    """Score before context; a finding needs its entity's threshold."""
    group: int = 0
    """Which group of the pattern is the value."""
    needs: tuple[bytes, ...] = ()
    """Lower-case literals of which one must be in the text, else the pattern is not tried."""
    digits: bool = False
    """Whether the pattern needs a run of digits."""
    context: tuple[str, ...] = ()
    check: Callable[[str], bool | None] | None = None
    """True makes the score 1, False makes it 0, None leaves it to context."""
    ignore_case: bool = True
    left: str = ""
    """Characters (a class body) that may not stand before the value."""
    right: str = ""
    """Characters that may not follow it."""


_NAMED = (
    r"(?:pass(?:word|wd|phrase|code)|pwd|_pass\b|\bpass\b|secret|token|api[_\- ]?key|access[_\- ]?key|"
    r"auth[_\- ]?key|private[_\- ]?key|client[_\- ]?secret|account[_\- ]?key|signature|credentials?)"
)
_SECRET_NEEDS = (b"pass", b"pwd", b"secret", b"token", b"key", b"signature", b"credential")

SECRETS = (
    Rule(
        "openai_style_key",
        "API_KEY",
        r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}",
        1.0,
        needs=(b"k-",),
        check=checks.long_token,
    ),
    Rule(
        "headrace_key",
        "API_KEY",
        r"\bhr_[A-Za-z0-9]{4,40}_[A-Za-z0-9_\-]{16,}",
        1.0,
        needs=(b"hr_",),
        ignore_case=False,
    ),
    Rule(
        "stripe_key",
        "API_KEY",
        r"\b(?:sk|pk|rk|whsec)_(?:(?:live|test)_)?[A-Za-z0-9]{16,}\b",
        1.0,
        needs=(b"k_", b"whsec_"),
        check=checks.long_token,
    ),
    Rule(
        "aws_access_key_id",
        "API_KEY",
        r"\b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|A3T[A-Z0-9])[A-Z0-9]{16}\b",
        1.0,
        needs=(b"akia", b"asia", b"agpa", b"aida", b"aroa", b"anpa", b"anva", b"a3t"),
        ignore_case=False,
    ),
    Rule(
        "github_token",
        "API_KEY",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})\b",
        1.0,
        needs=(b"gh",),
        ignore_case=False,
    ),
    Rule(
        "gitlab_token",
        "API_KEY",
        r"\bgl(?:pat|ptt|dt|rt|cbt|agent)-[A-Za-z0-9_\-]{16,}",
        1.0,
        needs=(b"gl",),
        ignore_case=False,
    ),
    Rule(
        "slack_token",
        "API_KEY",
        r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,}|\bxapp-\d-[A-Za-z0-9\-]{10,}",
        1.0,
        needs=(b"xox", b"xapp"),
    ),
    Rule(
        "slack_webhook",
        "API_KEY",
        r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_]{20,})",
        1.0,
        1,
        needs=(b"hooks.slack.com",),
    ),
    Rule(
        "google_api_key",
        "API_KEY",
        r"\bAIza[A-Za-z0-9_\-]{30,45}",
        1.0,
        needs=(b"aiza",),
        ignore_case=False,
    ),
    Rule(
        "google_oauth",
        "API_KEY",
        r"\b(?:ya29\.[A-Za-z0-9_\-.]{20,}|GOCSPX-[A-Za-z0-9_\-]{20,60})",
        1.0,
        needs=(b"ya29.", b"gocspx-"),
        ignore_case=False,
    ),
    Rule(
        "hugging_face_token",
        "API_KEY",
        r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}\b",
        1.0,
        needs=(b"hf_", b"api_org_"),
        ignore_case=False,
    ),
    Rule(
        "npm_or_pypi_token",
        "API_KEY",
        r"\b(?:npm_[A-Za-z0-9]{30,60}|pypi-[A-Za-z0-9_\-]{16,})",
        1.0,
        needs=(b"npm_", b"pypi-"),
        ignore_case=False,
    ),
    Rule(
        "sendgrid_key",
        "API_KEY",
        r"\bSG\.[A-Za-z0-9_\-]{16,40}\.[A-Za-z0-9_\-]{16,80}",
        1.0,
        needs=(b"sg.",),
        ignore_case=False,
    ),
    Rule(
        "twilio_sid",
        "API_KEY",
        r"\b(?:AC|SK)[0-9a-f]{32}\b",
        0.9,
        ignore_case=False,
        needs=(b"ac", b"sk"),
        digits=True,
    ),
    Rule(
        "telegram_token",
        "API_KEY",
        r"\b\d{8,10}:AA[A-Za-z0-9_\-]{30,40}",
        1.0,
        needs=(b":aa",),
        ignore_case=False,
    ),
    Rule(
        "groq_xai_perplexity_key",
        "API_KEY",
        r"\b(?:gsk_|xai-|pplx-|r8_|tvly-|lsv2_[a-z]{2}_|dop_v1_|sntrys_|shpat_|glsa_|nvapi-|figd_|dckr_pat_|hvs\.|dapi)[A-Za-z0-9_\-]{20,}",
        1.0,
        needs=(
            b"gsk_",
            b"xai-",
            b"pplx-",
            b"r8_",
            b"tvly-",
            b"lsv2_",
            b"dop_v1_",
            b"sntrys_",
            b"shpat_",
            b"glsa_",
            b"nvapi-",
            b"figd_",
            b"dckr_pat_",
            b"hvs.",
            b"dapi",
        ),
        ignore_case=False,
    ),
    Rule(
        "azure_storage_key",
        "API_KEY",
        r"AccountKey=([A-Za-z0-9+/=]{40,})",
        1.0,
        1,
        needs=(b"accountkey=",),
    ),
    Rule(
        "bearer",
        "API_KEY",
        r"\b(?:bearer|basic|token)\s+([A-Za-z0-9_\-.=+/~]{16,})",
        0.9,
        1,
        needs=(b"bearer", b"basic", b"token"),
        check=checks.long_token,
    ),
    Rule(
        "key_in_prose",
        "API_KEY",
        r"\b(?:key|token|secret|credential)\b[^\n]{0,24}?[\s:='\"`]([A-Za-z0-9_\-]{20,})\b",
        0.8,
        1,
        needs=_SECRET_NEEDS,
        check=checks.long_token,
    ),
    Rule(
        "jwt",
        "JWT",
        r"\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]{0,})?",
        1.0,
        needs=(b"eyj",),
        ignore_case=False,
    ),
    Rule(
        "private_key",
        "PRIVATE_KEY",
        r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        1.0,
        needs=(b"private key",),
    ),
    Rule("putty_key", "PRIVATE_KEY", r"PuTTY-User-Key-File-\d", 1.0, needs=(b"putty-user-key",)),
    Rule(
        "database_url",
        "CONNECTION_STRING",
        r"\b(?:jdbc:)?(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse|cockroachdb|snowflake|ldaps?|nats|kafka)(?:\+[a-z0-9]{1,20})?://[^\s:@/\"'<>]{0,}:[^\s\"'<>]{1,}@[^\s\"'<>]{1,}",
        1.0,
        needs=(b"://",),
    ),
    Rule(
        "url_userinfo",
        "URL_CREDENTIALS",
        r"\b[a-z][a-z0-9+.\-]{1,20}://([^\s:@/\"'<>]{0,}:[^\s@/\"'<>]{1,})@",
        1.0,
        1,
        needs=(b"://",),
    ),
    Rule(
        "quoted_secret",
        "PASSWORD",
        _NAMED
        + r"[\w.\-]{0,30}(?:\\?[\"'])?\s{0,3}(?::=|=>|==?|:)\s{0,3}(?:[bru]{0,2})\\?[\"']([^\"'\s\\]{4,})\\?[\"']",
        0.9,
        1,
        needs=_SECRET_NEEDS,
        check=checks.quoted_value,
    ),
    Rule(
        "assigned_secret",
        "PASSWORD",
        _NAMED + r"[\w.\-]{0,30}(?:\\?[\"'])?\s{0,3}(?::=|=>|=|:)\s{0,3}([^\s\"',;<>|\\]{4,})",
        0.9,
        1,
        needs=_SECRET_NEEDS,
        check=checks.secret_value,
    ),
    Rule(
        "told_secret",
        "PASSWORD",
        r"\b(?:password|passwd|passphrase|passcode|pin)\b(?: [a-z]{2,8}){0,3} (?:is|was|to|of|as) [\"'`]?([^\s\"'`,;<>]{4,})",
        0.8,
        1,
        needs=(b"pass", b"pin"),
        check=checks.secret_value,
    ),
    Rule(
        "cookie", "API_KEY", r"\b(?:set-)?cookie:\s{0,3}([^\r\n]{8,})", 0.9, 1, needs=(b"cookie:",)
    ),
)

IDENTIFIERS = (
    Rule(
        "email",
        "EMAIL_ADDRESS",
        rf"[{_W}!#$%&*+/=?^`{{|}}~.'\-]{{1,64}}@(?:[{_W}](?:[{_W}\-]{{0,62}}[{_W}])?\.){{1,8}}[{_W}\-]{{2,24}}",
        1.0,
        needs=(b"@",),
    ),
    Rule(
        "email_spelled",
        "EMAIL_ADDRESS",
        r"\b[\w.+\-]{1,64}\s{0,2}(?:\[at\]|\(at\)|\{at\}| at )\s{0,2}[\w\-]{1,63}(?:\s{0,2}(?:\[dot\]|\(dot\)|\{dot\}| dot |\.)\s{0,2}[\w\-]{2,63}){1,4}\b",
        0.3,
        needs=(b"dot", b"[at]", b"(at)", b"{at}"),
        context=("email", "mail", "contact", "reach", "write"),
    ),
    Rule(
        "card",
        "CREDIT_CARD",
        r"\d(?:[ \-.]?\d){11,}",
        0.3,
        digits=True,
        context=(
            "credit",
            "card",
            "visa",
            "mastercard",
            "amex",
            "discover",
            "debit",
            "maestro",
            "pan",
            "cc",
        ),
        check=checks.card,
        left=r"\w.",
        right=r"\w",
    ),
    Rule(
        "ssn",
        "US_SSN",
        r"\d{3}[\- .]\d{2}[\- .]\d{4}",
        0.5,
        digits=True,
        check=checks.ssn,
        left=r"\w\-.",
        right=r"\w\-",
    ),
    Rule(
        "ssn_plain",
        "US_SSN",
        r"\d{9}|\d{5}-\d{4}|\d{3}-\d{6}",
        0.1,
        digits=True,
        context=("social", "security", "ssn", "ssns"),
        left=r"\w.",
        right=r"\w",
    ),
    Rule(
        "iban",
        "IBAN_CODE",
        r"[A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]){11,31}",
        0.5,
        digits=False,
        needs=tuple(str(d).encode() for d in range(10)),
        left=r"\w",
    ),
    Rule(
        "mac",
        "MAC_ADDRESS",
        r"[0-9A-F]{2}(?:(?::[0-9A-F]{2}){5}|(?:-[0-9A-F]{2}){5})|[0-9A-F]{4}\.[0-9A-F]{4}\.[0-9A-F]{4}",
        0.9,
        check=checks.mac,
        left=r"\w:.\-",
        right=r"\w:",
    ),
    Rule(
        "ipv4",
        "IP_ADDRESS",
        r"(?:(?:25[0-5]|2[0-4]\d|[01]?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|[01]?\d?\d)(?:/(?:3[0-2]|[12]?\d))?",
        0.6,
        needs=(b".",),
        check=checks.ip_address,
        left=r"\w",
        right=r"\w",
    ),
    Rule(
        "ipv6",
        "IP_ADDRESS",
        r"(?:[0-9A-F]{1,4}:|:)(?:[0-9A-F]{0,4}:){1,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-F]{0,4})(?:%[0-9A-Z]{1,16})?(?:/\d{1,3})?",
        0.6,
        needs=(b":",),
        check=checks.ip_address,
        left=r"\w:",
        right=r"\w:",
    ),
    Rule(
        "date_of_birth",
        "DATE_OF_BIRTH",
        r"\b(?:dob|d\.o\.b\.?|date[_ \-]of[_ \-]birth|birth[_ \-]?da(?:te|y)|born(?: on)?)[\"']?\s{0,2}(?:is|was|:|=)?\s{0,2}[\"']?((?:\d{1,4}[/.\-]\d{1,2}[/.\-]\d{1,4})|(?:\d{1,2}(?:st|nd|rd|th)? (?:of )?[a-z]{3,9},? \d{4})|(?:[a-z]{3,9}\.? \d{1,2}(?:st|nd|rd|th)?,? \d{4}))",
        0.9,
        1,
        needs=(b"dob", b"d.o.b", b"birth", b"born"),
        digits=False,
    ),
    Rule(
        "medical_record",
        "MEDICAL_RECORD",
        r"\b(?:mrn|medical record(?: (?:number|no\.?|id))?|patient (?:id|number|no\.?))[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"'#]?([a-z]{0,5}-?\d[\w\-]{3,20})",
        0.9,
        1,
        needs=(b"mrn", b"medical record", b"patient"),
    ),
    Rule(
        "bank_account",
        "BANK_ACCOUNT",
        r"\b(?:acct|account|acc)[_ ]?(?:number|num|no\.?|nr\.?|#)?[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"'#]?(\d[\d \-]{6,18}\d)",
        0.6,
        1,
        needs=(b"acc",),
        digits=True,
        right=r"\w",
    ),
    Rule(
        "routing_number",
        "BANK_ACCOUNT",
        r"\b(?:routing|aba|sort code|bsb)(?: (?:number|no\.?))?[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}(\d[\d\-]{4,10}\d)",
        0.6,
        1,
        needs=(b"routing", b"aba", b"sort code", b"bsb"),
        digits=True,
    ),
    Rule(
        "username",
        "USERNAME",
        r"\b(?:[a-z]{1,12}[_\-])?(?:user(?:[_\- ]?name|[_\-]?id)?|login|handle|account[_ ]?name)[\"']?\s{0,2}(?:=|:)\s{0,2}[\"']?([a-z][\w.\-]{1,40}\d[\w.\-]{0,20}|[a-z]{2,20}[._][a-z]{2,20})",
        0.7,
        1,
        needs=(b"user", b"login", b"handle", b"account"),
        right=r"\w(\[",
    ),
    Rule(
        "street_address",
        "STREET_ADDRESS",
        r"\b\d{1,5}[A-Z]?(?:-\d{1,4})?,? (?:(?:[NSEW]|North|South|East|West)\.? )?(?:[A-Z\xc0-\xde][\w\xc0-\xff'.\-]{1,24} ){1,4}(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Terrace|Ter|Way|Parkway|Pkwy|Circle|Cir|Highway|Hwy|Trail|Close|Crescent|Row)\b\.?(?:,? (?:Apt|Apartment|Suite|Ste|Unit|Floor|#)\.? ?[\w\-]{1,8})?(?:,? [A-Z][\w .'\-]{2,30}, [A-Z]{2}(?: \d{5}(?:-\d{4})?)?)?",
        0.7,
        digits=False,
        ignore_case=False,
        needs=(
            b" st",
            b" av",
            b" r",
            b" bl",
            b" l",
            b" d",
            b" c",
            b" p",
            b" s",
            b" t",
            b" w",
            b" h",
        ),
    ),
    Rule("post_box", "STREET_ADDRESS", r"\bP\.?\s?O\.?\s?Box \d{1,6}\b", 0.7, needs=(b"box",)),
)

URLS = (Rule("url", "URL", r"\b(?:https?|ftp)://[^\s\"'<>\\^`{|}]{3,}", 0.6, needs=(b"://",)),)

RULES = SECRETS + IDENTIFIERS + URLS
