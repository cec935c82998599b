"""Trying a policy's pseudonymisation: what a provider would get of a test case, and its client be told."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from governance.policy import PolicyBundle
from governance.trial.cases import CaseCall, GivenToolCall
from governance.trial.run import TRIAL_KEY, WireTexts
from proxy.inline.answers import CallSurrogates
from proxy.inline.openai import ChatRequest
from proxy.inline.restorer import IssuedSurrogates
from trajectory.surrogate import scope_key


class InlineTrial:
    """Puts surrogates into the calls of cases as the gateway would."""

    def __init__(self, bundle: PolicyBundle) -> None:
        self._bundle = bundle

    @cached_property
    def _redactor(self) -> Any:
        """What puts surrogates into requests; made when a case asks first, for it takes seconds."""
        from governance.redact.build import wire_redactors_of

        (redactor,) = wire_redactors_of(self._bundle, 1, pseudonym_key=TRIAL_KEY)
        return redactor

    def texts(self, given: CaseCall) -> WireTexts:
        """Return what the provider gets, and what the client is told.

        The answer of the case is its client's: the provider knows the surrogates alone, and says them.
        """
        spec = self._bundle.redaction.spec.inline
        body, answer = json.dumps(_asked(given), ensure_ascii=False), _answered(given, {})
        if spec is None or given.route not in spec.routes:
            return WireTexts(body, json.dumps(answer, ensure_ascii=False))
        request = ChatRequest(body.encode())
        told = self._redactor.pseudonymise(
            request.text,
            request.place,
            request.said(),
            tenant=given.tenant,
            key=scope_key(TRIAL_KEY, given.tenant),
        )
        issued = IssuedSurrogates(told.issued, numbers=told.numbers, entities=told.entities)
        may = spec.restore.receivers()
        surrogates = CallSurrogates(request, issued, may, told.text.encode())
        names = {value: name for name, value in told.issued.items()}
        back = surrogates.value(_answered(given, names))
        return WireTexts(told.text, json.dumps(back, ensure_ascii=False))


def _asked(given: CaseCall) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for at, one in enumerate(given.messages):
        said = one.content if isinstance(one.content, str) else json.dumps(one.content)
        message: dict[str, Any] = {"role": one.role, "content": said}
        if one.role == "tool":
            message["tool_call_id"] = f"call-{at - 1}-0"
        if one.tool_calls:
            message["tool_calls"] = _calls(one.tool_calls, f"call-{at}", {})
        messages.append(message)
    user = {} if given.end_user is None else {"user": given.end_user}
    return {"model": given.model, "messages": messages, "tools": [*given.tools], **user}


def _answered(given: CaseCall, names: Mapping[str, str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _with(given.answer, names)}
    if given.tool_calls:
        message["tool_calls"] = _calls(given.tool_calls, "answer", names)
    return {"choices": [{"index": 0, "message": message}]}


def _calls(
    calls: tuple[GivenToolCall, ...], prefix: str, names: Mapping[str, str]
) -> list[dict[str, Any]]:
    out = []
    for at, one in enumerate(calls):
        said = json.dumps(_with(one.arguments, names), ensure_ascii=False)
        function = {"name": one.name, "arguments": said}
        out.append({"id": f"{prefix}-{at}", "type": "function", "function": function})
    return out


def _with(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with surrogates in the place of what they stand for."""
    if isinstance(value, str):
        for said in sorted(names, key=len, reverse=True):
            value = value.replace(said, names[said])
        return value
    if isinstance(value, list):
        return [_with(one, names) for one in value]
    if isinstance(value, dict):
        return {key: _with(one, names) for key, one in value.items()}
    return value
