"""Test cases of a policy: what a client sends, and what the policy must make of it."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationError

from governance.errors import PolicyError
from governance.policy.consent import LegalBasis, Purpose
from governance.policy.secrets import read_policy
from governance.policy.selector import Spec
from governance.records import Decision, Disposition
from trajectory.documents.problems import describe
from trajectory.documents.source import SourceDocument
from trajectory.exchange import ExchangeOutcome


class GivenToolCall(Spec):
    """A tool call in an answer."""

    name: str
    arguments: JsonValue = None
    valid: bool = True


class GivenMessage(Spec):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: JsonValue = ""
    tool_calls: tuple[GivenToolCall, ...] = ()


class GivenConsent(Spec):
    """An entry of the registry."""

    subject: str = Field(
        description="The person's own value (a mail address), or `*` for everybody."
    )
    purpose: Purpose
    granted: bool


class CaseCall(Spec):
    """One call as a client makes it and a provider answers it."""

    tenant: str = "acme"
    app: str = "app"
    environment: str = "production"
    route: str = "openai"
    provider: str = "https://api.example:443"
    model: str = "model-1"
    purposes: tuple[Purpose, ...] = Field(default=(), description="What the client key grants.")
    headers: dict[str, str] = Field(default_factory=dict)
    end_user: str | None = None
    consents: tuple[GivenConsent, ...] = ()
    messages: tuple[GivenMessage, ...] = (GivenMessage(role="user", content="hello"),)
    answer: str | None = "done"
    tool_calls: tuple[GivenToolCall, ...] = Field(default=(), description="In the answer.")
    tools: tuple[dict[str, JsonValue], ...] = ()
    ext: dict[str, JsonValue] = Field(default_factory=dict)
    error: str | None = None
    http_status: int = 200
    finish_reason: str | None = "stop"
    outcome: ExchangeOutcome = ExchangeOutcome.COMPLETE
    tokens: int = Field(default=0, description="Completion tokens that the engine gave.")
    logprobs: int | None = Field(default=None, description="How many logprobs it gave with them.")
    captured_days_ago: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1, description="How often the same call is made.")
    attempts: int = Field(default=1, ge=1, description="How many sessions make the same call.")
    look_alikes: int = Field(
        default=0,
        ge=0,
        description="How many sessions with other tasks ask almost the same (full stops are added).",
    )


class ExpectedTexts(Spec):
    """Texts that must be in what goes over the wire, and texts that must not."""

    absent: tuple[str, ...] = ()
    present: tuple[str, ...] = ()


class ExpectedOutcome(Spec):
    """What must come of it; only what is written down is checked."""

    disposition: Disposition | None = Field(default=None, description="Of the last call made.")
    dispositions: dict[Disposition, int] | None = Field(default=None, description="Of all calls.")
    decision: Decision | None = None
    purposes: tuple[Purpose, ...] | None = None
    reasons: tuple[str, ...] = Field(default=(), description="Each must be among the reasons.")
    quarantine: str | None = None
    legal_basis: LegalBasis | Literal["none"] | None = None
    retention_class: str | None = None
    expires_in_days: int | None = None
    legal_hold: bool | None = None
    data_classes: tuple[str, ...] | None = None
    entities: dict[str, int] | None = Field(default=None, description="Findings by type.")
    absent: tuple[str, ...] = Field(default=(), description="Texts that no stored row may hold.")
    present: tuple[str, ...] = Field(default=(), description="Texts that a stored row must hold.")
    tokens: Literal["exact", "pseudonymised_inline", "span_masked", "none"] | None = None
    sent: ExpectedTexts | None = Field(
        default=None, description="What the provider gets, by `Redaction.inline`."
    )
    told: ExpectedTexts | None = Field(
        default=None,
        description=(
            "What the client gets of `answer` and `tool_calls`; the provider says surrogates for values "
            "of the request."
        ),
    )
    actions: dict[str, Literal["deny", "hold", "limit", "dry-run", "allow"]] | None = Field(
        default=None,
        description="What rules of kind Action make of `tool_calls` on this route, by the tool's name.",
    )


class Case(Spec):
    """One test case."""

    name: str = Field(min_length=1)
    given: CaseCall = CaseCall()
    expect: ExpectedOutcome


class CaseDocument(Spec):
    """A file of test cases."""

    api_version: Literal["headrace/v1"] = Field(alias="apiVersion")
    kind: Literal["PolicyTest"]
    metadata: dict[str, str] = Field(default_factory=dict)
    cases: tuple[Case, ...] = Field(min_length=1)


class PlacedCase(Spec):
    """A case and where it is written."""

    case: Case
    file: str
    line: int


def load_cases(folder: Path) -> list[PlacedCase]:
    """Return the cases of a bundle: ``*.test.yaml`` in its folder and in ``tests`` beneath it.

    Raises:
        PolicyError: a case file is wrong; the text names file, line and field.
    """
    found: list[PlacedCase] = []
    problems: list[str] = []
    files = [*folder.glob("*.test.yaml"), *(folder / "tests").glob("*.test.yaml")]
    for file in sorted(files):
        shown = f"{folder.name}/{file.relative_to(folder)}"
        for source in read_policy(file, shown, made_up=True):
            try:
                document = CaseDocument.model_validate(source.value)
            except ValidationError as error:
                problems += describe(error, source, CaseDocument)
                continue
            found += _placed(document, source)
    if problems:
        raise PolicyError("\n".join(problems))
    return found


def load_given(file: Path) -> CaseCall:
    """Return the call that a file describes, as a whole or under ``given``.

    Raises:
        PolicyError: the file is wrong; the text names file, line and field.
    """
    documents = read_policy(file, str(file), made_up=True)
    if len(documents) != 1:
        raise PolicyError(f"{file}:1: document: one call, with or without `given:`")
    (source,) = documents
    whole = isinstance(source.value, dict) and "given" in source.value
    model = _Example if whole else CaseCall
    try:
        said = model.model_validate(source.value)
    except ValidationError as error:
        raise PolicyError("\n".join(describe(error, source, model))) from None
    return said.given if isinstance(said, _Example) else said


class _Example(Spec):
    given: CaseCall
    name: str = ""
    expect: ExpectedOutcome | None = None


def _placed(document: CaseDocument, source: SourceDocument) -> list[PlacedCase]:
    lines: list[Any] = [source.line_of(("cases", at, "name")) for at in range(len(document.cases))]
    return [
        PlacedCase(case=case, file=source.file, line=line)
        for case, line in zip(document.cases, lines, strict=True)
    ]
