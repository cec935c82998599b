"""The ``spec`` of a Retention policy: classes of age, and legal hold over them."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from governance.policy.selector import Facts, NamedRule, SaidMatch, Spec, check_names
from trajectory.documents.problems import meant

_MOST_DAYS = 36_500


def _days(value: object) -> object:
    """Refuse what is no number of days; a hundred years are beyond any calendar that counts."""
    if value == "forever" or (type(value) is int and 1 <= value <= _MOST_DAYS):
        return value
    raise ValueError(f"is no whole number of days from 1 to {_MOST_DAYS}, nor `forever`")


type Days = Annotated[
    Annotated[int, Field(ge=1, le=_MOST_DAYS)] | Literal["forever"], BeforeValidator(_days)
]


class RetentionRule(NamedRule):
    """Which class some traffic belongs to; the first rule that fits decides."""

    match: SaidMatch = Field(description="Which traffic; `default` is the class of all other.")
    class_: str = Field(alias="class", description="One of `classes`.")


class LegalHold(NamedRule):
    """Traffic that may not be deleted, whatever its class says."""

    match: SaidMatch
    reference: str = Field(min_length=1, description="The case that demands it.")


class RetentionSpec(Spec):
    """How long what is kept is kept, counted from the moment of capture."""

    classes: dict[str, Days] = Field(min_length=1, description="Class name to days, or `forever`.")
    default: str = Field(description="Class of what no rule fits.")
    rules: Annotated[tuple[RetentionRule, ...], AfterValidator(check_names)] = ()
    legal_holds: Annotated[tuple[LegalHold, ...], AfterValidator(check_names)] = ()

    @model_validator(mode="after")
    def _classes_exist(self) -> Self:
        for where, name in (
            ("default", self.default),
            *((f"rule {rule.name!r}", rule.class_) for rule in self.rules),
        ):
            if name not in self.classes:
                valid = ", ".join(self.classes)
                near = meant(name, self.classes)
                raise ValueError(f"{where}: no retention class {name!r}. Valid: {valid}{near}")
        return self

    def rule_for(self, facts: Facts) -> RetentionRule | None:
        """Return the first rule that is about a call with these facts."""
        return next((rule for rule in self.rules if rule.match.fits(facts)), None)
