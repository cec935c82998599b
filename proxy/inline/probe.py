"""Probing an upstream with surrogates: does its model say them again whole, so that they can be restored."""

import asyncio
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config import Route, UpstreamChoice
from proxy.inline.answers import CallSurrogates
from proxy.inline.bodies import restorer_of
from proxy.inline.dialects import MessagesRequest
from proxy.inline.kept_histories import HistoryOwner
from proxy.inline.openai import ChatRequest
from proxy.inline.requests import WireRequest
from proxy.inline.route import InlineTerms, PseudonymisedCall, RouteInline
from proxy.telemetry.counters import Counters

_SECONDS = 60.0
VALUES = ("bo.madeup@madeup.example", "+1 212 555 0147", "4111 1111 1111 1111", "192.0.2.77")
"""Nobody's: the names of an example, a telephone of films, a test card, an address of documentation."""
_ASKS = (
    "Say the following line again, letter by letter and nothing else. Write to {}, call {}, take card "
    "{} from {}."
)
_PATHS: tuple[tuple[str, type[WireRequest]], ...] = (
    ("/v1/chat/completions", ChatRequest),
    ("/v1/messages", MessagesRequest),
)


@dataclass(frozen=True, slots=True)
class InlineProbe:
    """How an upstream copes with surrogates."""

    route: str
    upstream: str
    model: str
    values: int = len(VALUES)
    """So many made-up ones were in the request."""
    sent: int = 0
    """Of these went out as they are."""
    returned: int = 0
    """Of these came back."""
    returned_streamed: int = 0
    unknown: int = 0
    """How much in its answers looks like a surrogate and is none: torn or invented."""
    problem: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing went out, and all came back."""
        return not self.sent and self.returned == self.returned_streamed == self.values


def probe_inline(
    route: Route,
    choice: UpstreamChoice,
    terms: InlineTerms,
    *,
    model: str,
    upstream_ca: Path | None = None,
) -> InlineProbe:
    """Ask an upstream to say made-up values again, through surrogates, whole and streamed.

    Raises:
        ConfigurationError: the credential's source is missing or empty.
    """
    import httpx

    headers = {"content-type": "application/json"}
    if choice.credential is not None:
        headers[choice.credential.header] = choice.credential.header_value()
    context = ssl.create_default_context(cafile=str(upstream_ca) if upstream_ca else None)
    found: dict[str, Any] = {"route": route.name, "upstream": choice.url, "model": model}
    with httpx.Client(
        base_url=choice.url, headers=headers, timeout=_SECONDS, verify=context, trust_env=False
    ) as client:
        try:
            for path, read in _PATHS:
                status, facts = _ask(client, path, read, terms, model)
                if status not in (404, 405):
                    break
        except httpx.HTTPError as error:
            facts = {"problem": f"{type(error).__name__}: {error}"}
    return InlineProbe(**found, **facts)


def _ask(
    client: Any, path: str, read: type[WireRequest], terms: InlineTerms, model: str
) -> tuple[int, dict[str, Any]]:
    """Ask in one dialect; return the status, and what a probe says of it."""
    facts: dict[str, Any] = {"unknown": 0}
    for name, streamed in (("returned", False), ("returned_streamed", True)):
        said = [{"role": "user", "content": _ASKS.format(*VALUES)}]
        body = {"model": model, "max_tokens": 400, "stream": streamed, "messages": said}
        call = _pseudonymised(json.dumps(body).encode(), read, terms)
        if call is None:
            return 200, {"sent": len(VALUES), "problem": "no value was found in the request"}
        facts["sent"] = sum(value.encode() in call.body for value in VALUES)
        answer = client.post(path, content=call.body)
        if answer.status_code != 200:
            return answer.status_code, {**facts, "problem": f"it answered {answer.status_code}"}
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().encode()
        told = _restored(kind, path, answer.content, call.surrogates)
        facts[name] = sum(value in told for value in VALUES)
        facts["unknown"] += call.surrogates.unknown
    return 200, facts


def _pseudonymised(
    body: bytes, read: type[WireRequest], terms: InlineTerms
) -> PseudonymisedCall | None:
    async def put() -> PseudonymisedCall | None:
        inline = RouteInline(terms, Counters())
        try:
            owner = HistoryOwner("probe", "probe", "probe")
            return await inline.pseudonymise(read, body, head=None, owner=owner, session=None)
        finally:
            inline.close()

    return asyncio.run(put())


def _restored(kind: bytes, path: str, body: bytes, surrogates: CallSurrogates) -> str:
    """Return the text of an answer as its client gets it."""
    restorer = restorer_of(kind, path.encode(), surrogates, None)
    if restorer is None:
        return ""
    raw = (restorer.feed(body) + restorer.close()).decode("utf-8", "replace")
    lines = [one[5:] for one in raw.splitlines() if one.startswith("data:")] or [raw]
    return "".join(text for line in lines for text in _texts(line))


def _texts(line: str) -> list[str]:
    """Return the texts of an answer or an event."""
    try:
        value = json.loads(line)
    except ValueError:
        return []
    parts = [value.get("delta"), *(value.get("content") or ())]
    parts += [one.get("message", one.get("delta")) for one in value.get("choices") or ()]
    said = [(one.get("content"), one.get("text")) for one in parts if isinstance(one, dict)]
    return [text for pair in said for text in pair if isinstance(text, str)]
