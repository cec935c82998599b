"""What a call leaves of its conversation for the calls that go on with what its provider keeps."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from proxy.inline.answers import CallSurrogates, Receivers
from proxy.inline.batches import BatchRequest, MessageBatchRequest
from proxy.inline.files import FileRequest
from proxy.inline.kept_histories import (
    HistoryOwner,
    KeptHistories,
    KeptHistory,
    LongHistoryError,
    SurrogateConflictError,
    check_length,
)
from proxy.inline.openai import ChatRequest, ConversationRequest, calls_and_end
from proxy.inline.requests import BareRequest, WireRequest
from proxy.inline.restorer import IssuedSurrogates
from trajectory.errors import IntegrityError
from trajectory.surrogate import PseudonymisedText

ANSWERED_WITHIN = 24 * 3600.0
"""Seconds that a batch may take: what it needs is kept for so much longer."""
_DELETED = frozenset({"message_batch_deleted", "file_deleted"})
"""Types of Anthropic's answers that tell of it."""


@dataclass(slots=True)
class HistoryKeeper:
    """Keeps what one call's surrogates stand for, under the ids of what its provider keeps."""

    histories: KeptHistories
    owner: HistoryOwner
    request: WireRequest
    told: PseudonymisedText
    before: KeptHistory
    """What was known of its conversation; its scope is that of the request."""
    lost: Callable[[Exception], None]
    """Told why a history could not be kept."""
    requests: str = ""
    """Under which those of the requests in it are kept."""
    _kept: KeptHistory | None = None

    def __post_init__(self) -> None:
        # Who looks a response up makes nothing last longer, but for what it says that is new.
        self._kept = self.before if isinstance(self.request, BareRequest) else None

    def sends(self) -> bool:
        """Add the request to its conversation before it is sent; return whether that is still there.

        The provider has it from then on, whatever becomes of its answer and of this process.

        Raises:
            SurrogateConflictError: another request has given one of its surrogates to another value.
            LongHistoryError: the conversation or the file is too long.
        """
        named = self.request.conversation()
        if isinstance(self.request, FileRequest):
            check_length(self._history())
        return named is None or self.histories.merge(self.owner, named, self._history())

    def keep_request(self, name: str, surrogates: CallSurrogates) -> None:
        """Keep the history of a request within another one, until its answer is looked up."""
        history = replace(
            self._history(), earned=surrogates.earned(), in_json=self.request.wants_json()
        )
        self.histories.keep(self.owner, name, history, longer=ANSWERED_WITHIN)

    def inner_of(self, to: Receivers) -> Callable[[str], CallSurrogates | None] | None:
        """Return what finds the surrogates of an object in a list by its id, or of a request by its name."""
        request, requests = self.request, self.before.requests
        if not isinstance(request, BareRequest) or not (requests or request.asks_for_list):
            return None
        within = "" if request.asks_for_list else f"{requests}/"

        def find(name: str) -> CallSurrogates | None:
            known = self.histories.find(self.owner, f"{within}{name}")
            return None if known is None else self._known(known, to)

        return find

    def _known(self, known: KeptHistory, to: Receivers) -> CallSurrogates:
        """Return the surrogates of a part of what is looked up, which keep what it says that is new."""
        request = BareRequest(b"")
        request.before = known
        told = PseudonymisedText(
            "",
            {**known.values},
            {**known.entities},
            frozenset(known.numbers),
            known.subjects,
        )
        issued = IssuedSurrogates(told.issued, numbers=told.numbers, entities=told.entities)
        keep = HistoryKeeper(self.histories, self.owner, request, told, known, self.lost)
        return CallSurrogates(request, issued, to, b"", earned=known.earned, keep=keep)

    def __call__(self, surrogates: CallSurrogates, answer: dict[str, Any]) -> None:
        """Take an object of the answer; one that the provider keeps is kept here, too."""
        try:
            self._take(surrogates, answer)
        except (
            OSError,
            sqlite3.Error,
            IntegrityError,
            LongHistoryError,
            SurrogateConflictError,
        ) as error:
            self.lost(error)  # the answer goes on; who goes on from it is refused

    def _take(self, surrogates: CallSurrogates, answer: dict[str, Any]) -> None:
        about, named = self.request.about, answer.get("id")
        if not isinstance(named, str):
            return
        if answer.get("deleted") is True or answer.get("type") in _DELETED:
            if about is not None and (about.id, about.part) == (named, ""):
                self.histories.drop(self.owner, named)
        elif answer.get("object") == "response":
            self._keep_response(surrogates, named, answer)
        elif isinstance(self.request, ConversationRequest) and about is None:
            scope = self.before.scope if self.told.issued else ("conversation", named)
            self.histories.keep(self.owner, named, replace(self._history(), scope=scope))
        elif isinstance(self.request, ChatRequest):
            earned, in_json = surrogates.earned(), self.request.wants_json()
            history = replace(self._history(), earned=earned, in_json=in_json)
            self.histories.keep(self.owner, named, history)
        elif isinstance(self.request, FileRequest):
            in_json = self.request.holds_json
            history = replace(self._history(), in_json=in_json, requests=self.requests)
            self.histories.keep(self.owner, named, history, longer=ANSWERED_WITHIN)
        elif isinstance(self.request, MessageBatchRequest):
            history = replace(self._history(), requests=self.requests, is_answers=True)
            self.histories.keep(self.owner, named, history, longer=ANSWERED_WITHIN)
        elif answer.get("object") == "batch":
            self._keep_batch(named, answer)

    def _keep_batch(self, named: str, batch: dict[str, Any]) -> None:
        """Keep which files hold the answers to the requests of a batch."""
        history = KeptHistory(requests=self.before.requests, is_answers=True)
        if not history.requests:
            return
        if isinstance(self.request, BatchRequest):
            history = replace(self._history(), requests=history.requests)
            self.histories.keep(self.owner, named, history, longer=ANSWERED_WITHIN)
        for field in ("output_file_id", "error_file_id"):
            answers = batch.get(field)
            if isinstance(answers, str) and self.histories.find(self.owner, answers) is None:
                self.histories.keep(self.owner, answers, replace(history, is_answers=True))

    def _keep_response(
        self, surrogates: CallSurrogates, named: str, response: dict[str, Any]
    ) -> None:
        calls, asked = calls_and_end(response)
        looks_up = isinstance(self.request, BareRequest)
        conversation = self.before.conversation if looks_up else self.request.conversation() or ""
        history = replace(
            self._history(),
            earned=surrogates.earned(),
            calls={**self.before.calls, **calls},
            asked=asked,
            in_json=self.request.wants_json(),
            conversation=conversation,
        )
        if history == self._kept:
            return
        self.histories.keep(self.owner, named, history)
        if conversation:
            self.histories.merge(self.owner, conversation, history)
        self._kept = history

    def _history(self) -> KeptHistory:
        """Return what the request adds to what was known before it."""
        told = self.told
        return replace(
            self.before,
            values=told.issued,
            entities=told.entities,
            numbers=tuple(sorted(told.numbers)),
            subjects=told.subjects,
            conversation="",
            requests="",
            is_answers=False,
        )
