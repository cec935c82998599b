"""The wire formats that the practice provider speaks: one module for each, one shape between."""

from examples.practice.wire.anthropic_messages import AnthropicMessages
from examples.practice.wire.openai_chat import OpenAIChat
from examples.practice.wire.openai_responses import OpenAIResponses
from examples.practice.wire.shape import Answer, Ask, Dialect, WireError, Writer

__all__ = [
    "Answer",
    "AnthropicMessages",
    "Ask",
    "Dialect",
    "OpenAIChat",
    "OpenAIResponses",
    "WireError",
    "Writer",
]
