"""Queues of conversations to review: documents of kind ``ReviewQueue``, each with questions of its own.

An answer is a person's signal about the trajectory, named as the question. Yes, no and a scale give a number,
choices a label, free text a reason.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headrace.app.context import AppContext
from train.substrate.content import CORRECTION
from trajectory.documents.document import Document, StrictModel, load_document
from trajectory.errors import ConfigurationError

OUTCOMES = {
    "succeeded": "success",
    "failed": "NOT success",
    "unjudged": "success IS NULL",
    "tool failures": "tool_failures > 0",
    "step failures": "failed_steps > 0",
}
"""What became of a trajectory, as a condition over the view ``trajectories``."""
_LONGEST_TEXT = 2000
_MOST_POINTS = 20
_WITHDRAWN = "withdrawn"
"""As a label alone it takes a signal back."""


class _Question(StrictModel):
    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="Name of the signal.")
    ask: str = Field(min_length=1, description="The question as people read it.")
    required: bool = Field(default=True, description="Whether a conversation is done without it.")

    @property
    def options(self) -> tuple[str, ...]:
        """The answers that there are; none where people write their own."""
        return ()

    @model_validator(mode="after")
    def _is_no_name_of_ours(self) -> Self:
        if self.name == CORRECTION:
            raise ValueError(f"{CORRECTION} is the name of corrections; give another one")
        return self

    def _refuse(self, said: str, wanted: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name}: {said[:60]!r} is no answer; {wanted}")


class YesNoQuestion(_Question):
    """A question with yes or no."""

    type: Literal["yes_no"]

    @property
    def options(self) -> tuple[str, ...]:
        """Yes, and no."""
        return ("yes", "no")

    def signal(self, said: str) -> Mapping[str, Any]:
        """Return what an answer is as a signal: 1 or 0."""
        if said not in self.options:
            raise self._refuse(said, "say yes or no")
        return {"value": float(said == "yes")}


class ChoiceQuestion(_Question):
    """A question with one of some labels."""

    type: Literal["choice"]
    choices: tuple[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9 _-]{0,62}$")], ...] = Field(
        min_length=2, max_length=_MOST_POINTS
    )

    @model_validator(mode="after")
    def _are_choices(self) -> Self:
        if len({*self.choices}) < len(self.choices):
            raise ValueError("each choice stands there once")
        if _WITHDRAWN in self.choices:
            raise ValueError(f"{_WITHDRAWN} takes a signal back, so it is no choice")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """The choices."""
        return self.choices

    def signal(self, said: str) -> Mapping[str, Any]:
        """Return what an answer is as a signal: a label."""
        if said not in self.choices:
            raise self._refuse(said, f"say one of {', '.join(self.choices)}")
        return {"label": said}


class ScaleQuestion(_Question):
    """A question with a whole number from ``low`` to ``high``."""

    type: Literal["scale"]
    low: int = 1
    high: int = 5

    @model_validator(mode="after")
    def _is_a_scale(self) -> Self:
        if not 0 < self.high - self.low < _MOST_POINTS:
            raise ValueError(f"a scale has 2 to {_MOST_POINTS} points, from low to high")
        return self

    @property
    def options(self) -> tuple[str, ...]:
        """The points."""
        return tuple(str(one) for one in range(self.low, self.high + 1))

    def signal(self, said: str) -> Mapping[str, Any]:
        """Return what an answer is as a signal: a number."""
        if said not in self.options:
            raise self._refuse(said, f"say a whole number from {self.low} to {self.high}")
        return {"value": float(said)}


class TextQuestion(_Question):
    """A question that people answer in their own words; redacted before it is stored."""

    type: Literal["text"]

    def signal(self, said: str) -> Mapping[str, Any]:
        """Return what an answer is as a signal: a reason."""
        if len(said) > _LONGEST_TEXT:
            raise self._refuse(said, f"write at most {_LONGEST_TEXT} characters")
        return {"rationale": said}


type Question = Annotated[
    YesNoQuestion | ChoiceQuestion | ScaleQuestion | TextQuestion, Field(discriminator="type")
]


class QueueMatch(StrictModel):
    """Which conversations stand in a queue; what is not named does not matter."""

    tenant: str | None = None
    app_id: str | None = None
    environment: str | None = None
    model_served: str | None = None
    harness_name: str | None = None
    outcome: Literal["succeeded", "failed", "unjudged", "tool failures", "step failures"] | None = (
        None
    )

    def condition(self) -> tuple[str, dict[str, str]]:
        """Return it as SQL over the rows ``t`` of the view ``trajectories``, with its parameters."""
        said = self.model_dump(exclude_none=True)
        outcome = said.pop("outcome", None)
        conditions = ["true" if outcome is None else f"({OUTCOMES[outcome]})"]
        conditions += [
            f"t.{'tenant_id' if name == 'tenant' else name} = ${name}" for name in sorted(said)
        ]
        return " AND ".join(conditions), said


class ReviewQueueSpec(StrictModel):
    """What is asked about which conversations."""

    match: QueueMatch = QueueMatch()
    questions: tuple[Question, ...] = Field(min_length=1, max_length=20)

    @model_validator(mode="after")
    def _asks_each_once(self) -> Self:
        if len({one.name for one in self.questions}) < len(self.questions):
            raise ValueError("each question has a name of its own")
        if not any(one.required for one in self.questions):
            raise ValueError(
                "one question is required, or nobody knows when a conversation is done"
            )
        return self


class ReviewQueue(Document):
    """A document of kind ``ReviewQueue``."""

    kind: Literal["ReviewQueue"]
    spec: ReviewQueueSpec

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the questions without which a conversation is not done."""
        return tuple(one.name for one in self.spec.questions if one.required)

    @property
    def one_click(self) -> Question | None:
        """The only question, where one click answers it."""
        first, *more = self.spec.questions
        return first if not more and first.options else None

    def signals(self, given: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Return what answers are as signals.

        Raises:
            ConfigurationError: one is wrong or missing, or answers nothing that was asked.
        """
        said = {name: text.strip() for name, text in given.items() if text.strip()}
        asked = {one.name: one for one in self.spec.questions}
        if strange := sorted(said.keys() - asked.keys()):
            raise ConfigurationError(
                f"{self.name} does not ask {', '.join(strange)[:100]}; it asks {', '.join(asked)}"
            )
        if missing := [name for name in self.required if name not in said]:
            raise ConfigurationError(f"still to be answered: {', '.join(missing)}")
        return [
            {"name": name, **asked[name].signal(text)}
            for name, text in sorted(said.items(), key=lambda one: [*asked].index(one[0]))
        ]


SUCCESS_QUEUE = ReviewQueue.model_validate(
    {
        "apiVersion": "headrace/v1",
        "kind": "ReviewQueue",
        "metadata": {"name": "success", "description": "Every conversation, by whether it went right."},
        "spec": {
            "questions": [
                {"name": "success", "ask": "Did the agent do what it was asked?", "type": "yes_no"}
            ]
        },
    }
)  # fmt: skip
"""The queue that is always there."""


def queues_of(app: AppContext) -> list[ReviewQueue]:
    """Return the queues of an installation, the one that is always there first.

    Raises:
        ConfigurationError: a document is wrong, or two have one name.
    """
    found = [SUCCESS_QUEUE]
    found += [load_document(ReviewQueue, path) for path in app.settings.console.queues]
    names = [one.name for one in found]
    for name in {*names}:
        if names.count(name) > 1:
            raise ConfigurationError(f"console.queues: {name!r} is the name of more than one queue")
    return found


def queue_of(app: AppContext, name: str) -> ReviewQueue:
    """Return a queue by its name.

    Raises:
        ConfigurationError: there is none of this name.
    """
    found = {one.name: one for one in queues_of(app)}
    if name not in found:
        raise ConfigurationError(f"no queue {name!r}; there are: {', '.join(found)}")
    return found[name]
