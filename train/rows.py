"""Pre-tokenised training rows: what the model saw, with loss only on what the assistant said.

This is the one masking function of all recipes. It needs nothing of a chat template but that
it renders a conversation's beginning the same way whether or not more follows: for each trained
assistant message it renders the prompt as the model saw it (with the generation prompt) and
the conversation up to and with the message, and what differs is what the model must learn, its
end-of-turn token included. Where the beginning is not kept (templates that drop old reasoning),
the message gets a row of its own; where even that is impossible, the reason is reported.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from train.chat import ChatMessage

IGNORED = -100
"""The label that the loss leaves out."""


class Masked(NamedTuple):
    """One row for a trainer: equal lengths, ``labels`` is ``IGNORED`` where there is no loss."""

    input_ids: list[int]
    labels: list[int]


class Tokenizer(Protocol):
    """The few things that masking needs of a Hugging Face tokenizer."""

    @property
    def all_special_tokens(self) -> list[str]: ...

    @property
    def all_special_ids(self) -> list[int]: ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...

    def __call__(self, text: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class MaskOutcome:
    """The rows of one conversation, and which trained messages could not be had."""

    rows: tuple[Masked, ...]
    dropped: tuple[str, ...] = ()
    """A fixed reason for each trained message without a row: prefix_unstable | boundary | too_long |
    special_token_in_content (text that would be read as a turn's end or beginning)."""


class Turn(NamedTuple):
    """One answer of the assistant and everything before it."""

    prompt_ids: list[int]
    completion_ids: list[int]


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The turns of one conversation, and why some could not be had."""

    turns: tuple[Turn, ...]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Masker:
    """Renders and masks conversations for one tokenizer."""

    tokenizer: Tokenizer
    max_length: int = 2048
    """Rows are cut after the last trained message that ends within this many tokens."""
    template_options: dict[str, Any] = field(default_factory=dict)
    """Further variables for the chat template."""

    def mask(
        self,
        messages: Sequence[ChatMessage],
        trained: Collection[int],
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> MaskOutcome:
        """Return rows in which exactly the messages at the indexes ``trained`` carry loss."""
        wanted = sorted(trained)
        for index in wanted:
            if messages[index]["role"] != "assistant":
                raise ValueError(f"message {index} is no assistant message and cannot be trained")
        if self._forges_special_tokens(messages):
            return MaskOutcome(rows=(), dropped=("special_token_in_content",) * len(wanted))
        rows: list[Masked] = []
        dropped: list[str] = []
        while wanted:
            # The longest beginning first: its row also covers the earlier messages it keeps.
            last = wanted[-1]
            row, covered, reasons = self._row(messages[: last + 1], wanted, tools)
            if row is not None:
                rows.append(row)
            failed = {
                index for index, reason in reasons.items() if index == last or reason == "too_long"
            }
            dropped.extend(reasons[index] for index in sorted(failed))
            wanted = [index for index in wanted if index not in covered and index not in failed]
        return MaskOutcome(rows=tuple(reversed(rows)), dropped=tuple(dropped))

    def turns(
        self,
        messages: Sequence[ChatMessage],
        trained: Collection[int],
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> TurnOutcome:
        """Return one prompt and answer for each trained message, its history in the prompt."""
        turns: list[Turn] = []
        dropped: list[str] = []
        for index in sorted(trained):
            outcome = self.mask(messages, [index], tools=tools)
            dropped.extend(outcome.dropped)
            turns.extend(_split(row) for row in outcome.rows)
        return TurnOutcome(tuple(turns), tuple(dropped))

    def prompt_ids(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Return the tokens of a conversation with the generation prompt at its end."""
        return self._encode(self._render(messages, tools, generation=True))

    def _row(
        self,
        messages: Sequence[ChatMessage],
        wanted: Sequence[int],
        tools: Sequence[dict[str, Any]],
    ) -> tuple[Masked | None, set[int], dict[int, str]]:
        """Mask one conversation; return its row, the messages it covers, and why others are not."""
        whole = self._render(messages, tools, generation=False)
        encoded = self.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
        starts = {
            begin: place
            for place, (begin, end) in reversed(list(enumerate(offsets)))
            if end > begin
        }
        labels = [IGNORED] * len(ids)
        covered: set[int] = set()
        reasons: dict[int, str] = {}
        length = 0
        for index in wanted:
            span = self._span(messages, index, tools, whole)
            if span is None:
                reasons[index] = "prefix_unstable"
                continue
            first = starts.get(span.begin)
            after = starts.get(span.end, len(ids) if span.end == len(whole) else None)
            if (
                first is None
                or after is None
                or not self._same_prompt(whole[: span.begin], ids[:first], offsets)
            ):
                reasons[index] = "boundary"
            elif after > self.max_length:
                reasons[index] = "too_long"
            else:
                labels[first:after] = ids[first:after]
                covered.add(index)
                length = max(length, after)
        if not covered:
            return None, covered, reasons
        return Masked(ids[:length], labels[:length]), covered, reasons

    def _same_prompt(self, text: str, ids: list[int], offsets: Sequence[tuple[int, int]]) -> bool:
        """Whether the prompt alone has the tokens that it has within the whole conversation.

        Special tokens cut the text before anything else does, so it is enough to look at what
        follows the last one; only when that differs is the whole prompt looked at.
        """
        special = set(self.tokenizer.all_special_ids)
        anchor = next((i for i in range(len(ids) - 1, -1, -1) if ids[i] in special), 0)
        begin = offsets[anchor][0] if ids else 0
        return self._encode(text[begin:]) == ids[anchor:] or self._encode(text) == ids

    def _span(
        self,
        messages: Sequence[ChatMessage],
        index: int,
        tools: Sequence[dict[str, Any]],
        whole: str,
    ) -> "_Span | None":
        """Return where in the rendered text the model spoke, end of turn included."""
        if index == 0:
            return None
        prompt = self._render(messages[:index], tools, generation=True)
        spoken = self._render(messages[: index + 1], tools, generation=False)
        if not spoken.startswith(prompt):
            return None
        end = self._end_of_turn(spoken, len(prompt))
        if end <= len(prompt) or whole[:end] != spoken[:end]:
            return None
        return _Span(len(prompt), end)

    def _end_of_turn(self, spoken: str, begin: int) -> int:
        """Return where the turn ends: after its last special token if only white space follows.

        A template may render a new line after the end-of-turn token; at inference the model has
        stopped before it, so it must not be learned.
        """
        ends = [
            place + len(token)
            for token in self.tokenizer.all_special_tokens
            if (place := spoken.rfind(token, begin)) >= 0
        ]
        last = max(ends, default=len(spoken))
        return len(spoken) if spoken[last:].strip() else last

    def _render(
        self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]], *, generation: bool
    ) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=generation,
                **self.template_options,
            )
        )

    def _forges_special_tokens(self, messages: Sequence[ChatMessage]) -> bool:
        tokens = self.tokenizer.all_special_tokens
        return any(token in text for text in _texts(list(messages)) for token in tokens)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class _Span(NamedTuple):
    begin: int
    end: int


def _split(row: Masked) -> Turn:
    """Split a row whose only learned span is at its end."""
    first = next(place for place, label in enumerate(row.labels) if label != IGNORED)
    return Turn(row.input_ids[:first], row.input_ids[first:])


def _texts(value: Any) -> Iterator[str]:
    """Every string inside a JSON-like value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for half in pair for text in _texts(half))
    elif isinstance(value, list):
        yield from (text for entry in value for text in _texts(entry))
