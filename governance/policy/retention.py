"""The ``spec`` of a Retention policy: classes of age, and legal hold over them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from governance.policy.selector import Facts, Match, Spec


class RetentionRule(Spec):
    """Which class some traffic belongs to; the first rule that fits decides."""

    name: str = Field(min_length=1, description="Named in the reasons of a decision.")
    match: Match = Match()
    class_: str = Field(alias="class", description="One of `classes`.")


class LegalHold(Spec):
    """Traffic that may not be deleted, whatever its class says."""

    name: str = Field(min_length=1, description="Named in the reasons of a decision.")
    match: Match
    reference: str = Field(min_length=1, description="The case that demands it.")


class RetentionSpec(Spec):
    """How long what is kept is kept, counted from the moment of capture."""

    classes: dict[str, int | Literal["forever"]] = Field(
        min_length=1, description="Class name to days, or `forever`."
    )
    default: str = Field(description="Class of what no rule fits.")
    rules: tuple[RetentionRule, ...] = ()
    legal_holds: tuple[LegalHold, ...] = ()

    @model_validator(mode="after")
    def _classes_exist(self) -> Self:
        for where, name in (
            ("default", self.default),
            *((f"rule {rule.name!r}", rule.class_) for rule in self.rules),
        ):
            if name not in self.classes:
                valid = ", ".join(self.classes)
                raise ValueError(f"{where}: no retention class {name!r}. Valid: {valid}")
        for name, days in self.classes.items():
            if days != "forever" and days < 1:
                raise ValueError(f"class {name!r}: at least 1 day, or `forever`")
        return self

    def rule_for(self, facts: Facts) -> RetentionRule | None:
        """Return the first rule that is about a call with these facts."""
        return next((rule for rule in self.rules if rule.match.fits(facts)), None)
