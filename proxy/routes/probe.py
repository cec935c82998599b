"""Probing an upstream: can it be reached, does its key work, does it give exact token ids."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config import Route, UpstreamChoice
from proxy.recording.tokens import TOKEN_PATHS, TokenCheck, ask

_SECONDS = 30.0
_TEXT = "Say: ok"
_MESSAGES = [{"role": "user", "content": _TEXT}]
_ASKED: dict[str, dict[str, Any]] = {
    "openai.chat": {"messages": _MESSAGES, "max_tokens": 8},
    "openai.completions": {"prompt": _TEXT, "max_tokens": 8},
    "openai.responses": {"input": _TEXT, "max_output_tokens": 8, "store": False},
    "anthropic.messages": {"messages": _MESSAGES, "max_tokens": 8},
}
_USAGE = {"openai.chat", "openai.completions"}
"""Where usage is streamed for those only that ask."""


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
    """Whether token ids of chats come, and as many as usage says; None where that was not asked."""
    streamed_token_ids: bool | None = None
    logprobs: bool | None = None
    token_dialects: tuple[str, ...] = ()
    """In which dialects ``capture: tokens`` gets what it asks for, whole and streamed."""
    problem: str = ""

    @property
    def gives_tokens(self) -> bool:
        """Whether ``capture: tokens`` will get what it asks for in any dialect."""
        return bool(self.token_dialects)


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
        found = _token_facts(client, model or "default") if wanted else {}
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


def _token_facts(client: Any, model: str) -> dict[str, Any]:
    """Ask in each dialect; return what a probe says of tokens."""
    import httpx

    facts: dict[str, Any] = {}
    giving: list[str] = []
    for dialect in TOKEN_PATHS:
        try:
            found = _ask(client, model, dialect)
        except (httpx.HTTPError, ValueError) as error:
            found = {"token_ids": False, "problem": f"chat: {_why(error)}"}
        if found["token_ids"] and found["streamed_token_ids"] and found["logprobs"]:
            giving.append(dialect)
        if dialect == "openai.chat":
            facts = found
    if giving:
        facts["problem"] = ""
    return {**facts, "token_dialects": tuple(giving)}


def _ask(client: Any, model: str, dialect: str) -> dict[str, Any]:
    """Ask for a few tokens in a dialect, whole and streamed; return what came."""
    path = f"/v1{TOKEN_PATHS[dialect].decode()}"
    asked = ask(json.dumps({**_ASKED[dialect], "model": model}).encode(), dialect)
    assert asked is not None  # noqa: S101 - the body is ours
    body = json.loads(asked.body)
    answer = client.post(path, json=body)
    if answer.status_code != 200:
        return {"token_ids": False, "problem": f"chat answered {answer.status_code}"}
    value = answer.json()
    check = TokenCheck()
    check.see(value)
    streamed = TokenCheck()
    usage = {"stream_options": {"include_usage": True}} if dialect in _USAGE else {}
    with client.stream("POST", path, json={**body, "stream": True, **usage}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                streamed.see(json.loads(line[6:]))
    return {
        "token_ids": check.sound,
        "streamed_token_ids": streamed.sound,
        "logprobs": _has_logprobs(value),
        "problem": "" if check.sound else "no token ids, or not as many as usage says",
    }


def _has_logprobs(value: dict[str, Any]) -> bool:
    holders = [value, *value.get("choices", ())]
    told = [one.get("logprobs") for one in holders if isinstance(one, dict)]
    return any(isinstance(one, dict) and any(one.values()) for one in told)
