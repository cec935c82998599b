"""All pattern rules of our own: what Presidio lacks, and what it does dangerously."""

from governance.detect.names.told import TOLD_NAMES
from governance.detect.rules.accounts import ACCOUNTS
from governance.detect.rules.addresses import ADDRESSES
from governance.detect.rules.identifiers import IDENTIFIERS
from governance.detect.rules.passwords import PASSWORDS
from governance.detect.rules.records import RECORDS
from governance.detect.rules.residence import PERSONAL
from governance.detect.rules.rule import VERSION, Rule
from governance.detect.rules.secrets import SECRETS
from governance.detect.rules.unique import UNIQUE

URLS = (
    Rule(
        "url",
        "URL",
        r"\b(?:(?:https?|s?ftp|s3|gs|file)://[^\s\"'<>\\^`{|}]{3,}|www\.[a-z0-9.\-]{4,}[a-z0-9])",
        0.6,
        needs=("://", "www."),
    ),
)

RULES: tuple[Rule, ...] = (
    *SECRETS,
    *PASSWORDS,
    *IDENTIFIERS,
    *ACCOUNTS,
    *RECORDS,
    *ADDRESSES,
    *PERSONAL,
    *URLS,
    *TOLD_NAMES,
    *UNIQUE,
)

__all__ = ["RULES", "VERSION", "Rule"]
