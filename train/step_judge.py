"""A judge of steps: scores what the agent did step by step, as feedback that goes through governance.

The verdicts are process rewards ("Let's Verify Step by Step", arXiv 2305.20050). They are signals about
steps like any other; ``lakehouse.credit`` makes credit of them (``process_grpo``), under a gate if wanted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from train.chat import ChatMessage, UnrenderableError
from train.rewards import RewardFunction, score_episode
from train.substrate.content import ContentStore
from train.types import ScoredItem
from trajectory.canonical import JsonObject, content_hash


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """What a judge says of one step."""

    tenant_id: str
    step_id: str
    value: float

    def feedback(self, *, name: str, judge: str) -> JsonObject:
        """Return it as an item of the feedback API; a verdict that is sent again counts once."""
        return {
            "step_id": self.step_id,
            "name": name,
            "value": self.value,
            "source_kind": "judge",
            "source": judge,
            "idempotency_key": content_hash(
                [self.tenant_id, self.step_id, name, judge, self.value]
            ),
        }


def judge_steps(
    content: ContentStore,
    items: Sequence[ScoredItem],
    function: RewardFunction,
    judge: str,
    left_out: Counter[str],
) -> Iterator[StepVerdict]:
    """Yield a verdict on each step once, and count why others have none.

    The judge sees what the step was shown, then what the agent said and what its tools answered, up to
    its next step. Nothing later: hindsight would let it judge the outcome instead of the step.

    Args:
        content: of the items.
        items: whose steps are judged; a step that several hold is judged once.
        function: the judge; None means that it cannot tell.
        judge: its name.
        left_out: gets reason and number of what has no verdict.

    Raises:
        TrainingError: the judge failed, or gave something that is no finite number.
    """
    seen: set[tuple[str, str]] = set()
    for entry in items:
        item = entry.item
        try:
            conversation = content.conversation(item)
        except UnrenderableError as error:
            left_out[error.reason] += 1
            continue
        places = conversation.trained
        ends = (*places[1:], len(conversation.messages))
        for step_id, place, end in zip(item.step_ids, places, ends, strict=True):
            if (item.tenant_id, step_id) in seen:
                continue
            seen.add((item.tenant_id, step_id))
            answered = _answered(conversation.messages, place, end)
            value = score_episode(
                function,
                judge,
                conversation.messages[:place],
                conversation.messages[place:answered],
            )
            if value is None:
                left_out["judge_cannot_tell"] += 1
            else:
                yield StepVerdict(item.tenant_id, step_id, value)


def _answered(messages: Sequence[ChatMessage], place: int, end: int) -> int:
    """Return where the tools' answers to a step end: behind them others may speak."""
    at = place + 1
    while at < end and messages[at].get("role") == "tool":
        at += 1
    return at
