"""Calls, assemblies and governors for tests, with a small real redactor of their own."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from governance.consent import MemoryConsents
from governance.governor import Governor
from governance.policy import PolicyBundle, load_bundle
from governance.quality import RowGate
from governance.redact.pseudonym import subject_id
from governance.redact.report import (
    RedactedMessage,
    RedactedPlace,
    RedactedText,
    RedactionError,
    RedactionReport,
    RedactionScope,
)
from governance.stored_content import MemoryKnownContent
from trajectory.assembly.result import Assembly, PlacedCall, PlacedFeedback, PlacedLink
from trajectory.call import Call, CallKind
from trajectory.canonical import JsonValue
from trajectory.exchange import (
    ClientIdentity,
    Exchange,
    ExchangeOutcome,
    Feedback,
    HttpRequest,
    HttpResponse,
    SpoolPosition,
    feedback_name,
)
from trajectory.message import Message, TextPart

T0 = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KEY = b"k" * 32
ALL_PURPOSES = ("debug", "eval", "train_sft", "train_preference", "train_rl")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")


class MailRedactor:
    """Redacts mail addresses everywhere; refuses text that says ``BOOM``."""

    def redact_messages(
        self, messages: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        return [self._message(message, scope) for message in messages]

    def redact_stored(
        self, said: Sequence[Message], stored: Sequence[Message], *, scope: RedactionScope
    ) -> list[RedactedMessage]:
        del said
        return self.redact_messages(stored, scope=scope)

    def redact_text(self, text: str, *, scope: RedactionScope, path: str = "") -> RedactedText:
        found: list[tuple[str, str]] = []
        clean = str(self._walk(text, path, scope, found))
        return RedactedText(clean, _report(found), _subjects(found))

    def _message(self, message: Message, scope: RedactionScope) -> RedactedMessage:
        found: list[tuple[str, str]] = []
        said: Any = self._walk(message.to_json()["parts"], "/parts", scope, found)
        clean = Message.from_json({"role": message.role, "parts": said})
        return RedactedMessage(clean, _report(found), _subjects(found))

    def _walk(
        self, value: JsonValue, path: str, scope: RedactionScope, found: list[tuple[str, str]]
    ) -> JsonValue:
        if isinstance(value, dict):
            return {k: self._walk(v, f"{path}/{k}", scope, found) for k, v in value.items()}
        if isinstance(value, list):
            return [self._walk(v, f"{path}/{i}", scope, found) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        if "BOOM" in value:
            raise RedactionError("a detector failed")
        found += [
            (path, subject_id(KEY, scope.tenant_id, match.group()))
            for match in _MAIL.finditer(value)
        ]
        return _MAIL.sub("<EMAIL_ADDRESS_abc123>", value)


def _report(found: Sequence[tuple[str, str]]) -> RedactionReport:
    if not found:
        return RedactionReport()
    places = tuple(RedactedPlace("EMAIL_ADDRESS", path, 0, 5, "mail") for path, _ in found)
    return RedactionReport({"EMAIL_ADDRESS": len(found)}, places, {"mail": "1"})


def _subjects(found: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(subject for _, subject in found))


def user(text: str) -> Message:
    return Message("user", (TextPart(text),))


def assistant(text: str) -> Message:
    return Message("assistant", (TextPart(text),))


def system(text: str) -> Message:
    return Message("system", (TextPart(text),))


def exchange(number: int = 1, **changes: Any) -> Exchange:
    client = ClientIdentity("acme", "shop", "prod", "key1", ALL_PURPOSES)
    client = replace(client, **changes.pop("client", {}))
    headers = tuple(changes.pop("headers", ()))
    status = changes.pop("status", 200)
    started = T0 + timedelta(seconds=number)
    base = Exchange(
        exchange_id=f"{number:032x}",
        client=client,
        route="openai",
        mode="base_url",
        upstream="https://api.example:443",
        started_at=started,
        first_byte_at=started + timedelta(milliseconds=200),
        ended_at=started + timedelta(milliseconds=900),
        request=HttpRequest("POST", "/v1/chat/completions", "", headers, b"{}"),
        response=None if status is None else HttpResponse(status, (), b"{}"),
        outcome=ExchangeOutcome.COMPLETE,
        position=SpoolPosition("w1", 0, number),
    )
    return replace(base, **changes)


def call(
    number: int = 1, context: Sequence[Message] = (), output: Any = "done", **changes: Any
) -> Call:
    on_wire = {
        k: changes.pop(k)
        for k in ("client", "headers", "status", "outcome", "ended_at")
        if k in changes
    }
    answer = assistant(output) if isinstance(output, str) else output
    base = Call(
        exchange=exchange(number, **on_wire),
        dialect="openai.chat",
        kind=CallKind.MODEL,
        context=tuple(context) or (user("hello"),),
        output=answer,
        model_requested="small",
        model_served="small-1",
        response_id=f"chatcmpl-{number}",
        finish_reason="stop" if answer is not None else None,
    )
    return replace(base, **changes)


def placed(one: Call, step: str = "", trajectory: str = "t1", **changes: Any) -> PlacedCall:
    base = PlacedCall(
        call=one,
        trajectory_id=trajectory,
        step_id=step or f"step{int(one.exchange.exchange_id, 16)}",
        step_index=0,
        parent_step_id=None,
        branch=0,
        role_in_graph="agent",
        key_source="prefix",
        context_keep=0,
        new_messages=one.context,
    )
    return replace(base, **changes)


def child(one: Call, parent: PlacedCall, **changes: Any) -> PlacedCall:
    keep = len(parent.call.context) + 1
    return placed(
        one,
        trajectory=parent.trajectory_id,
        step_index=parent.step_index + 1,
        parent_step_id=parent.step_id,
        context_keep=keep,
        new_messages=one.context[keep:],
        **changes,
    )


def assembly(
    *calls: PlacedCall,
    unplaced: Sequence[Call] = (),
    links: Sequence[PlacedLink] = (),
    feedback: Sequence[PlacedFeedback] = (),
) -> Assembly:
    return Assembly(tuple(calls), tuple(unplaced), tuple(links), tuple(feedback))


def feedback(target: str = "chatcmpl-1", step: str | None = "step1", **body: Any) -> PlacedFeedback:
    client = ClientIdentity("acme", "shop", "prod", "key1", body.pop("purposes", ALL_PURPOSES))
    kind, key = body.pop("target_kind", "response"), body.pop("key", None)
    said = {"name": "success", "value": 1.0, "source_kind": "verifier", "source": "tests", **body}
    name = key or feedback_name("acme", kind, target, said)
    raw = Feedback(name, client, NOW, kind, target, said, SpoolPosition("w1", 0, 9))
    return PlacedFeedback(raw, "t1" if step else None, step)


def bundle(folder: Path | None = None, **documents: str) -> PolicyBundle:
    """Return the default bundle with the ``spec`` of some documents replaced (YAML flow style)."""
    default = load_bundle()
    if not documents or folder is None:
        return default
    for kind in ("capture", "consent", "retention", "dedup", "quality", "redaction"):
        text = (default.path / f"{kind}.yaml").read_text(encoding="utf-8")
        if kind in documents:
            text = (
                f"apiVersion: headrace/v1\nkind: {kind.title()}\nmetadata: {{name: test}}\n"
                f"spec: {documents[kind]}\n"
            )
        (folder / f"{kind}.yaml").write_text(text, encoding="utf-8")
    return load_bundle(folder)


def governor(policy: PolicyBundle | None = None, **changes: Any) -> Governor:
    chosen = policy or bundle()
    settings: dict[str, Any] = {
        "message_key": KEY,
        "pseudonym_key": KEY,
        "known": MemoryKnownContent(),
        "consents": MemoryConsents(),
        "clock": lambda: NOW,
        "gate": RowGate(chosen.quality.spec),
        **changes,
    }
    redactor = settings.pop("redactor", None) or MailRedactor()
    return Governor(chosen, redactor, **settings)
