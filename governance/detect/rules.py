"""All pattern rules of our own: what Presidio lacks, and what it does dangerously."""

from governance.detect.account_rules import ACCOUNTS
from governance.detect.address_rules import ADDRESSES
from governance.detect.identifier_rules import IDENTIFIERS
from governance.detect.password_rules import PASSWORDS
from governance.detect.record_rules import RECORDS
from governance.detect.residence_rules import PERSONAL
from governance.detect.rule import VERSION, Rule
from governance.detect.secret_rules import SECRETS
from governance.detect.told_name_rules import TOLD_NAMES
from governance.detect.unique_rules import UNIQUE

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
