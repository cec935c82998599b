"""What a request asks of a model, whatever API it is written in: a conversation, and how to answer it.

The conversation is read by the dialect's own reader, so that a model is shown what a gateway
captures. What would change an answer and is not done here is refused; what would not is passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from train.chat import UnrenderableError, to_chat, to_tools
from train.types import Sampling
from trajectory.call import Call, CallKind
from trajectory.canonical import JsonObject
from trajectory.dialects.registry import read_request
from trajectory.dialects.wire import as_list, as_object, as_text, request_json
from trajectory.dialects.writer import AnsweredRequest
from trajectory.exchange import Headers
from trajectory.message import Message

_MOST_STOPS = 16
"""Each is looked for at every token, while others wait."""
_NO_PENALTY = (None, 0)


class BadRequestError(ValueError):
    """The request cannot be answered; the text says which field and why."""


@dataclass(frozen=True, slots=True)
class _RequestFields:
    """Where an API's requests say what an answer is to be like."""

    conversation: str
    most_tokens: tuple[str, ...]
    neutral: Mapping[str, tuple[Any, ...]]
    """What would change the answer and is not done here, with the values that ask for nothing."""
    stop: str = "stop"
    top_p: str = "top_p"
    top_k: str = "top_k"
    tool_choice: str = "tool_choice"
    top_logprobs: str = "top_logprobs"
    nested: bool = False
    """Whether sampling parameters have an object of their own."""


_TEXT = (None, "text")
_FIELDS = {
    "openai.chat": _RequestFields(
        "messages",
        ("max_completion_tokens", "max_tokens"),
        {
            "n": (None, 1),
            "frequency_penalty": _NO_PENALTY,
            "presence_penalty": _NO_PENALTY,
            "logit_bias": (None, {}),
            "response_format": (None, {"type": "text"}),
        },
    ),
    "openai.responses": _RequestFields(
        "input",
        ("max_output_tokens",),
        {
            "background": (None, False),
            "conversation": (None,),
            "prompt": (None,),
            "text.format.type": _TEXT,
        },
    ),
    "openai.completions": _RequestFields(
        "prompt",
        ("max_tokens",),
        {
            "n": (None, 1),
            "best_of": (None, 1),
            "echo": (None, False),
            "suffix": (None, ""),
            "frequency_penalty": _NO_PENALTY,
            "presence_penalty": _NO_PENALTY,
            "logit_bias": (None, {}),
        },
        top_logprobs="logprobs",
    ),
    "anthropic.messages": _RequestFields(
        "messages",
        ("max_tokens",),
        {"output_format": (None,), "output_config.format": (None,), "mcp_servers": (None, [])},
        stop="stop_sequences",
        tool_choice="tool_choice.type",
    ),
    "google.gemini": _RequestFields(
        "contents",
        ("maxOutputTokens",),
        {
            "candidateCount": (None, 1),
            "responseMimeType": (None, "text/plain"),
            "responseSchema": (None,),
            "responseJsonSchema": (None,),
            "responseModalities": (None, ["TEXT"]),
            "frequencyPenalty": _NO_PENALTY,
            "presencePenalty": _NO_PENALTY,
            "cachedContent": (None,),
        },
        stop="stopSequences",
        top_p="topP",
        top_k="topK",
        tool_choice="toolConfig.functionCallingConfig.mode",
        top_logprobs="logprobs",
        nested=True,
    ),
    "ollama": _RequestFields(
        "messages",
        ("num_predict",),
        {
            "format": (None, ""),
            "suffix": (None, ""),
            "template": (None, ""),
            "context": (None, []),
            "logprobs": (None, False),
            "frequency_penalty": _NO_PENALTY,
            "presence_penalty": _NO_PENALTY,
        },
        nested=True,
    ),
}
"""By the dialect's name: the APIs that are spoken here."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, read."""

    dialect: str
    asked: AnsweredRequest = field(repr=False)
    """The request as it came: its answer's writer looks there for what the client wants to see."""
    model: str
    """The version that is to answer."""
    context: tuple[Message, ...] = field(repr=False)
    """The conversation."""
    tools: list[dict[str, Any]] = field(repr=False)
    sampling: Sampling
    stop: tuple[str, ...]
    raw: str | tuple[int, ...] | None = field(default=None, repr=False)
    """A prompt that no chat template is to change: its text or its token ids."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation as chat templates take it.

        Raises:
            BadRequestError: it holds what no text template can show.
        """
        try:
            return [chat for message in self.context for chat in to_chat(message)]
        except UnrenderableError as error:
            where = _FIELDS[self.dialect].conversation
            text = f"{where}: {error.reason} cannot be shown to this model"
            raise BadRequestError(text) from None


def read_model_request(path: str, query: str, headers: Headers, body: bytes) -> ModelRequest:
    """Read a request in the dialect of its path.

    Raises:
        BadRequestError: it is not such a request, or asks for what is not done here.
    """
    call = read_request(path, headers, body, query)
    if call.kind is not CallKind.MODEL:
        raise BadRequestError(f"the body cannot be read ({call.problem})")
    fields = _FIELDS[call.dialect]
    value = request_json(call.exchange)
    options = call.sampling if fields.nested else {**value, **call.sampling}
    for name, neutral in fields.neutral.items():
        if _at({**value, **options}, name) not in neutral:
            raise BadRequestError(f"{name}: this server knows no other value than {neutral[-1]!r}")
    if "message.output_text.logprobs" in as_list(options.get("include")):
        raise BadRequestError("include: log probabilities come with return_token_ids and logprobs")
    raw = _raw(call, value)
    if raw is None and not call.context and not value.get("previous_response_id"):
        raise BadRequestError(f"{fields.conversation}: a conversation is needed")
    return ModelRequest(
        dialect=call.dialect,
        asked=AnsweredRequest(value, path, query),
        # The gateway writes there the version that it chose, also where an API names models in paths.
        model=as_text(value.get("model")) or call.model_requested or "",
        context=call.context,
        tools=_tools(call, value, _at(options, fields.tool_choice)),
        sampling=_sampling(options, fields),
        stop=_stop(options.get(fields.stop), fields.stop),
        raw=raw,
    )


def _at(options: JsonObject, name: str) -> Any:
    """Return an option; the parts of its name lead to it."""
    *outer, last = name.split(".")
    for part in outer:
        options = as_object(options.get(part))
    return options.get(last)


def _raw(call: Call, value: JsonObject) -> str | tuple[int, ...] | None:
    if call.dialect == "ollama" and value.get("raw") is True:
        return as_text(value.get("prompt")) or ""
    if call.dialect != "openai.completions":
        return None
    prompt = value.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # of several prompts, one
    if isinstance(prompt, str):
        return prompt
    ids = [one for one in as_list(prompt) if isinstance(one, int) and not isinstance(one, bool)]
    if not ids or len(ids) != len(as_list(prompt)):
        raise BadRequestError("prompt: one text or one list of token ids is needed")
    return tuple(ids)


def _tools(call: Call, value: JsonObject, choice: Any) -> list[dict[str, Any]]:
    if not isinstance(value.get("tools") or [], list):
        raise BadRequestError("tools: a list of tools is needed")
    if str(choice or "auto").lower() not in ("auto", "none"):
        raise BadRequestError(
            "tool_choice: this server knows no other value than 'auto' and 'none'"
        )
    for tool in call.tools:
        named = as_object(tool.get("function")) or tool
        runs_here = tool.get("type") in (None, "function", "namespace") or "input_schema" in tool
        if not runs_here or as_text(named.get("name")) is None:
            raise BadRequestError(
                "tools: this server shows functions to its models, no other tools"
            )
    return [] if choice is not None and str(choice).lower() == "none" else to_tools(call.tools)


def _stop(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value or "", str | list):
        raise BadRequestError(f"{name}: a text or a list of texts is needed")
    texts = [value] if isinstance(value, str) else list(value or ())
    if len(texts) > _MOST_STOPS:
        raise BadRequestError(f"{name}: at most {_MOST_STOPS} texts are taken")
    return tuple(str(text) for text in texts if text)


def _sampling(options: JsonObject, fields: _RequestFields) -> Sampling:
    given = [options[name] for name in fields.most_tokens if options.get(name) is not None]
    most = next(iter(given), None)
    # Ollama asks for as many as there is room for with a negative number.
    endless = fields.most_tokens == ("num_predict",) and isinstance(most, int) and most < 0
    try:
        sampling = Sampling(
            temperature=float(_or(options.get("temperature"), 1.0)),
            top_p=float(_or(options.get(fields.top_p), 1.0)),
            top_k=_whole(_or(options.get(fields.top_k), 0)),
            max_tokens=None if most is None or endless else _whole(most),
            seed=None if options.get("seed") is None else _whole(options["seed"]),
            top_logprobs=_whole(_or(options.get(fields.top_logprobs), 0)),
        )
    except (TypeError, ValueError, OverflowError):
        raise BadRequestError(
            f"temperature and {fields.top_p} are numbers; {fields.most_tokens[-1]}, seed and "
            f"{fields.top_logprobs} are whole ones"
        ) from None
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise BadRequestError(f"{fields.most_tokens[-1]} must be at least 1")
    if not 0 <= sampling.temperature <= 2 or not 0 < sampling.top_p <= 1:
        raise BadRequestError(
            f"temperature lies between 0 and 2, {fields.top_p} above 0 and at most at 1"
        )
    if not 0 <= sampling.top_logprobs <= 20:
        raise BadRequestError(f"{fields.top_logprobs} lies between 0 and 20")
    return sampling


def _whole(value: Any) -> int:
    """Return a whole number; true and 2.7 are none.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError
    return int(value)


def _or(value: Any, default: float) -> Any:
    return default if value is None else value
