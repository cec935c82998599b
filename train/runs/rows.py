"""Pre-tokenised training rows: what the model saw, with loss only on what the assistant said.

All recipes mask with this one function. It asks one thing of a chat template: a conversation's beginning is
rendered the same way whether or not more follows. It renders twice for each trained assistant message. One is the
prompt as the model saw it (with the generation prompt), the other the conversation up to and with the message. The
model learns the difference, its end-of-turn token included. A template that drops old reasoning does not keep the
beginning; then the message gets a row of its own. Where even that is impossible, the reason is counted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from train.chat import ChatMessage
from train.chat_template import ChatTemplate, TemplateRefusedError, Tokenizer

IGNORED = -100
"""The label that the loss leaves out."""


class TrainingRow(NamedTuple):
    """One row for a trainer: equal lengths, ``labels`` is ``IGNORED`` where there is no loss."""

    input_ids: list[int]
    labels: list[int]


@dataclass(frozen=True, slots=True)
class MaskOutcome:
    """The rows of one conversation, and which trained messages could not be had."""

    rows: tuple[TrainingRow, ...]
    dropped: tuple[str, ...] = ()
    """A fixed reason for each trained message without a row: prefix_unstable | boundary | too_long |
    special_token_in_content (text that would be read as a turn's end or beginning) | template_refused
    (the template raised an error) | not_rendered (it leaves out what the message says or calls, or an
    earlier call) | no_end_of_turn (no token ends it)."""


class Turn(NamedTuple):
    """One answer of the assistant and everything before it."""

    prompt_ids: list[int]
    completion_ids: list[int]


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """The turns of one conversation, and why some could not be had."""

    turns: tuple[Turn, ...]
    places: tuple[int, ...]
    """The index of each turn's message."""
    dropped: tuple[str, ...] = ()


class _Conversation:
    """One conversation as a template shows it up to each of its messages; each is rendered once."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[ChatMessage],
        tools: Sequence[dict[str, Any]],
    ) -> None:
        self.template = template
        self.messages = messages
        self._tools = tools
        self._texts: dict[tuple[int, bool], str | None] = {}

    def text(self, count: int, *, generation: bool) -> str:
        """Return the first ``count`` messages as they are shown.

        Raises:
            TemplateRefusedError: they cannot be shown.
        """
        key = (count, generation)
        if key not in self._texts:
            try:
                self._texts[key] = self.template.render(
                    self.messages[:count], self._tools, generation=generation
                )
            except TemplateRefusedError:
                self._texts[key] = None
        found = self._texts[key]
        if found is None:
            raise TemplateRefusedError
        return found

    def span(self, index: int) -> "_Span | str":
        """Return where the model spoke a message, end of turn included, or why nobody can tell."""
        if index == 0:
            return "prefix_unstable"
        try:
            prompt = self.text(index, generation=True)
            spoken = self.text(index + 1, generation=False)
        except TemplateRefusedError:
            return "template_refused"
        if not spoken.startswith(prompt):
            return "prefix_unstable"
        end = self.template.end_of_turn(spoken, len(prompt))
        return "no_end_of_turn" if end is None else _Span(len(prompt), end)

    def hidden_call(self) -> int:
        """Return the index of the first message whose calls are not shown; their number when all are."""
        for index, message in enumerate(self.messages):
            if message["role"] == "assistant" and message.get("tool_calls"):
                span = self.span(index)
                if isinstance(span, _Span):
                    shown = self.text(index + 1, generation=False)[span.begin : span.end]
                    if not self.template.shows_calls(message, shown):
                        return index
        return len(self.messages)


class Masker:
    """Renders and masks conversations for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, *, max_length: int = 2048) -> None:
        """Look at the tokenizer's template.

        Args:
            tokenizer: as the model has it.
            max_length: rows are cut after the last trained message that ends within this many tokens.
        """
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._template = ChatTemplate(tokenizer)

    def mask(
        self,
        messages: Sequence[ChatMessage],
        trained: Collection[int],
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> MaskOutcome:
        """Return rows in which exactly the messages at the indexes ``trained`` carry loss."""
        return self._mask(_Conversation(self._template, messages, tools), trained, tools)

    def turns(
        self,
        messages: Sequence[ChatMessage],
        trained: Collection[int],
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> TurnOutcome:
        """Return one prompt and answer for each trained message, its history in the prompt."""
        conversation = _Conversation(self._template, messages, tools)
        turns: list[Turn] = []
        places: list[int] = []
        dropped: list[str] = []
        for index in sorted(trained):
            outcome = self._mask(conversation, [index], tools)
            dropped.extend(outcome.dropped)
            turns.extend(_split(row) for row in outcome.rows)
            places.extend(index for _ in outcome.rows)
        return TurnOutcome(tuple(turns), tuple(places), tuple(dropped))

    def prompt_ids(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Return the tokens of a conversation with the generation prompt at its end.

        Raises:
            TemplateRefusedError: the template cannot show it.
        """
        return self._encode(self._template.render(messages, tools, generation=True))

    def spoken_ids(
        self, messages: Sequence[ChatMessage], *, tools: Sequence[dict[str, Any]] = ()
    ) -> list[int]:
        """Return the tokens of a conversation up to the end of its last turn, as its row has them.

        Raises:
            TemplateRefusedError: the template cannot show it.
        """
        text = self._template.render(messages, tools, generation=False)
        return self._encode(text[: self._template.end_of_turn(text, 0)])

    def forges(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] = ()) -> bool:
        """Tell whether a text of a conversation would be read as a turn's beginning or end."""
        return self._template.forges([messages, tools])

    def _mask(
        self,
        conversation: _Conversation,
        trained: Collection[int],
        tools: Sequence[dict[str, Any]],
    ) -> MaskOutcome:
        wanted = sorted(trained)
        for index in wanted:
            if conversation.messages[index]["role"] != "assistant":
                raise ValueError(f"message {index} is no assistant message and cannot be trained")
        if self.forges(conversation.messages, tools):
            return MaskOutcome(rows=(), dropped=("special_token_in_content",) * len(wanted))
        hidden = conversation.hidden_call()
        dropped = ["not_rendered" for index in wanted if index >= hidden]
        wanted = [index for index in wanted if index < hidden]
        rows: list[TrainingRow] = []
        while wanted:
            # The longest beginning first: its row also covers the earlier messages it keeps.
            last = wanted[-1]
            row, covered, reasons = self._row(conversation, wanted)
            if row is not None:
                rows.append(row)
            failed = {
                index
                for index, reason in reasons.items()
                if index == last or reason not in ("prefix_unstable", "boundary")
            }
            dropped.extend(reasons[index] for index in sorted(failed))
            wanted = [index for index in wanted if index not in covered and index not in failed]
        return MaskOutcome(rows=tuple(reversed(rows)), dropped=tuple(dropped))

    def _row(
        self, conversation: _Conversation, wanted: Sequence[int]
    ) -> tuple[TrainingRow | None, set[int], dict[int, str]]:
        """Mask one conversation; return its row, the messages it covers, and why others are not."""
        last = wanted[-1]
        try:
            whole = conversation.text(last + 1, generation=False)
        except TemplateRefusedError:
            return None, set(), {last: "template_refused"}
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
            span = conversation.span(index)
            if isinstance(span, str):
                reasons[index] = span
                continue
            spoken = conversation.text(index + 1, generation=False)
            first = starts.get(span.begin)
            after = starts.get(span.end, len(ids) if span.end == len(whole) else None)
            if whole[: span.end] != spoken[: span.end]:
                reasons[index] = "prefix_unstable"
            elif not self._template.shows(
                conversation.messages[index], spoken[span.begin : span.end]
            ):
                reasons[index] = "not_rendered"
            elif (
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
        return TrainingRow(ids[:length], labels[:length]), covered, reasons

    def _same_prompt(self, text: str, ids: list[int], offsets: Sequence[tuple[int, int]]) -> bool:
        """Whether the prompt alone has the tokens that it has within the whole conversation.

        Special tokens cut the text before anything else does, so it is enough to look at what
        follows the last one; only when that differs is the whole prompt looked at.
        """
        special = set(self.tokenizer.all_special_ids)
        anchor = next((i for i in range(len(ids) - 1, -1, -1) if ids[i] in special), 0)
        begin = offsets[anchor][0] if ids else 0
        return self._encode(text[begin:]) == ids[anchor:] or self._encode(text) == ids

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class _Span(NamedTuple):
    begin: int
    end: int


def _split(row: TrainingRow) -> Turn:
    """Split a row whose only learned span is at its end."""
    first = next(place for place, label in enumerate(row.labels) if label != IGNORED)
    return Turn(row.input_ids[:first], row.input_ids[first:])
