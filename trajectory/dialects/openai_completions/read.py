"""OpenAI's older completions: a prompt and its continuation, as vLLM and many servers speak it."""

from dataclasses import replace

from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import openai_hints
from trajectory.dialects.openai_chat.read import (
    azure_fields,
    listed_logprobs,
    openai_fields,
    read_tokens,
)
from trajectory.dialects.openai_chat.stream import join_field, join_head
from trajectory.dialects.reader import DialectOutput, assistant, mean_logprob, model_call, posted_to
from trajectory.dialects.response import read_response
from trajectory.dialects.wire import (
    as_integer,
    as_list,
    as_object,
    as_text,
    names,
    objects,
    only,
    request_json,
    without,
)
from trajectory.exchange import Exchange
from trajectory.message import Message, TextPart

_SAMPLING = names(
    "best_of echo frequency_penalty ignore_eos logit_bias logprobs max_tokens min_p min_tokens n"
    " presence_penalty repetition_penalty return_token_ids seed stop stop_token_ids temperature"
    " top_k top_p"
)
_REQUEST_READ = _SAMPLING | names("prompt suffix model stream user")
_RESPONSE_READ = names("id object created model choices usage error prompt_token_ids")
_CHOICE_READ = names("index text finish_reason logprobs token_ids prompt_token_ids")


class OpenAICompletions:
    """``POST …/completions``."""

    name = "openai.completions"
    yields = DialectOutput(
        "`POST …/completions` (OpenAI, Azure OpenAI, vLLM)",
        CallKind.MODEL,
        streams="SSE",
        text=True,
        usage=True,
        tokens="vLLM with `return_token_ids`",
        logprobs="their mean; each with the tokens",
        errors="status and body, `error` event",
        identity="`user`",
    )

    def matches(self, exchange: Exchange) -> bool:
        """Tell by the path."""
        return posted_to(exchange, "/completions")

    def read(self, exchange: Exchange) -> Call:
        """Read the exchange; see :func:`trajectory.dialects.read_exchange`."""
        request = request_json(exchange)
        response = read_response(exchange, assemble_chunks)
        value = response.value or {}
        choices = objects(value.get("choices"))
        choice = choices[0] if choices else {}
        ext = {**without(request, _REQUEST_READ), **azure_fields(exchange)}
        if suffix := as_text(request.get("suffix")):
            ext["suffix"] = suffix
        prompts, ids = _prompts(request.get("prompt"))
        if ids:
            ext["prompts_as_token_ids"] = ids
        call = model_call(
            self.name,
            exchange,
            response,
            ext=ext,
            rest=_rest(value, choice, choices[1:]),
            hints=openai_hints(request),
        )
        text = as_text(choice.get("text"))
        as_chat = {**choice, "logprobs": _as_chat(choice.get("logprobs"))}
        return replace(
            openai_fields(call, request, value),
            context=tuple(Message("user", (TextPart(prompt),)) for prompt in prompts),
            output=assistant([TextPart(text)] if text else []),
            sampling=only(request, _SAMPLING),
            finish_reason=as_text(choice.get("finish_reason")),
            tokens=read_tokens(value, as_chat),
            mean_logprob=mean_logprob(listed_logprobs(as_chat)),
        )


def _prompts(prompt: JsonValue | None) -> tuple[list[str], int]:
    """Return the prompts that are text, and how many came as token ids (their text is not known)."""
    if isinstance(prompt, str):
        return [prompt], 0
    items = as_list(prompt)
    texts = [item for item in items if isinstance(item, str)]
    if items and all(isinstance(item, int) for item in items):
        return [], 1
    return texts, len(items) - len(texts)


def _as_chat(logprobs: JsonValue | None) -> JsonValue:
    """Return log probabilities in the form that chat completions give them."""
    values = as_list(as_object(logprobs).get("token_logprobs"))
    return {"content": [{"logprob": value} for value in values]}


def _rest(value: JsonObject, choice: JsonObject, others: list[JsonObject]) -> JsonObject:
    rest = without(value, _RESPONSE_READ)
    if unread := without(choice, _CHOICE_READ):
        rest["choice"] = unread
    if others:
        rest["other_choices"] = list(others)
    return rest


def assemble_chunks(chunks: list[JsonObject]) -> JsonObject | None:
    """Return the completion that ``chunks`` make; None when there is no chunk at all."""
    whole: JsonObject = {}
    choices: dict[int, JsonObject] = {}
    for chunk in chunks:
        join_head(whole, chunk)
        for piece in objects(chunk.get("choices")):
            index = as_integer(piece.get("index")) or 0
            _join_choice(choices.setdefault(index, {"index": index}), piece)
    if not whole and not choices:
        return None
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def _join_choice(choice: JsonObject, piece: JsonObject) -> None:
    for name, value in piece.items():
        if name == "text" and isinstance(value, str):
            choice[name] = (as_text(choice.get(name)) or "") + value
        else:
            join_field(choice, name, value)
