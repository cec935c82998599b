"""Gemini's ``generateContent``, as the Gemini API and Vertex AI speak it."""

import re
from dataclasses import replace
from typing import cast
from urllib.parse import unquote

from trajectory.call import Call, CallKind, TokenCapture, Usage
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.google_gemini.stream import assemble_chunks
from trajectory.dialects.hints import gemini_hints
from trajectory.dialects.reader import (
    CallNames,
    DialectOutput,
    assistant,
    call_fields,
    joined,
    mean_logprob,
    model_call,
    unread_usage,
    with_fields,
)
from trajectory.dialects.resends import one_object
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import (
    as_integer,
    as_object,
    as_text,
    clean_text,
    media_bytes,
    media_part,
    name_media,
    names,
    objects,
    only,
    request_json,
    sum_of_counts,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import (
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    is_note,
)

_PATH = re.compile(r"/(?:models/([^/:]+)|v1internal):(?:g|streamG)enerateContent$")
_SAMPLING = names("generationConfig toolConfig safetySettings")
_REQUEST_READ = _SAMPLING | names("contents systemInstruction tools model session_id")
_RESPONSE_READ = names("candidates usageMetadata modelVersion responseId error")
_CANDIDATE_READ = names("content finishReason index logprobsResult avgLogprobs")
_TEXT_READ = names("text thought thoughtSignature")
_MEDIA = names("inlineData inline_data fileData file_data")
_MEDIA_READ = names("data mimeType mime_type fileUri file_uri")
_CALL_READ = names("id name args")
_RESULT_READ = names("id name response parts")
_USAGE_READ = names(
    "promptTokenCount toolUsePromptTokenCount candidatesTokenCount thoughtsTokenCount"
    " cachedContentTokenCount totalTokenCount"
)
_SNAKE = {
    "generation_config": "generationConfig",
    "tool_config": "toolConfig",
    "safety_settings": "safetySettings",
    "system_instruction": "systemInstruction",
}


class GoogleGemini:
    """``POST …/models/<model>:generateContent`` and ``:streamGenerateContent``."""

    name = "google.gemini"
    yields = DialectOutput(
        "`POST …/models/<model>:generateContent`, `:streamGenerateContent` (Gemini API, Vertex AI);"
        " `/v1internal:` of the Gemini CLI",
        CallKind.MODEL,
        streams="SSE, JSON array",
        text=True,
        reasoning=True,
        tool_calls=True,
        usage=True,
        tokens="with `responseLogprobs`, where each token has its id",
        logprobs="their mean; each with the tokens",
        errors="status and body, `error` object",
        identity="`request.session_id` of the Gemini CLI",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return exchange.request.method == "POST" and bool(_PATH.search(exchange.request.path))

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        body = request_json(exchange)
        inner = as_object(body.get("request"))
        if inner:  # the internal interface has model and project around the request
            body = {**inner, **without(body, frozenset({"request"}))}
        request = {_SNAKE.get(k, k): v for k, v in body.items()}
        response = read_response(exchange, _assemble, arrays=True)
        value = _unwrapped(response.value or {})
        candidates = objects(value.get("candidates"))
        candidate = candidates[0] if candidates else {}
        call = model_call(
            self.name,
            exchange,
            response,
            ext=without(request, _REQUEST_READ),
            rest=_rest(value, candidate, candidates[1:]),
            hints=gemini_hints(inner),
        )
        calls = CallNames()
        context = read_context(request, calls)
        model = _PATH.search(exchange.request.path)
        return replace(
            call,
            context=context,
            output=assistant(_parts(as_object(candidate.get("content")), calls)),
            tools=_tools(request),
            sampling=_sampling(request),
            model_requested=clean_text(unquote(model[1], errors="replace"))
            if model and model[1]
            else as_text(request.get("model")),
            model_served=as_text(value.get("modelVersion")),
            response_id=as_text(value.get("responseId")),
            finish_reason=_finish_reason(value, candidate),
            usage=_usage(value),
            tokens=_tokens(candidate),
            mean_logprob=mean_logprob(_logprobs(candidate)),
        )


def _assemble(chunks: list[JsonObject]) -> JsonObject | None:
    return assemble_chunks([_unwrapped(chunk) for chunk in chunks])


def _unwrapped(value: JsonObject) -> JsonObject:
    """Return an answer without what the internal interface has around it."""
    inner = as_object(value.get("response"))
    return {**without(value, frozenset({"response"})), **inner} if inner else value


def read_context(request: JsonObject, calls: CallNames) -> tuple[Message, ...]:
    """Return system instruction and contents; what the model made in one turn is one message."""
    messages: list[Message] = []
    if system := _parts(as_object(request.get("systemInstruction")), calls):
        messages.append(Message("system", tuple(system)))
    for content in objects(request.get("contents")):
        role = as_text(content.get("role")) or "user"
        role = "assistant" if role == "model" else role
        for message in _split(role, _parts(content, calls)):
            before = messages[-1] if messages else None
            if before is not None and message.role == before.role == "assistant":
                parts = joined([*before.parts, *message.parts])
                messages[-1] = Message("assistant", tuple(parts))
            else:
                messages.append(message)
    return one_object(messages)


def _split(role: str, parts: list[Part]) -> list[Message]:
    """Return tool results as messages of their own."""
    results: list[Message] = []
    rest: list[Part] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            results.append(Message("tool", (part,)))
        elif is_note(part) and results and not rest:
            results[-1] = Message("tool", (*results[-1].parts, part))
        else:
            rest.append(part)
    return [*results, Message(role, tuple(rest))] if rest or not results else results


def _parts(content: JsonObject, calls: CallNames) -> list[Part]:
    found = [part for item in objects(content.get("parts")) for part in _read_part(item, calls)]
    return joined(found)


def _read_part(item: JsonObject, calls: CallNames) -> list[Part]:
    signature = as_text(item.get("thoughtSignature"))
    if item.get("thought") is True:
        return [ReasoningPart(as_text(item.get("text")) or "", signature)]
    # A signature on any other part proves the reasoning that led to it.
    lead: list[Part] = [ReasoningPart("", signature)] if signature else []
    if isinstance(item.get("text"), str):
        if not item["text"]:
            return lead
        return [*lead, *with_fields(TextPart(cast(str, item["text"])), without(item, _TEXT_READ))]
    if call := as_object(item.get("functionCall")):
        name = as_text(call.get("name")) or ""
        number = calls.call(name)
        arguments = call.get("args")
        return [
            *lead,
            ToolCallPart(call_id := as_text(call.get("id")) or number, name, arguments or {}),
            *call_fields(call_id, without(call, _CALL_READ)),
        ]
    if result := as_object(item.get("functionResponse")):
        return [*lead, *_result(result, calls)]
    if media := _media(item):
        return [*lead, *with_fields(media, _media_fields(item))]
    return [*lead, OpaquePart(name_media(item))]


def _media_fields(item: JsonObject) -> JsonObject:
    """Return what is said of a file beside its bytes or address: its name, stretches of a video."""
    held = [name for name in _MEDIA if isinstance(item.get(name), dict)]
    inner = {k: v for name in held for k, v in without(as_object(item[name]), _MEDIA_READ).items()}
    return {**inner, **without(item, frozenset({*held, "thoughtSignature", "thought"}))}


def _result(result: JsonObject, calls: CallNames) -> list[Part]:
    number = calls.result(as_text(result.get("name")) or "")
    content = result.get("response")
    failed = isinstance(content, dict) and set(content) == {"error"}
    call_id = as_text(result.get("id")) or number
    if parts := objects(result.get("parts")):  # media that the tool made
        content = {"response": content, "parts": [_named(part) for part in parts]}
    beside = call_fields(call_id, without(result, _RESULT_READ))
    return [ToolResultPart(call_id, name_media(content), failed), *beside]


def _named(part: JsonObject) -> JsonValue:
    """Return a part of a result with its bytes named instead of kept."""
    return {name: name_media(value) for name, value in part.items()}


def _media(item: JsonObject) -> Part | None:
    inline = as_object(item.get("inlineData") or item.get("inline_data"))
    kind = as_text(inline.get("mimeType") or inline.get("mime_type"))
    if kind and isinstance(inline.get("data"), str):
        return media_bytes(cast(str, inline["data"]), kind)
    named = as_object(item.get("fileData") or item.get("file_data"))
    if uri := as_text(named.get("fileUri") or named.get("file_uri")):
        return media_part(uri, as_text(named.get("mimeType") or named.get("mime_type")))
    return None


def _tools(request: JsonObject) -> tuple[JsonObject, ...]:
    """Return function declarations one by one, and built-in tools as they came."""
    found: list[JsonObject] = []
    for tool in objects(request.get("tools")):
        declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        found.extend(objects(declared))
        rest = without(tool, frozenset({"functionDeclarations", "function_declarations"}))
        if rest:
            found.append(rest)
    return tuple(found)


def _sampling(request: JsonObject) -> JsonObject:
    given = only(request, _SAMPLING)
    return {**as_object(given.pop("generationConfig", None)), **given}


def _finish_reason(value: JsonObject, candidate: JsonObject) -> str | None:
    blocked = as_text(as_object(value.get("promptFeedback")).get("blockReason"))
    return as_text(candidate.get("finishReason")) or blocked


def _usage(value: JsonObject) -> Usage:
    usage = as_object(value.get("usageMetadata"))
    thought = as_integer(usage.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=sum_of_counts(usage, "promptTokenCount", "toolUsePromptTokenCount"),
        output_tokens=sum_of_counts(usage, "candidatesTokenCount", "thoughtsTokenCount"),
        cached_input_tokens=as_integer(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thought,
    )


def _tokens(candidate: JsonObject) -> TokenCapture | None:
    """Return the chosen tokens where each has its id and its log probability."""
    chosen = objects(as_object(candidate.get("logprobsResult")).get("chosenCandidates"))
    ids = [as_integer(item.get("tokenId")) for item in chosen]
    numbers = [item.get("logProbability") for item in chosen]
    known = tuple(number for number in ids if number is not None and 0 <= number < 2**31)
    logprobs = tuple(float(n) for n in numbers if isinstance(n, int | float) and n is not True)
    if not chosen or not len(known) == len(logprobs) == len(chosen):
        return None
    return TokenCapture(None, known, logprobs)


def _logprobs(candidate: JsonObject) -> list[JsonValue]:
    """Return the log probability of each chosen token; else the mean, where that is told."""
    chosen = objects(as_object(candidate.get("logprobsResult")).get("chosenCandidates"))
    mean = candidate.get("avgLogprobs")
    listed: list[JsonValue] = [] if mean is None else [mean]
    return [item.get("logProbability") for item in chosen] or listed


def _rest(value: JsonObject, candidate: JsonObject, others: list[JsonObject]) -> JsonObject:
    usage = as_object(value.get("usageMetadata"))
    rest = {**without(value, _RESPONSE_READ), **unread_usage(usage, _USAGE_READ)}
    if unread := without(candidate, _CANDIDATE_READ):
        rest["candidate"] = unread
    if others:
        rest["other_candidates"] = list(others)
    return rest
