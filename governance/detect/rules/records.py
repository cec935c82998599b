"""Rules for numbers under which a person is kept elsewhere: charts, plans, licences, devices."""

from governance.detect.rules import checks
from governance.detect.rules.rule import Rule

_SAID = r"[\"']?\s{0,2}(?:is|[:#=])?\s{0,2}[\"'#]?"
_NUMBER = r"[ _\-]?(?:id|numbers?|num\.?|no\.?|#|code)"
_MBI = "AC-HJKMNP-RT-Y"
_CHECKED = "80840"
"""Stands before a provider's number when its check digit is worked out."""


def _digits(value: str) -> bool | None:
    return None if sum(char.isdigit() for char in value) >= 4 else False


def _provider(value: str) -> bool:
    return checks.luhn(_CHECKED + value)


RECORDS = (
    Rule(
        "chart_number",
        "MEDICAL_RECORD",
        rf"\b(?:chart|encounter|accession|specimen|hospital|study subject|subject|trial participant)"
        rf"{_NUMBER}{_SAID}([A-Z]{{0,8}}-?\d[A-Z\d\-/]{{3,24}})",
        0.8,
        1,
        needs=("chart", "encounter", "accession", "specimen", "hospital", "subject", "participant"),
        check=_digits,
        right=r"\w",
    ),
    Rule(
        "medicare_number",
        "HEALTH_PLAN",
        rf"[1-9][{_MBI}][{_MBI}\d]\d-?[{_MBI}][{_MBI}\d]\d-?[{_MBI}]{{2}}\d{{2}}",
        0.8,
        shortest=11,
        fewest_digits=5,
        ignore_case=False,
        left=r"\w\-",
        right=r"\w\-",
    ),
    Rule(
        "plan_number",
        "HEALTH_PLAN",
        rf"\b(?:health plan|insurance|policy|member(?:ship)?|subscriber|beneficiary|medicare|medicaid|claim)"
        rf"{_NUMBER}{_SAID}([A-Z]{{0,6}}-?\d[A-Z\d\-]{{2,20}}(?: \d{{3,8}}){{0,3}})",
        0.7,
        1,
        needs=(
            "plan", "insurance", "policy", "member", "subscriber", "beneficiary", "medicare",
            "medicaid", "claim",
        ),
        check=_digits,
        right=r"\w",
    ),
    Rule(
        "licence_number",
        "LICENSE_NUMBER",
        rf"\b(?:(?:nurs(?:e|ing)|medical|pharmacy|dental|physician|professional|teaching|pilot|driving|"
        rf"practice|bar|state|birth|death|marriage) (?:licen[cs]e|certificate|registration)(?:{_NUMBER})?"
        rf"|(?:licen[cs]e|certificate){_NUMBER}){_SAID}([A-Z]{{0,4}}[\-.]?\d[A-Z\d\-/.]{{3,24}}[A-Z\d])",
        0.7,
        1,
        needs=("license", "licence", "certificate", "registration"),
        check=_digits,
        right=r"\w",
    ),
    Rule(
        "provider_number",
        "MEDICAL_LICENSE",
        rf"\bNPI(?:{_NUMBER})?{_SAID}(\d{{10}})",
        0.8,
        1,
        needs=("npi",),
        check=_provider,
        right=r"\w",
    ),
    Rule(
        "serial_sn",
        "DEVICE_ID",
        r"\bserial[\s:#]{1,3}(S/?N[\-: ]?[A-Z0-9][A-Z0-9\-]{3,30})",
        0.8,
        1,
        needs=("serial",),
        check=_digits,
        right=r"\w",
    ),
    Rule(
        "device_udi",
        "DEVICE_ID",
        r"\(01\)\d{14}(?:\(\d{2}\)[A-Z0-9\-]{1,20}){0,4}",
        0.9,
        needs=("(01)",),
        right=r"\w",
    ),
    Rule(
        "told_user_number",
        "USERNAME",
        r"\b(?:user|customer|employee|patient portal|login)[ _\-]?(?:id|number|no\.?) {1,2}"
        r"([A-Z]{1,4}[_\-]?\d{3,12})",
        0.7,
        1,
        needs=("user", "customer", "employee", "portal", "login"),
        right=r"\w",
    ),
)  # fmt: skip
