"""The ``spec`` of a Consent policy: who grants which purposes, and what takes them away."""

from enum import StrEnum

from pydantic import Field

from governance.policy.selector import Match, Spec


class Purpose(StrEnum):
    """What captured data may be used for; one that nobody granted is refused."""

    DEBUG = "debug"
    EVAL = "eval"
    TRAIN_SFT = "train_sft"
    TRAIN_PREFERENCE = "train_preference"
    TRAIN_RL = "train_rl"
    SHARE = "share"


TRAINING = (Purpose.TRAIN_SFT, Purpose.TRAIN_PREFERENCE, Purpose.TRAIN_RL)


class LegalBasis(StrEnum):
    """Why processing is lawful, in the words of Article 6 GDPR."""

    CONSENT = "consent"
    CONTRACT = "contract"
    LEGAL_OBLIGATION = "legal_obligation"
    VITAL_INTERESTS = "vital_interests"
    PUBLIC_TASK = "public_task"
    LEGITIMATE_INTERESTS = "legitimate_interests"


class Grant(Spec):
    """Purposes that a tenant or application has agreed to."""

    name: str = Field(min_length=1, description="Named in the reasons of a decision.")
    match: Match = Match()
    purposes: tuple[Purpose, ...] = Field(min_length=1)
    legal_basis: LegalBasis = LegalBasis.CONSENT
    reference: str | None = Field(default=None, description="Contract or record that proves it.")


class Limit(Spec):
    """Purposes that some traffic is never used for, whoever granted them."""

    name: str = Field(min_length=1, description="Named in the reasons of a decision.")
    match: Match = Match()
    never: tuple[Purpose, ...] = Field(min_length=1)


class Headers(Spec):
    """Request headers by which a client takes purposes away from one request."""

    purposes: str = Field(
        default="x-headrace-purposes", description="Only these purposes, comma-separated."
    )
    opt_out: str = Field(
        default="x-headrace-opt-out",
        description="`all`, `train`, or purposes; any other word counts as `all`.",
    )
    global_privacy_control: tuple[Purpose, ...] = Field(
        default=(*TRAINING, Purpose.SHARE),
        description="What `sec-gpc: 1` takes away; an empty list ignores it.",
    )


class ConsentSpec(Spec):
    """Grants add up; whatever takes a purpose away wins over every grant; unknown means no."""

    key_purposes: bool = Field(
        default=True, description="Whether purposes of the client key count as a grant."
    )
    key_legal_basis: LegalBasis = LegalBasis.CONSENT
    grants: tuple[Grant, ...] = ()
    limits: tuple[Limit, ...] = ()
    headers: Headers = Headers()
    subject_grant_required: tuple[Purpose, ...] = Field(
        default=(),
        description=(
            "Purposes that also need a grant of the end user in the registry; an exchange without "
            "an end user's identifier has none."
        ),
    )
