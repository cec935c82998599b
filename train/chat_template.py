"""A tokenizer's chat template: how it shows a conversation, what it leaves out, and where a turn ends.

Templates differ more than their form suggests. Some raise an error for two calls in one message or for a
system message. Some show no tool calls at all. Some end a turn with the token that begins the next one.
Training must know which of these a template does.
"""

import ctypes
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from train.chat import ChatMessage

_SECONDS = 10.0
"""A template shows the longest of conversations in milliseconds; one that loops never ends by itself."""
_OVERRUNS = 3
"""After so many a template is not tried again: each of ten thousand rows would take its time."""
_THINKING = re.compile(r"</?think>")


class TemplateRefusedError(ValueError):
    """The chat template cannot show this conversation."""


class Tokenizer(Protocol):
    """The few things that masking needs of a Hugging Face tokenizer."""

    @property
    def all_special_tokens(self) -> list[str]: ...

    @property
    def all_special_ids(self) -> list[int]: ...

    @property
    def added_tokens_decoder(self) -> dict[int, Any]: ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...

    def __call__(self, text: str, **options: Any) -> Any: ...


class ChatTemplate:
    """The chat template of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, *, seconds: float = _SECONDS) -> None:
        """Look at how the template shows one question and one answer, each in so many ``seconds`` at most."""
        self._tokenizer = tokenizer
        self._seconds = seconds
        self._overruns = 0
        self._controls = _control_tokens(tokenizer, self._frame())
        choices = sorted(map(re.escape, self._controls), key=len, reverse=True)
        self._control = re.compile("|".join(choices) or r"(?!)")
        self._closing = self._find_closing()

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[dict[str, Any]] = (),
        *,
        generation: bool,
    ) -> str:
        """Return a conversation as the model is shown it, with or without the generation prompt.

        Raises:
            TemplateRefusedError: the template cannot show it.
        """

        def show() -> str:
            shown = self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                tokenize=False,
                add_generation_prompt=generation,
            )
            shown.encode()
            return str(shown)

        if self._overruns >= _OVERRUNS:
            raise TemplateRefusedError(_OverrunError.__name__)
        try:
            return _within(self._seconds, show)
        except _OverrunError as error:
            self._overruns += 1
            raise TemplateRefusedError(type(error).__name__) from None
        except Exception as error:  # noqa: BLE001 - a template is a program: it raises what it likes
            # Its text may hold content.
            raise TemplateRefusedError(type(error).__name__) from None

    @property
    def ends_turns(self) -> bool:
        """Whether a token ends an answer; after one that none ends, a model could not learn to stop."""
        return bool(self._closing)

    @property
    def end_token(self) -> str | None:
        """The token that ends an answer; it need not be the one that ends a text."""
        tokens = self._control.findall(self._closing)
        return str(tokens[-1]) if tokens else None

    def forges(self, value: Any) -> bool:
        """Tell whether a text in a JSON-like value would be read as a turn's beginning or end."""
        return any(self._control.search(text) for text in _texts(value))

    def end_of_turn(self, spoken: str, begin: int) -> int | None:
        """Return where the turn that begins at ``begin`` ends; None when no token ends it.

        A template may show more after the token that ends a turn (a new line, the token that ends a
        text); at inference the model has stopped before it, so it must not be learned.
        """
        ends: list[int] = []
        end = len(spoken.rstrip())
        while (start := self._control_before(spoken, end)) is not None and start >= begin:
            ends.append(end)
            end = len(spoken[:start].rstrip())
        closed = [end for end in ends if spoken.endswith(self._closing, begin, end)]
        return min(closed) if self._closing and closed else max(ends, default=None)

    def shows(self, message: ChatMessage, text: str) -> bool:
        """Tell whether a text that was rendered holds what a message says and calls."""
        said = str(message.get("content") or "")
        pieces = [piece.strip() for piece in _THINKING.split(said)]
        return all(piece in text for piece in pieces) and self.shows_calls(message, text)

    def shows_calls(self, message: ChatMessage, text: str) -> bool:
        """Tell whether a text that was rendered holds a message's calls: each name and argument."""
        functions = [call["function"] for call in message.get("tool_calls") or ()]
        names = [function["name"] for function in functions]
        return all(text.count(name) >= names.count(name) for name in names) and all(
            any(form in text for form in _forms(leaf))
            for function in functions
            for leaf in _leaves(function["arguments"])
        )

    def _frame(self) -> tuple[str, str]:
        """Return what is shown of one question: the question, and the generation prompt after it."""
        question = [{"role": "user", "content": _QUESTION}]
        try:
            asked = self.render(question, generation=False)
            prompt = self.render(question, generation=True)
        except TemplateRefusedError:
            return "", ""
        return asked, prompt[len(_shared(asked, prompt)) :]

    def _find_closing(self) -> str:
        """Return the token or tokens that end an answer; empty when there are none.

        It compares what follows an answer at the end and before another question. What both share ends the turn;
        what only the last one has may end the text instead.
        """
        question = {"role": "user", "content": _QUESTION}
        answer = {"role": "assistant", "content": _ANSWER}
        try:
            last = self.render([question, answer], generation=False).rpartition(_ANSWER)[2]
        except TemplateRefusedError:
            return ""
        try:
            more = self.render([question, answer, question], generation=False)
        except TemplateRefusedError:
            more = last
        shared = _shared(last, more.rpartition(_ANSWER)[2])
        for tail in (shared, last):
            tokens, place = "", len(tail) - len(tail.lstrip())
            while found := self._control.match(tail, place):
                tokens, place = tokens + found.group(), found.end()
            if tokens:
                return tokens
        return ""

    def _control_before(self, text: str, end: int) -> int | None:
        """Return where the control token begins that ends at ``end``."""
        found = [token for token in self._controls if text.endswith(token, 0, end)]
        return end - len(max(found, key=len)) if found else None


class _OverrunError(BaseException):
    """A template took too long; no template can catch it."""


def _within[T](seconds: float, work: Callable[[], T]) -> T:
    """Return what ``work`` returns; it is ended where it takes longer, in whatever thread it runs.

    Raises:
        _OverrunError: it was ended.
    """
    thread, lock, running = threading.get_ident(), threading.Lock(), True

    def end() -> None:
        with lock:
            if running:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(_OverrunError)
                )

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return work()
    finally:
        with lock:
            running = False
        timer.cancel()


_QUESTION, _ANSWER = "Which way?", "Downstream."


def _shared(one: str, other: str) -> str:
    """Return what two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    length = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    return one[:length]


def _control_tokens(tokenizer: Tokenizer, frame: tuple[str, str]) -> frozenset[str]:
    """Return the tokens that make turns: special ones, and those that the template puts around a text.

    Not every one of them is among ``all_special_tokens``: the headers of Llama 3 are not.
    """
    added = list(tokenizer.added_tokens_decoder.values())
    asked, prompt = frame
    around = {token.content for token in added if token.content in asked}
    begins = [place for token in added if (place := prompt.find(token.content)) >= 0]
    header = {
        token.content for token in added if begins and prompt.startswith(token.content, min(begins))
    }
    special = {token.content for token in added if token.special}
    return frozenset({*special, *around, *header, *tokenizer.all_special_tokens} - {""})


def _texts(value: Any) -> Iterator[str]:
    """Every string inside a JSON-like value, keys included, however deep it is."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            waiting += one


def _leaves(value: Any) -> Iterator[str | int]:
    """Every text and whole number inside a JSON-like value; what else there is, templates spell as they like."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str | int) and not isinstance(one, bool):
            yield one


def _forms(leaf: str | int) -> Iterator[str]:
    """How templates write a value: as it is, or as a text of JSON or Python."""
    if isinstance(leaf, int):
        yield str(leaf)
        return
    yield leaf.strip()
    yield json.dumps(leaf, ensure_ascii=False)[1:-1].strip()
    yield json.dumps(leaf)[1:-1].strip()
    yield repr(leaf)[1:-1].strip()
