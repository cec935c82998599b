"""Which agent makes a call, as the call itself tells: by its header, a hand-off, or a participant's name."""

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import unquote

from trajectory.call import Call, CallKind
from trajectory.dialects.wire import as_object, as_text, header
from trajectory.message import Message, ToolCallPart, ToolResultPart

AGENT_HEADER = "x-headrace-agent"
NAME_LIMIT = 128
_HAND_OFF = re.compile(r"(?:transfer|hand_?off)(?:_back)?_to_(?P<agent>\w+)", re.IGNORECASE)
"""Names of hand-off tools: OpenAI Agents, AutoGen, LangGraph, Google's ADK."""
_TARGET_ARGUMENTS = ("agent_name", "agent", "target", "to")
_A2A_AGENT = re.compile(
    r"/(?:agents?|a2a)/(?!v\d|messages?\b|tasks?\b|extendedAgentCard\b)(?P<agent>[^/:?]+)"
)
"""The agent in an address; versions and the protocol's own resources are none."""


def with_agent(call: Call) -> Call:
    """Return the call with the agent that makes it, as far as it tells.

    What the client's header or the span says is the agent's own name. The target of the last
    hand-off, the participant's name and the address of an A2A agent say in which role it acts.
    """
    declared = call.agent or header(call.exchange.request.headers, AGENT_HEADER)
    if declared and declared.strip():
        return replace(call, agent=declared.strip()[:NAME_LIMIT])
    role = _role(call)
    return call if role is None else replace(call, acts_as=role[:NAME_LIMIT])


def _role(call: Call) -> str | None:
    if call.kind is CallKind.MODEL:
        return handed_over_to(call.context) or _participant(call.context)
    if call.dialect == "a2a" and (found := _A2A_AGENT.search(call.exchange.request.path)):
        return unquote(found["agent"], errors="replace")
    return None


def handed_over_to(context: Sequence[Message]) -> str | None:
    """Return the target of the last hand-off in a conversation; a refused one does not count."""
    refused: set[str] = set()
    for message in reversed(context):
        for part in reversed(message.parts):
            if isinstance(part, ToolResultPart):
                if part.is_error:
                    refused.add(part.call_id)
            elif (
                isinstance(part, ToolCallPart)
                and part.call_id not in refused
                and (target := hand_off_target(part))
            ):
                return target
    return None


def hand_off_target(call: ToolCallPart) -> str | None:
    """Return the agent that a tool call hands over to; None for any other tool."""
    found = _HAND_OFF.fullmatch(call.name)
    if found is None:
        return None
    if found["agent"].lower() != "agent":
        return found["agent"]
    arguments = as_object(call.arguments)
    named = (as_text(arguments.get(name)) for name in _TARGET_ARGUMENTS)
    return next((name for name in named if name), None)


def _participant(context: Sequence[Message]) -> str | None:
    """Return the name under which the model itself spoke last."""
    for message in reversed(context):
        if message.role == "assistant" and message.name:
            return message.name
    return None
