"""The trajectory protocol: exchanges, messages, steps, signals, and how loose calls become trajectories.

The public types; ``docs/protocol.md`` says what they mean, ``schema.json`` what they look like.
"""

from trajectory.exchange import Exchange, Feedback
from trajectory.message import Message
from trajectory.portable import PortableSignal, PortableStep, Trajectory
from trajectory.step import (
    Correction,
    Harness,
    Link,
    LinkTo,
    Signal,
    Step,
    StoredMessage,
    Tokens,
    ToolCall,
    ToolResult,
)
from trajectory.version import SCHEMA_VERSION

__all__ = [
    "SCHEMA_VERSION",
    "Correction",
    "Exchange",
    "Feedback",
    "Harness",
    "Link",
    "LinkTo",
    "Message",
    "PortableSignal",
    "PortableStep",
    "Signal",
    "Step",
    "StoredMessage",
    "Tokens",
    "ToolCall",
    "ToolResult",
    "Trajectory",
]
