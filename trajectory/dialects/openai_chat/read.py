"""OpenAI chat completions, and the many servers that speak it (vLLM's token fields included)."""

import re
from dataclasses import replace
from typing import Any, cast
from urllib.parse import parse_qs, unquote

from trajectory.call import ELSEWHERE, Call, CallKind, SessionHint, TokenCapture, Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import common_hints, openai_hints
from trajectory.dialects.openai_chat.stream import assemble_chunks
from trajectory.dialects.reader import (
    DialectOutput,
    call_fields,
    mean_logprob,
    model_call,
    posted_to,
    unread_usage,
    with_fields,
)
from trajectory.dialects.resends import read_list, read_tools, same_message
from trajectory.dialects.response import ModelResponse, read_response
from trajectory.dialects.wire import (
    UnreadableError,
    as_id,
    as_integer,
    as_list,
    as_object,
    as_text,
    clean_text,
    error_of,
    media_bytes,
    media_file,
    media_part,
    name_media,
    names,
    objects,
    only,
    parse_json_or_none,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

_SAMPLING = names(
    "frequency_penalty guided_json guided_regex ignore_eos logit_bias logprobs max_completion_tokens"
    " max_tokens min_p min_tokens n parallel_tool_calls presence_penalty reasoning_effort"
    " repetition_penalty response_format return_token_ids seed stop stop_token_ids temperature"
    " tool_choice top_k top_logprobs top_p verbosity chat_template_kwargs"
)
_REQUEST_READ = _SAMPLING | names("messages tools functions model user stream")
_RESPONSE_READ = names("id object created model choices usage prompt_token_ids error")
_USAGE_READ = names("prompt_tokens completion_tokens total_tokens input_tokens output_tokens")
_DETAILS_READ = names("cached_tokens reasoning_tokens")
_CHOICE_READ = names("index message finish_reason logprobs token_ids text")
_MESSAGE_READ = names(
    "role content name tool_calls function_call tool_call_id refusal reasoning reasoning_content"
    " annotations cache_control"
)
_CALL_READ = names("id type index function custom")
_THOUGHT_READ = names("type thinking signature closed")
_ROLES = {"function": "tool"}
_LOOK_UP = re.compile(r"/chat/deferred-completion/([^/]+)/?$")


class OpenAIChat:
    """``POST …/chat/completions``, and what brings the answer of a chat that xAI deferred."""

    name = "openai.chat"
    yields = DialectOutput(
        "`POST …/chat/completions` (OpenAI, Azure OpenAI, vLLM and other compatible servers); look-ups"
        " (`GET …/chat/deferred-completion/<id>`) that bring the answer of a chat that xAI deferred",
        CallKind.MODEL,
        streams="SSE",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        tokens="vLLM with `return_token_ids`",
        logprobs="their mean; each with the tokens",
        errors="status and body, `error` event",
        identity="`user`, `safety_identifier`, `metadata.session_id`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/chat/completions") or _looked_up(exchange) is not None

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        if (name := _looked_up(exchange)) is not None:
            return self._look_up(exchange, name)
        request = request_json(exchange)
        response = read_response(exchange, assemble_chunks)
        value = response.value or {}
        name = as_text(value.get("request_id"))
        if request.get("deferred") is not True or name is None or value.get("choices"):
            return read_chat(self.name, exchange, request, response)
        # The look-up names it by this.
        call = read_chat(self.name, exchange, request, replace(response, value={"id": name}))
        return replace(call, ext={**call.ext, "answer": ELSEWHERE})

    def _look_up(self, exchange: Exchange, name: str) -> Call:
        """Read a look-up: it brings the answer of a deferred chat, once, or nothing yet."""
        try:
            response = read_response(exchange, assemble_chunks)
        except UnreadableError:
            response = ModelResponse(None)
        if not objects((response.value or {}).get("choices")):
            return Call(exchange, self.name, CallKind.CONTROL, hints=common_hints(exchange))
        call = read_chat(self.name, exchange, {}, response)
        asked = SessionHint("previous_response_id", name, "response")
        return replace(call, hints=(*call.hints, asked))


def _looked_up(exchange: Exchange) -> str | None:
    """Return the id of the deferred chat whose answer is looked up; None where none is."""
    found = _LOOK_UP.search(exchange.request.path) if exchange.request.method == "GET" else None
    return unquote(found[1], errors="replace") if found else None


def read_chat(
    dialect: str, exchange: Exchange, request: JsonObject, response: ModelResponse
) -> Call:
    """Return the call that a chat completion is."""
    value = response.value or {}
    choices = objects(value.get("choices"))
    choice = choices[0] if choices else {}
    reason = as_text(choice.get("finish_reason"))
    call = model_call(
        dialect,
        exchange,
        response,
        ext={**without(request, _REQUEST_READ), **azure_fields(exchange)},
        rest=_unread_response(value, choice, choices[1:]),
        hints=openai_hints(request),
    )
    return replace(
        call,
        **openai_named(exchange, request, value),
        context=tuple(read_list(_read_one, objects(request.get("messages")))),
        output=_output(choice),
        tools=read_tools(request.get("tools")) or read_tools(request.get("functions")),
        sampling=only(request, _SAMPLING),
        finish_reason=None if reason == "error" else reason,
        error=response.error or _failure(choice),
        tokens=read_tokens(value, choice),
        mean_logprob=mean_logprob(listed_logprobs(choice)),
    )


def _failure(choice: JsonObject) -> str | None:
    """Return the error of a choice: routers tell there that the provider behind them failed."""
    if choice.get("finish_reason") != "error" and not choice.get("error"):
        return None
    return error_of(choice) or "error"


def openai_fields(call: Call, request: JsonObject, value: JsonObject) -> Call:
    """Return the call with what all of OpenAI's interfaces name alike."""
    return replace(call, **openai_named(call.exchange, request, value))


def openai_named(exchange: Exchange, request: JsonObject, value: JsonObject) -> dict[str, Any]:
    """Return the fields of a call that all of OpenAI's interfaces name alike."""
    user, safety = as_id(request.get("user")), as_id(request.get("safety_identifier"))
    return {
        "model_requested": as_text(request.get("model")) or azure_deployment(exchange),
        "model_served": as_text(value.get("model")),
        "response_id": as_text(value.get("id")),
        "usage": read_usage(value.get("usage")),
        "end_user": user or safety,
        "also_named": (safety,) if user and safety else (),
    }


_DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/")


def azure_deployment(exchange: Exchange) -> str | None:
    """Return the deployment that an Azure path names; it stands for the model."""
    found = _DEPLOYMENT.search(exchange.request.path)
    return unquote(found[1], errors="replace") if found else None


def azure_fields(exchange: Exchange) -> JsonObject:
    """Return Azure's deployment and interface version; nothing elsewhere."""
    deployment = azure_deployment(exchange)
    query = exchange.request.query
    version = parse_qs(query).get("api-version", [None])[0] if query else None
    fields: JsonObject = {}
    if deployment is not None:
        fields["deployment"] = clean_text(deployment)
    if version is not None:
        fields["api_version"] = clean_text(version)
    return {"azure": fields} if fields else {}


def _read_one(value: JsonObject) -> tuple[Message]:
    return (read_message(value),)


def read_message(value: JsonObject) -> Message:
    """Return a chat message, of a request or of a response, in the protocol's shape."""
    role = as_text(value.get("role")) or "user"
    role = _ROLES.get(role, role)
    if role == "tool":
        call_id = as_text(value.get("tool_call_id")) or as_text(value.get("name")) or ""
        return Message("tool", (ToolResultPart(call_id, name_media(value.get("content"))),))
    parts: list[Part] = []
    reasoning = as_text(value.get("reasoning_content")) or as_text(value.get("reasoning"))
    if reasoning is not None:
        parts.append(ReasoningPart(reasoning))
    parts.extend(_content_parts(value.get("content")))
    if refusal := as_text(value.get("refusal")):
        parts.append(OpaquePart({"type": "refusal", "refusal": refusal}))
    for item in objects(value.get("tool_calls")):
        parts += _tool_call(item)
    if function := as_object(value.get("function_call")):
        parts += _tool_call({"id": as_text(function.get("name")) or "", "function": function})
    if unread := {k: v for k, v in without(value, _MESSAGE_READ).items() if v not in ([], {}, "")}:
        parts.append(OpaquePart({"type": "message_fields", **unread}))
    return Message(role, tuple(parts), name=as_text(value.get("name")))


def _content_parts(content: JsonValue | None) -> list[Part]:
    if isinstance(content, str):
        return [TextPart(content)] if content else []
    parts: list[Part] = []
    for item in as_list(content):
        parts += _content_part(item) if isinstance(item, dict) else [OpaquePart(item)]
    return parts


def _content_part(item: JsonObject) -> list[Part]:
    kind = item.get("type")
    if kind in ("text", "input_text", "output_text") and isinstance(item.get("text"), str):
        return [TextPart(cast(str, item["text"]))]
    if kind == "thinking":
        return _thought(item)
    if kind == "image_url":
        image = item.get("image_url")
        url = as_text(image.get("url") if isinstance(image, dict) else image)
        if url:
            return with_fields(media_part(url, "image/*"), without(as_object(image), names("url")))
    if kind == "input_audio":
        sound = as_object(item.get("input_audio"))
        if isinstance(sound.get("data"), str):
            named = media_bytes(cast(str, sound["data"]), f"audio/{sound.get('format') or '*'}")
            return with_fields(named, without(sound, names("data format")))
    if kind == "file":
        file = as_object(item.get("file"))
        if part := _file_part(file):
            return with_fields(part, without(file, names("file_data")))
    return [OpaquePart(item)]


def _thought(item: JsonObject) -> list[Part]:
    """Return a thought as Mistral writes it, with what it refers to."""
    said = item.get("thinking")
    inner: list[JsonObject] = [{"type": "text", "text": said}]
    if isinstance(said, list):
        inner = objects(said)
    texts = [as_text(one.get("text")) or "" for one in inner if one.get("type") == "text"]
    beside: list[JsonValue] = [one for one in inner if one.get("type") != "text"]
    part = ReasoningPart("".join(texts), as_text(item.get("signature")))
    rest = {**without(item, _THOUGHT_READ), "thinking": beside}
    return with_fields(part, rest)


def _file_part(file: JsonObject) -> MediaPart | None:
    data = as_text(file.get("file_data"))
    return media_file(data) if data else None


def _tool_call(item: JsonObject) -> list[Part]:
    part = _read_call(item)
    return [part, *call_fields(part.call_id, without(item, _CALL_READ))]


def _read_call(item: JsonObject) -> ToolCallPart:
    call_id = as_text(item.get("id")) or ""
    custom = as_object(item.get("custom"))
    if custom:
        return ToolCallPart(call_id, as_text(custom.get("name")) or "", custom.get("input"))
    function = as_object(item.get("function"))
    arguments, valid = read_arguments(function.get("arguments"))
    return ToolCallPart(call_id, as_text(function.get("name")) or "", arguments, valid)


def read_arguments(raw: JsonValue | None) -> tuple[JsonValue, bool]:
    """Return arguments as parsed JSON, and whether they were valid; text when they were not.

    Some servers send an object where the interface says a string; an empty string stands for
    no arguments.
    """
    if not isinstance(raw, str):
        return ({}, True) if raw is None else (raw, True)
    if not raw.strip():
        return {}, True
    parsed = parse_json_or_none(raw)
    return (raw, False) if parsed is None else (parsed, True)


def _output(choice: JsonObject) -> Message | None:
    message = as_object(choice.get("message"))
    if not message:
        return None
    output = read_message({"role": "assistant", **message})
    return same_message(output) if output.parts else None


def read_usage(value: JsonValue | None) -> Usage:
    """Return usage in the shape of chat completions or of responses."""
    usage = as_object(value)
    given = as_object(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    made = as_object(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    return Usage(
        input_tokens=as_integer(usage.get("prompt_tokens", usage.get("input_tokens"))),
        output_tokens=as_integer(usage.get("completion_tokens", usage.get("output_tokens"))),
        cached_input_tokens=as_integer(given.get("cached_tokens")),
        reasoning_tokens=as_integer(made.get("reasoning_tokens")),
    )


def unread_counts(value: JsonValue | None) -> JsonObject:
    """Return what usage counts beside the four numbers of a call, in the shape of response fields."""
    usage = {
        name: without(item, _DETAILS_READ) if isinstance(item, dict) else item
        for name, item in as_object(value).items()
    }
    return unread_usage(usage, _USAGE_READ)


def _token_ids(value: JsonValue | None) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    ids = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    fits = all(0 <= item < 2**31 for item in ids)
    return ids if len(ids) == len(value) and fits else None


def read_tokens(response: JsonObject, choice: JsonObject) -> TokenCapture | None:
    """Return the engine's own tokens; None where it gave none."""
    completion = _token_ids(choice.get("token_ids"))
    if not completion:
        return None
    prompt = _token_ids(response.get("prompt_token_ids") or choice.get("prompt_token_ids"))
    return TokenCapture(prompt, completion, _logprobs(choice.get("logprobs"), len(completion)))


def listed_logprobs(choice: JsonObject) -> list[JsonValue]:
    """Return the log probability of each token of a choice, a refusal's too."""
    told = as_object(choice.get("logprobs"))
    tokens = [*objects(told.get("content")), *objects(told.get("refusal"))]
    return [item.get("logprob") for item in tokens]


def _logprobs(value: JsonValue | None, count: int) -> tuple[float, ...] | None:
    numbers: list[float] = []
    for item in objects(as_object(value).get("content")):
        number = item.get("logprob")
        if isinstance(number, bool) or not isinstance(number, int | float):
            return None
        numbers.append(float(number))
    return tuple(numbers) if len(numbers) == count else None


def _unread_response(value: JsonObject, choice: JsonObject, others: list[JsonObject]) -> JsonObject:
    rest = {**without(value, _RESPONSE_READ), **unread_counts(value.get("usage"))}
    if unread := without(choice, _CHOICE_READ):
        rest["choice"] = unread
    annotations = as_object(choice.get("message")).get("annotations")
    if annotations:
        rest["annotations"] = annotations
    if others:
        rest["other_choices"] = list(others)
    return rest
