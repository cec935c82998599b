"""One redactor for many tests: building it imports Presidio and costs seconds."""

from functools import cache

from governance.policy.redaction import NamesSpec, Operator, RedactionSpec
from governance.redact import RedactionScope, Redactor, build_redactor
from trajectory.canonical import JsonValue

KEY = bytes(range(32))
SCOPE = RedactionScope(tenant_id="acme", trajectory_id="t-1")
RULES_ONLY = NamesSpec(model=None)


@cache
def redactor() -> Redactor:
    """Return a redactor of the default policy without a names model."""
    return build_redactor(RedactionSpec(names=RULES_ONLY), pseudonym_key=KEY)


def made(**spec: object) -> Redactor:
    """Return a redactor of a policy that differs from the default in some fields."""
    return build_redactor(
        RedactionSpec.model_validate({"names": {"model": None}, **spec}), pseudonym_key=KEY
    )


def text(value: str) -> str:
    """Return a text after redaction."""
    return redactor().redact_text(value, scope=SCOPE).text


def value(given: JsonValue) -> JsonValue:
    """Return a JSON value after redaction."""
    return redactor().redact_json(given, scope=SCOPE).value


__all__ = ["KEY", "RULES_ONLY", "SCOPE", "Operator", "made", "redactor", "text", "value"]
