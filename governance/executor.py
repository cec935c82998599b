"""Where redaction runs: in this process, or wherever an engine carries it to.

Redaction is a pure function of policy, key and the messages of one trajectory, and nearly all of
governance's time. So it is what an engine takes away from the governing process; everything that
has an order (assembly, repetitions, the lake) stays where it is, and the rows come out the same.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from governance.redact.report import RedactedMessage, RedactionScope
from governance.redact.trajectory import CallRedactor
from trajectory.message import Message


class RedactionRequest(NamedTuple):
    """Messages of one trajectory, to be redacted together."""

    scope: RedactionScope
    messages: tuple[Message, ...]


type RedactionAnswer = Sequence[RedactedMessage] | None
"""The messages redacted, in their order; None when redaction refused or failed."""


class RedactionExecutor(Protocol):
    """Redacts the trajectories of a batch, in any order and anywhere."""

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """Return one answer for each request.

        Raises:
            RetryableError: there was nowhere to run it; nothing is judged, the batch waits.
        """
        ...


class InlineRedaction:
    """Redacts one trajectory after the other in this process."""

    def __init__(self, redactor: CallRedactor) -> None:
        """Redact with ``redactor``."""
        self._redactor = redactor

    def redact_all(self, requests: Sequence[RedactionRequest]) -> list[RedactionAnswer]:
        """See :class:`RedactionExecutor`."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: RedactionRequest) -> RedactionAnswer:
        try:
            return self._redactor.redact_messages(request.messages, scope=request.scope)
        except Exception:  # noqa: BLE001 (fail closed: the governor tries, and holds, call by call)
            return None
