"""The ``spec`` of a Consent policy: who grants which purposes, and what takes them away."""

import re
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from governance.policy.selector import Match, NamedRule, SaidMatch, Spec, check_names

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""The name of a header, RFC 9110."""


class Purpose(StrEnum):
    """What captured data may be used for; one that nobody granted is refused."""

    DEBUG = "debug"
    EVAL = "eval"
    TRAIN_SFT = "train_sft"
    TRAIN_PREFERENCE = "train_preference"
    TRAIN_RL = "train_rl"
    EVOLVE = "evolve"
    SHARE = "share"


TRAINING = (Purpose.TRAIN_SFT, Purpose.TRAIN_PREFERENCE, Purpose.TRAIN_RL, Purpose.EVOLVE)
"""What something is learned for, by a model or by the artefacts beside it."""


class LegalBasis(StrEnum):
    """Why processing is lawful, in the words of Article 6 GDPR."""

    CONSENT = "consent"
    CONTRACT = "contract"
    LEGAL_OBLIGATION = "legal_obligation"
    VITAL_INTERESTS = "vital_interests"
    PUBLIC_TASK = "public_task"
    LEGITIMATE_INTERESTS = "legitimate_interests"


class Grant(NamedRule):
    """Purposes that a tenant or application has agreed to."""

    match: SaidMatch = Field(description='Whom it is about; `tenant: "*"` is everybody.')
    purposes: tuple[Purpose, ...] = Field(min_length=1)
    legal_basis: LegalBasis = LegalBasis.CONSENT
    reference: str | None = Field(default=None, description="Contract or record that proves it.")

    @field_validator("match")
    @classmethod
    def _by_what_nobody_makes_up(cls, value: Match) -> Match:
        for name in sorted({"agent", "region"} & value.model_fields_set):
            raise ValueError(
                f"{name} is what a client says of itself: it can limit, and cannot grant. Grant by "
                "tenant, app or environment"
            )
        return value


class Limit(NamedRule):
    """Purposes that some traffic is never used for, whoever granted them."""

    match: SaidMatch = Match()
    never: tuple[Purpose, ...] = Field(min_length=1)


def _header_name(value: str) -> str:
    if not _TOKEN.fullmatch(value):
        raise ValueError("is no name of a header, so that no request ever says it")
    if value.lower() == "sec-gpc":
        raise ValueError("sec-gpc has a meaning of its own: see global_privacy_control")
    return value


type _HeaderName = Annotated[str, AfterValidator(_header_name)]


class Headers(Spec):
    """Request headers by which a client takes purposes away from one request."""

    purposes: _HeaderName = Field(
        default="x-headrace-purposes", description="Only these purposes, comma-separated."
    )
    opt_out: _HeaderName = Field(
        default="x-headrace-opt-out",
        description="`all`, `train`, or purposes; any other word counts as `all`.",
    )
    global_privacy_control: tuple[Purpose, ...] = Field(
        default=(*TRAINING, Purpose.SHARE),
        min_length=1,
        description="What `sec-gpc: 1` takes away.",
    )

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.purposes.lower() == self.opt_out.lower():
            raise ValueError("purposes and opt_out name one header; it can say only one of them")
        return self


class ConsentSpec(Spec):
    """Grants add up; whatever takes a purpose away wins over every grant; unknown means no."""

    key_purposes: bool = Field(
        default=True, description="Whether purposes of the client key count as a grant."
    )
    key_legal_basis: LegalBasis = LegalBasis.CONSENT
    grants: Annotated[tuple[Grant, ...], AfterValidator(check_names)] = ()
    limits: Annotated[tuple[Limit, ...], AfterValidator(check_names)] = ()
    headers: Headers = Headers()
    subject_grant_required: tuple[Purpose, ...] = Field(
        default=(),
        description=(
            "Purposes that also need a grant of the end user in the registry; an exchange without "
            "an end user's identifier has none."
        ),
    )
