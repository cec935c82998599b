"""Probing an upstream: can it be reached, does its key work, does it give exact token ids."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config import Route, UpstreamChoice
from proxy.tokens import TokenCheck

_SECONDS = 30.0
_ASK = {"messages": [{"role": "user", "content": "Say: ok"}], "max_tokens": 8}
_EXTRA = {"return_token_ids": True, "logprobs": True, "top_logprobs": 0}


@dataclass(frozen=True, slots=True)
class Probe:
    """Capabilities of an upstream."""

    route: str
    upstream: str
    reachable: bool
    status: int | None = None
    """Of the request for its models."""
    milliseconds: float | None = None
    """Until that answer."""
    model: str | None = None
    """The model that was asked."""
    token_ids: bool | None = None
    """Whether token ids come, and as many as usage says; None where that was not asked."""
    streamed_token_ids: bool | None = None
    logprobs: bool | None = None
    problem: str = ""

    @property
    def gives_tokens(self) -> bool:
        """Whether ``capture: tokens`` will get what it asks for."""
        return bool(self.token_ids and self.streamed_token_ids and self.logprobs)


def probe(
    route: Route,
    choice: UpstreamChoice,
    *,
    model: str | None = None,
    tokens: bool | None = None,
    upstream_ca: Path | None = None,
) -> Probe:
    """Ask an upstream; without ``tokens`` token ids are asked for where the route captures them.

    Raises:
        ConfigurationError: the credential's source is missing or empty.
    """
    import ssl

    import httpx

    headers = {}
    if choice.credential is not None:
        headers[choice.credential.header] = choice.credential.header_value()
    context = ssl.create_default_context(cafile=str(upstream_ca) if upstream_ca else None)
    with httpx.Client(
        base_url=choice.url, headers=headers, timeout=_SECONDS, verify=context, trust_env=False
    ) as client:
        begin = time.monotonic()
        try:
            answer = client.get("/v1/models")
        except httpx.HTTPError as error:
            return Probe(route.name, choice.url, reachable=False, problem=_why(error))
        elapsed = round(1000 * (time.monotonic() - begin), 1)
        model = model or _first_model(answer)
        wanted = route.capture == "tokens" if tokens is None else tokens
        found: dict[str, Any] = {}
        if wanted:
            try:
                found = _ask(client, model or "default")
            except (httpx.HTTPError, ValueError) as error:
                found = {"token_ids": False, "problem": f"chat: {_why(error)}"}
        return Probe(
            route=route.name,
            upstream=choice.url,
            reachable=True,
            status=answer.status_code,
            milliseconds=elapsed,
            model=model,
            **found,
        )


def _first_model(answer: Any) -> str | None:
    try:
        return str(answer.json()["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _ask(client: Any, model: str) -> dict[str, Any]:
    """Ask for a few tokens, whole and streamed; return what came."""
    body = {**_ASK, **_EXTRA, "model": model}
    answer = client.post("/v1/chat/completions", json=body)
    if answer.status_code != 200:
        return {"token_ids": False, "problem": f"chat answered {answer.status_code}"}
    value = answer.json()
    check = TokenCheck()
    check.see(value)
    choice = value["choices"][0] if value.get("choices") else {}
    logprobs = bool((choice.get("logprobs") or {}).get("content"))
    streamed = TokenCheck()
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    with client.stream("POST", "/v1/chat/completions", json={**body, **usage}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                streamed.see(json.loads(line[6:]))
    return {
        "token_ids": check.sound,
        "streamed_token_ids": streamed.sound,
        "logprobs": logprobs,
        "problem": "" if check.sound else "no token ids, or not as many as usage says",
    }
