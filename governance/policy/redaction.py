"""The ``spec`` of a Redaction policy: which entities, what is done to each, and which guards run."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from governance.policy.selector import Number, Spec, Whole
from governance.policy.words import check_exact, check_plain, unknown

_ENTITY = re.compile(r"[A-Z][A-Z0-9_]*")


class Operator(StrEnum):
    """What is done to one finding."""

    PSEUDONYM = "pseudonym"
    """``<PERSON_3f9a1c0f77b2d44e>``: keyed, the same value gives the same word within the policy's scope."""
    HASH = "hash"
    """``<PERSON:9c1f0a77b2d44e10>``: keyed and long enough to join on."""
    MASK = "mask"
    """``****``: the length class is lost, nothing can be joined."""
    DROP = "drop"
    """``<PERSON>``: only the type stays. Secrets are always treated at least like this."""
    GENERALISE = "generalise"
    """``60-69``, ``1984``, ``902``: ages, dates and US postcodes as many people share them."""
    ENCRYPT = "encrypt"
    """``<PERSON~k.t>``: sealed; `headrace reveal` opens it for those the settings permit, audited."""
    KEEP = "keep"
    """Found, counted, left as it is."""


GENERALISABLE = frozenset({"AGE", "DATE_OF_BIRTH", "DATE_TIME", "POSTCODE"})
"""Entity types that have a wider form."""

SECRET_ENTITIES = frozenset(
    {"API_KEY", "PASSWORD", "JWT", "PRIVATE_KEY", "CONNECTION_STRING", "URL_CREDENTIALS"}
)
"""Entities that are never pseudonymised: a secret serves nobody in learning data."""

DEFAULT_ENTITIES: dict[str, Operator] = {
    "PERSON": Operator.PSEUDONYM,
    "EMAIL_ADDRESS": Operator.PSEUDONYM,
    "PHONE_NUMBER": Operator.PSEUDONYM,
    "CREDIT_CARD": Operator.PSEUDONYM,
    "IBAN_CODE": Operator.PSEUDONYM,
    "BANK_ACCOUNT": Operator.PSEUDONYM,
    "NATIONAL_ID": Operator.PSEUDONYM,
    "US_SSN": Operator.PSEUDONYM,
    "US_ITIN": Operator.PSEUDONYM,
    "US_PASSPORT": Operator.PSEUDONYM,
    "US_DRIVER_LICENSE": Operator.PSEUDONYM,
    "US_BANK_NUMBER": Operator.PSEUDONYM,
    "UK_NHS": Operator.PSEUDONYM,
    "MEDICAL_LICENSE": Operator.PSEUDONYM,
    "MEDICAL_RECORD": Operator.PSEUDONYM,
    "CRYPTO": Operator.PSEUDONYM,
    "IP_ADDRESS": Operator.PSEUDONYM,
    "MAC_ADDRESS": Operator.PSEUDONYM,
    "USERNAME": Operator.PSEUDONYM,
    "STREET_ADDRESS": Operator.PSEUDONYM,
    "HEALTH_PLAN": Operator.PSEUDONYM,
    "LICENSE_NUMBER": Operator.PSEUDONYM,
    "VEHICLE_ID": Operator.PSEUDONYM,
    "DEVICE_ID": Operator.PSEUDONYM,
    "RESIDENCE": Operator.PSEUDONYM,
    "PERSONAL_URL": Operator.PSEUDONYM,
    "POSTCODE": Operator.GENERALISE,
    "AGE": Operator.GENERALISE,
    "DATE_OF_BIRTH": Operator.DROP,
    "API_KEY": Operator.DROP,
    "PASSWORD": Operator.DROP,
    "JWT": Operator.DROP,
    "PRIVATE_KEY": Operator.DROP,
    "CONNECTION_STRING": Operator.DROP,
    "URL_CREDENTIALS": Operator.DROP,
    "OPAQUE_DATA": Operator.DROP,
}
"""What is found without a word in the policy. Organisations, places, dates and plain URLs are not."""


class NamesSpec(Spec):
    """How names of people are found."""

    model: str | None = Field(
        default="embedded",
        description=(
            "`embedded` for the model that ships with Headrace, the name or folder of an installed "
            "spaCy pipeline, `transformers:NAME` or `gliner:NAME` for theirs (a folder or what lies "
            "in their cache), or null for rules alone. One that cannot load stops the start."
        ),
    )
    rules: bool = Field(
        default=True, description="Self-introductions, salutations, signatures, form fields, keys."
    )
    propagate: bool = Field(
        default=True,
        description="A name found once is redacted everywhere in its trajectory, its parts too.",
    )


class ToolRestoreSpec(Spec):
    """A tool whose calls may carry values of some entity types."""

    tool: str = Field(
        min_length=1, description="Its name; `*` for every tool that no other entry names."
    )
    entities: tuple[str, ...] = Field(
        min_length=1, description="Entity types of the values that it may have, of those replaced."
    )


def _form_of_receiver(value: object) -> str:
    return "ToolRestoreSpec" if isinstance(value, dict | ToolRestoreSpec) else "str"


type _Receiver = Annotated[
    Annotated[str, Tag("str")] | Annotated[ToolRestoreSpec, Tag("ToolRestoreSpec")],
    Discriminator(_form_of_receiver),
]


class RestoreSpec(Spec):
    """Who gets values back in the place of surrogates."""

    to: tuple[_Receiver, ...] = Field(
        default=("client",),
        description=(
            "`client`, always; and `tool:NAME` for each tool whose calls may carry all values, or `{tool: "
            "NAME, entities: [TYPE, ...]}` for values of these types alone. `*` is every tool that is not "
            "named. Beside them each tool gets values that it said itself in the conversation. The calls "
            "keep the surrogates of all others."
        ),
    )

    @field_validator("to")
    @classmethod
    def _are_receivers(cls, value: tuple[_Receiver, ...]) -> tuple[_Receiver, ...]:
        tools: set[str] = set()
        for one in value:
            if one == "client":
                continue
            name = one.removeprefix("tool:") if isinstance(one, str) else one.tool
            if not name or name == one:
                raise ValueError(f"{one}: say `client`, `tool:NAME` or `tool:*`")
            if name in tools:
                raise ValueError(f"the tool {name} is named twice: say once what it may have")
            tools.add(name)
        if "client" not in value:
            raise ValueError("the client always gets its values back: add `client`")
        return value

    def receivers(self) -> dict[str, frozenset[str] | None]:
        """Return `tool:NAME` for each tool, with the entity types that it may have; None for all."""
        return {
            one if isinstance(one, str) else f"tool:{one.tool}": (
                None if isinstance(one, str) else frozenset(one.entities)
            )
            for one in self.to
            if one != "client"
        }


_NOT_INLINE = frozenset({"OPAQUE_DATA"})
"""Bytes that nobody can look into: no surrogate could stand for a picture."""


class InlineSpec(Spec):
    """Personal data in requests is replaced before the provider sees it, and restored in answers."""

    routes: tuple[str, ...] = Field(
        min_length=1,
        description=(
            "Routes of the gateway. Their requests must be chat completions, completions, responses, "
            "messages, Gemini's, Ollama's or Bedrock's, OpenAI's conversations, files of text, or batches; "
            "others are refused."
        ),
    )
    entities: tuple[str, ...] = Field(
        default=(),
        description=(
            "Entity types that are replaced; by default all that this policy looks for and does not keep."
        ),
    )
    scope: Literal["conversation", "day", "tenant"] = Field(
        default="conversation",
        description=(
            "How far one value keeps one surrogate. A conversation is named by the client's session or "
            "told by its first words."
        ),
    )
    surrogates: Literal["token", "realistic"] = Field(
        default="token",
        description=(
            "`EMAIL_xkdrwqpzmtbnhgcvfj`: a type and 16 to 21 consonants. Or values that look real, fit the "
            "formats of tool schemas and are nobody's (names of invented words, `.invalid`, telephones of "
            "areas N9X, 240.0.0.0/4, test cards; all with a check of ours), tokens for types that have none."
        ),
    )
    restore: RestoreSpec = RestoreSpec()
    on_failure: Literal["refuse", "pass"] = Field(
        default="refuse",
        description=(
            "What becomes of a request that cannot be read, or looked into in time: an error in the "
            "provider's own shape, or the request goes on as it is, counted."
        ),
    )
    budget_ms: Whole = Field(
        default=5000,
        ge=10,
        le=600_000,
        description="Milliseconds that a request may wait until everything in it is replaced.",
    )
    history_hours: Whole = Field(
        default=24,
        ge=0,
        le=720,
        description=(
            "For so long the gateway keeps, sealed, what surrogates stand for in responses, conversations and "
            "files that the provider keeps; for batches a day longer. 0: nothing is kept, and requests that "
            "need it are refused."
        ),
    )

    def sought(self, operators: Mapping[str, Operator]) -> frozenset[str]:
        """Return the entity types that are replaced, of those that the policy looks for."""
        if self.entities:
            return frozenset(self.entities)
        kept = {name for name, how in operators.items() if how is Operator.KEEP}
        return frozenset(operators) - kept - _NOT_INLINE


class RedactionSpec(Spec):
    """What is looked for in captured text and what happens to what is found."""

    entities: dict[str, Operator] = Field(
        default_factory=dict,
        description=(
            "Entity type to operator, laid over the defaults. An entity without a detector stops "
            "the start."
        ),
    )
    disabled: tuple[str, ...] = Field(
        default=(), description="Entity types of the defaults that this policy does not look for."
    )
    thresholds: dict[str, Number] = Field(
        default_factory=dict,
        description="Entity type to the least score (0 to below 1) of a finding, laid over the defaults.",
    )
    names: NamesSpec = NamesSpec()
    scope: Literal["tenant", "trajectory"] = Field(
        default="tenant", description="How far one value keeps one pseudonym."
    )
    keys: Literal["installation", "subject"] = Field(
        default="installation",
        description=(
            "`subject`: each value of the types in `subjects` is pseudonymised or sealed with a key "
            "of its own that `headrace erase` destroys."
        ),
    )
    key_epoch: Whole = Field(
        default=1,
        ge=1,
        description=(
            "Raise it to rotate the installation's pseudonym key: new rows get other pseudonyms "
            "than old ones; people are still found by their names for consent and erasure."
        ),
    )
    pseudonyms: Literal["typed", "realistic"] = Field(
        default="typed",
        description=(
            "`<PERSON_3f9a1c0f77b2d44e>`, or stand-ins that look real and belong to nobody (`.invalid`, "
            "555-01xx, 192.0.2.x) for the types that have one."
        ),
    )
    ages: Literal["decade", "over_89"] = Field(
        default="decade",
        description="What `generalise` makes of ages: `60-69`, or all up to 89 as they are; then `90+`.",
    )
    recognizers: tuple[str, ...] = Field(
        default=(),
        description="Presidio recogniser registry files (YAML), relative to the policy's folder.",
    )
    allow: tuple[str, ...] = Field(
        default=(),
        description="Exact values that are never redacted (a support address, a product).",
    )
    subjects: tuple[str, ...] = Field(
        default=("EMAIL_ADDRESS", "PERSON", "PHONE_NUMBER"),
        min_length=1,
        description="Entity types whose values name a data subject in the governance table.",
    )
    opaque_data: Literal["drop", "keep"] = Field(
        default="drop",
        description="Base64 and data URLs whose bytes are no text, so that nothing can look inside.",
    )
    pseudonym_digits: Whole = Field(
        default=16,
        ge=6,
        le=32,
        description=(
            "Hexadecimal digits of a pseudonym. Of fewer than 16 some people share one: nothing can be "
            "joined on them for certain."
        ),
    )
    inline: InlineSpec | None = Field(
        default=None,
        description=(
            "Replace on the wire, on some routes, what is found; the gateway reads this at its start."
        ),
    )
    timeout_seconds: Number = Field(
        default=20.0,
        gt=0,
        le=3600,
        description="Time for one trajectory's batch; beyond it the rows are held back, not passed.",
    )

    @field_validator("entities")
    @classmethod
    def _are_entity_types(cls, value: dict[str, Operator]) -> dict[str, Operator]:
        for entity in value:
            if not _ENTITY.fullmatch(entity):
                written = re.sub(r"\W+", "_", entity).upper()
                raise ValueError(
                    f"{entity!r}: entity types are in capitals. Did you mean {written}?"
                )
        return value

    @field_validator("entities")
    @classmethod
    def _secrets_leave_no_trace(cls, value: dict[str, Operator]) -> dict[str, Operator]:
        for entity, operator in value.items():
            if entity in SECRET_ENTITIES and operator not in (Operator.DROP, Operator.MASK):
                raise ValueError(f"{entity} is a secret: its operator must be drop or mask")
        return value

    @field_validator("disabled")
    @classmethod
    def _is_looked_for_else(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for name in value:
            if name not in DEFAULT_ENTITIES:
                raise ValueError(unknown("entity type", name, sorted(DEFAULT_ENTITIES)))
            if name in info.data.get("entities", {}):
                raise ValueError(f"{name} is in `entities` too: say one of the two")
            if name in SECRET_ENTITIES:
                raise ValueError(f"{name} is a secret, and those are always looked for")
        return value

    @field_validator("thresholds", "subjects")
    @classmethod
    def _are_looked_for[T: (dict[str, float], tuple[str, ...])](
        cls, value: T, info: ValidationInfo
    ) -> T:
        if "entities" in info.data and "disabled" in info.data:
            looked_for = {*DEFAULT_ENTITIES, *info.data["entities"]} - {*info.data["disabled"]}
            for name in value:
                if name not in looked_for:
                    raise ValueError(
                        unknown("entity type, or one not looked for", name, sorted(looked_for))
                    )
        return value

    @field_validator("allow")
    @classmethod
    def _can_be_found(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_exact(check_plain(one)) for one in value)

    @model_validator(mode="after")
    def _operators_fit(self) -> Self:
        for entity, operator in self.entities.items():
            if operator is Operator.GENERALISE and entity not in GENERALISABLE:
                raise ValueError(
                    f"{entity} has no wider form: generalise takes {', '.join(sorted(GENERALISABLE))}"
                )
        if self.inline is not None:
            for entity in self.inline.entities:
                if entity in _NOT_INLINE or entity not in self.operators():
                    known = sorted(frozenset(self.operators()) - _NOT_INLINE)
                    raise ValueError("inline.entities: " + unknown("entity type", entity, known))
            replaced = self.inline.sought(self.operators())
            for types in self.inline.restore.receivers().values():
                for entity in sorted((types or frozenset()) - replaced):
                    what = "entity type, or one that is not replaced"
                    raise ValueError(
                        "inline.restore.to: " + unknown(what, entity, sorted(replaced))
                    )
            if self.keys == "subject":
                raise ValueError(
                    "inline: surrogates are made without the keys of subjects, so destroying one would not "
                    "undo them; inline needs keys installation"
                )
        sealed = any(operator is Operator.ENCRYPT for operator in self.entities.values())
        if sealed and self.keys == "subject" and self.scope == "trajectory":
            raise ValueError(
                "a sealed value names its subject's key, by which a person can be followed from one "
                "trajectory to another: encrypt needs scope tenant, or keys installation"
            )
        return self

    @field_validator("thresholds")
    @classmethod
    def _scores_are_shares(cls, value: dict[str, float]) -> dict[str, float]:
        for entity, score in value.items():
            if not 0 <= score < 1:
                raise ValueError(
                    f"{entity}: a threshold lies between 0 and 1, {score:g} not included: next to "
                    "nothing is that sure. `disabled` takes a type out"
                )
        return value

    def operators(self) -> dict[str, Operator]:
        """Return what is done to each entity that is looked for: defaults, policy, less disabled."""
        merged = {**DEFAULT_ENTITIES, **self.entities}
        return {name: how for name, how in merged.items() if name not in self.disabled}
