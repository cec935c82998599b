"""The system prompt of a request, with edits and blocks."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from proxy.artifacts.placed_json import PlacedValue, dumped
from proxy.artifacts.said_texts import texts_of

_EMPTY_LINE = r"\n\n"


class SystemPrompt:
    """The system prompt of a request: its contents, and where they stand."""

    def __init__(
        self,
        written: Sequence[PlacedValue],
        home: PlacedValue,
        replaced: Mapping[int, Any] | None = None,
    ) -> None:
        """Tell it.

        Args:
            written: its contents as their client wrote them.
            home: where one goes in if there is none, as JSON with ``%s`` in its place.
            replaced: what stands in the place of some of them.
        """
        self._written = written
        self._home = home
        self._replaced = replaced or {}
        self._contents = [self._replaced.get(at, span.value) for at, span in enumerate(written)]

    @cached_property
    def text(self) -> str:
        """All of it."""
        return "\n\n".join([text for each in self._contents for text in texts_of(each)])

    @cached_property
    def edits(self) -> list[PlacedValue]:
        """What is replaced, as JSON; what closes a content stays."""
        return [
            PlacedValue(start, end - 1, dumped(self._contents[at])[:-1])
            for at, (start, end, _) in enumerate(self._written)
            if at in self._replaced
        ]

    @property
    def takes_blocks(self) -> bool:
        """Whether blocks can stand behind it: it is a text, or a list of parts."""
        return not self._contents or isinstance(self._contents[-1], str | list | None)

    def behind(self, blocks: Sequence[str]) -> PlacedValue:
        """Return what puts blocks behind it."""
        if not self._written:
            start, end, home = self._home
            return PlacedValue(start, end, home % _behind(None, blocks))
        content, (start, end, _) = self._contents[-1], self._written[-1]
        return PlacedValue(
            start if content is None else end - 1,
            end if content is None else end - 1,
            _behind(content, blocks),
        )

    def replace(self, old: str, new: str) -> "SystemPrompt | None":
        """Return it with another text in the place of the first such one; None where there is none."""
        for at, content in enumerate(self._contents):
            fresh = _replaced(content, old, new)
            if fresh is not None:
                return SystemPrompt(self._written, self._home, {**self._replaced, at: fresh})
        return None


def _replaced(content: Any, old: str, new: str) -> Any:
    """Return a content with another text in the place of the first such one; None where there is none."""
    if isinstance(content, str):
        return content.replace(old, new, 1) if old in content else None
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if old in next(iter(texts_of([part])), ""):
            fresh = {**part, "text": part["text"].replace(old, new, 1)}
            return [*content[:number], fresh, *content[number + 1 :]]
    return None


def _behind(content: Any, appended: Sequence[str]) -> str:
    """Return what goes in before the end of a content, or in the place of none."""
    if isinstance(content, list):
        parts = [f'{{"type":"text","text":"{text}"}}' for text in appended]
        return ",".join(("", *parts) if content else parts)
    if content is None:
        return f'"{_EMPTY_LINE.join(appended)}"'
    return _EMPTY_LINE.join(("", *appended) if content else appended)
