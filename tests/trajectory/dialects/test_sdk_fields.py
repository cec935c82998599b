"""Whatever field the SDKs' own types know is kept: each is filled with a mark that must come out again.

A field that is left out on purpose stands in a list here with its reason.
"""

import enum
import itertools
import json
import re
import types
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

import pytest
import typing_extensions
from pydantic import BaseModel

from tests.golden.calls.replay import call_json
from tests.trajectory.world import World
from trajectory.dialects.registry import read_exchange

_DEPTH = 9


def options(kind: Any) -> list[Any]:
    """Return the alternatives of a type; one that is none is its only one."""
    if hasattr(kind, "__value__"):
        return options(kind.__value__)
    origin = get_origin(kind)
    if origin in (Annotated, Required, NotRequired):
        return options(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [one for inner in get_args(kind) for one in options(inner)]
    return [] if kind is type(None) or "Unknown" in str(kind) else [kind]


def is_list(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Iterable) and origin is not dict


def has_fields(kind: Any) -> bool:
    model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return model or hasattr(kind, "__required_keys__")


class Example:
    """A value of a type in which every text and number is a mark of its own."""

    def __init__(self, kind: Any) -> None:
        self.numbers = itertools.count(100_001)
        self.marks: dict[str, str] = {}
        self.value = self.fill(kind, "", ())

    def mark(self, where: str, number: bool = False) -> Any:
        made = next(self.numbers)
        value: Any = made if number else f"mark{made}x"
        self.marks[str(value)] = where
        return value

    def fill(self, kind: Any, where: str, inside: tuple[Any, ...]) -> Any:
        found = options(kind)
        # Lists show every alternative of what they hold; models show more than texts.
        found.sort(key=lambda one: (not is_list(one), not has_fields(one)))
        if not found:
            return None
        one = found[0]
        if is_list(one):
            inner = options(get_args(one)[0])
            return [self.fill(item, f"{where}[]", inside) for item in inner]
        if get_origin(one) is dict:
            return {"k": self.fill(get_args(one)[1], where + "{}", inside)}
        if get_origin(one) is Literal:
            return get_args(one)[0]
        if has_fields(one):
            if one in inside or len(inside) > _DEPTH:
                return {}
            return {
                name: self.fill(field, f"{where}.{name}", (*inside, one))
                for name, field in fields_of(one)
            }
        if isinstance(one, type) and issubclass(one, enum.Enum):
            return next(iter(one)).value
        if one is bool:
            return True
        if one is datetime:
            return "2026-01-01T00:00:00Z"
        return self.mark(where, number=one in (int, float))


def fields_of(kind: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(kind, "__required_keys__"):
        yield from typing_extensions.get_type_hints(kind, include_extras=True).items()
        return
    for name, field in kind.model_fields.items():
        yield field.serialization_alias or field.alias or name, field.annotation


def lost(path: str, request: Any, response: Any, example: Example, left_out: str) -> list[str]:
    """Return the fields whose marks are in no part of the call, and that are not left out."""
    call = read_exchange(World().exchange(path, request, response))
    assert call.problem is None
    text = json.dumps(call_json(call))
    known = re.compile(
        "|".join(f"(?:{line.strip()})" for line in left_out.split("\n") if line.strip())
    )
    return [
        where
        for mark, where in example.marks.items()
        if mark not in text and not known.fullmatch(where)
    ]


def anthropic_answer() -> Any:
    from anthropic.types.beta import BetaMessage

    return BetaMessage


def openai_answer() -> Any:
    from openai.types.responses import Response

    return Response


def chat_answer() -> Any:
    from openai.types.chat import ChatCompletion

    return ChatCompletion


def gemini_answer() -> Any:
    from google.genai.types import GenerateContentResponse

    return GenerateContentResponse


def interaction() -> Any:
    from google.genai._gaos.types.interactions.interaction import Interaction

    return Interaction


_ECHO = r"\.(?:temperature|top_p|instructions|max_\w+|metadata\{\}|previous_\w+|top_logprobs|user|safety_identifier|prompt_cache_key|conversation\.id|reasoning\..*|text\..*|tool_choice\..*)"
ANSWERS: dict[str, tuple[str, Callable[[], Any], dict[str, Any], dict[str, Any], str]] = {
    # name: path, type of the answer, request, what the answer has instead, what is left out
    "anthropic.messages": (
        "/v1/messages",
        anthropic_answer,
        {"messages": []},
        {},
        # counted together with what was cached
        r"\.usage\.input_tokens",
    ),
    "openai.responses": (
        "/v1/responses",
        openai_answer,
        {"input": "x"},
        {"status": "completed", "error": None, "incomplete_details": None},
        # the gateway's times hold; ids of items name nothing; bytes are named by their hash; what
        # is an echo of the request; sums; log probabilities leave their mean
        r"""\.(?:created_at|completed_at)
            \.error\..*
            \.output\[\]\.id
            \.output\[\]\.result
            .*\.file_data
            .*\.logprobs\[\]\..*
            \.usage\.total_tokens
        """
        + _ECHO,
    ),
    "openai.chat": (
        "/v1/chat/completions",
        chat_answer,
        {"messages": []},
        {},
        # log probabilities leave their mean
        r"""\.(?:created|usage\.total_tokens)
            \.choices\[\]\.(?:index|logprobs\..*)
        """,
    ),
    "google.gemini": (
        "/v1beta/models/m:generateContent",
        gemini_answer,
        {"contents": []},
        {"sdkHttpResponse": None, "automaticFunctionCallingHistory": None, "parsed": None},
        # of the SDK alone; positions and means; the name of a result, which its call has; a
        # chosen token has its id; counts that are added up; bytes
        r"""\.(?:sdkHttpResponse|automaticFunctionCallingHistory|parsed)\b.*
            \.candidates\[\]\.(?:index|avgLogprobs)
            \.candidates\[\]\.content\.role
            \.candidates\[\]\.logprobsResult\..*
            .*\.inlineData\.data
            .*\.functionResponse\.name
            \.usageMetadata\.\w+TokenCount
        """,
    ),
    "google.interactions": (
        "/v1beta/interactions",
        interaction,
        {"input": "x"},
        {"status": "completed", "error": None},
        # an echo of the request and of the steps; bytes; errors are told by their first
        r"""\.(?:agent_config|generation_config|input|output_\w+|response_\w+|tools\[\]|labels|safety_settings\[\]|webhook_config|environment)\b.*
            \.(?:cached_content|created|updated|previous_interaction_id|system_instruction|labels\{\})
            .*\.data
            .*\.(?:result|arguments)\[\]\.data
            \.errors?\b.*
            \.steps\[\]\.(?:error\..*|call_id|name)
            \.steps\[\]\.content\[\]\.uri
            \.steps\[\]\.summary\[\]\.uri
            \.usage\.total_\w+
        """,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_field_of_an_answer_is_kept(name: str) -> None:
    path, kind, request, instead, left_out = ANSWERS[name]
    example = Example(kind())
    answer = {**example.value, **instead}
    if name == "google.gemini":  # a part is one of its alternatives
        content = answer["candidates"][0]["content"]
        parts = {k: v for k, v in content["parts"][0].items() if k != "thought"}
        content["parts"] = [{name: value} for name, value in parts.items()]
    assert lost(path, request, answer, example, left_out) == []


def anthropic_request() -> Any:
    from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming

    return MessageCreateParamsNonStreaming


def openai_request() -> Any:
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

    return ResponseCreateParamsNonStreaming


def chat_request() -> Any:
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    return CompletionCreateParamsNonStreaming


@pytest.mark.parametrize(
    ("path", "kind", "left_out"),
    [
        ("/v1/messages", anthropic_request, r".*\.source\.data"),
        # ids of items; what is sent again of an answer's log probabilities
        (
            "/v1/responses",
            openai_request,
            r"""\.input\[\]\.(?:id|result)
                .*\.file_data
                \.input\[\]\.content\[\]\.logprobs\[\]\..*
            """,
        ),
        # the older form of tools, beside tools
        (
            "/v1/chat/completions",
            chat_request,
            r".*\.(?:input_audio\.data|file_data)|\.functions\[\]\..*",
        ),
    ],
)
def test_every_field_of_a_request_is_kept(
    path: str, kind: Callable[[], Any], left_out: str
) -> None:
    example = Example(kind())
    assert lost(path, example.value, {"id": "x"}, example, left_out) == []
