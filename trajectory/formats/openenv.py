"""OpenEnv's ``TrainingTrace`` (schema version 1): engine calls with exact tokens, as TRL reads them.

A turn needs the engine's own prompt tokens, completion tokens, and one log probability for each of
these; steps without them cannot stand in a trace. ``validate`` checks what OpenEnv checks, under
OpenEnv's own codes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from trajectory.call import TokenCapture
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.hints import people_in
from trajectory.dialects.openai_chat.read import read_message, read_usage
from trajectory.dialects.wire import as_id, as_list, as_object, as_text, objects
from trajectory.formats.chains import ChainTurn, chain
from trajectory.formats.document import KEY, Carrier, DocumentFormat, need_list
from trajectory.formats.openai_messages import write_message
from trajectory.json_form import FormError
from trajectory.message import Message
from trajectory.portable import PortableStep, Trajectory

SCHEMA_VERSION = 1
_ROUNDING = 0.0001
_TURN_FIELDS = frozenset(
    {
        "node_id",
        "prompt_token_ids",
        "completion_token_ids",
        "per_token_logps",
        "loss_mask",
        "request",
        "response",
        "metadata",
    }
)


@dataclass(frozen=True, slots=True)
class OpenEnvProblem:
    """What a check found."""

    level: Literal["FATAL", "WARN"]
    """FATAL: OpenEnv refuses the trace. WARN: it is trainable, but look at it."""
    code: str
    """OpenEnv's word: ``logprob_misalign``, ``trainable_prompt`` …; our own begin with ``trace_``."""
    where: str
    """``turns[2]``."""


def validate(document: JsonObject) -> list[OpenEnvProblem]:
    """Return what is wrong with a trace; with no FATAL in it OpenEnv and TRL accept it."""
    found: list[OpenEnvProblem] = []
    version = document.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        found.append(OpenEnvProblem("FATAL", "trace_version", "schema_version"))
    turns = document.get("turns")
    if not isinstance(turns, list) or set(document) - {"schema_version", "turns"}:
        found.append(OpenEnvProblem("FATAL", "trace_shape", "document"))
    names: set[JsonValue] = set()
    for index, item in enumerate(as_list(turns)):
        where, turn = f"turns[{index}]", as_object(item)
        name = turn.get("node_id")
        if not as_text(name) or set(turn) - _TURN_FIELDS:
            found.append(OpenEnvProblem("FATAL", "trace_shape", where))
        elif name in names:
            found.append(OpenEnvProblem("FATAL", "trace_duplicate_node", where))
        else:
            names.add(name)
        found += [OpenEnvProblem(level, code, where) for level, code in turn_codes(turn)]
    return found


def turn_codes(turn: JsonObject) -> list[tuple[Literal["FATAL", "WARN"], str]]:
    """Return OpenEnv's words for what is wrong with the tokens of one turn."""
    prompt, made = as_list(turn.get("prompt_token_ids")), as_list(turn.get("completion_token_ids"))
    logprobs, mask = as_list(turn.get("per_token_logps")), as_list(turn.get("loss_mask"))
    codes: list[tuple[Literal["FATAL", "WARN"], str]] = []
    if not all(_is_token(item) for item in (*prompt, *made)):
        codes.append(("FATAL", "invalid_token_id"))
    if not all(_is_finite(item) for item in logprobs):
        codes.append(("FATAL", "invalid_logprob"))
    elif any(cast(float, item) > 0 for item in logprobs):
        codes.append(("FATAL", "positive_logprob"))
    if not prompt:
        codes.append(("FATAL", "no_prompt_ids"))
    if not made:
        codes.append(("WARN", "no_sampled_ids"))
    if len(logprobs) != len(made):
        codes.append(("FATAL", "logprob_misalign" if logprobs else "no_logprobs"))
    if len(mask) != len(prompt) + len(made):
        codes.append(("FATAL", "length_mismatch"))
    elif any(isinstance(item, bool) or item not in (0, 1) for item in mask):
        codes.append(("FATAL", "invalid_loss_mask"))
    elif any(mask[: len(prompt)]):
        codes.append(("FATAL", "trainable_prompt"))
    if made and mask and not any(mask):
        codes.append(("WARN", "nothing_trainable"))
    if as_text(_choice(turn).get("finish_reason")) == "length":
        codes.append(("WARN", "truncated_turn"))
    return codes


def fatal_code(
    prompt: Sequence[int] | None, completion: Sequence[int], logprobs: Sequence[float] | None
) -> str | None:
    """Return the first word for which OpenEnv would refuse these tokens; None when there is none.

    What the engine did not give (prompt tokens, all logprobs) is not judged: nobody made it up.
    An engine's rounding lifts a logprob of 0 a little.
    """
    before = [0] if prompt is None else list(prompt)
    given = [-0.0] * len(completion) if logprobs is None else logprobs
    turn: JsonObject = {
        "prompt_token_ids": list[JsonValue](before),
        "completion_token_ids": list[JsonValue](completion),
        "per_token_logps": [min(one, 0.0) if one <= _ROUNDING else one for one in given],
        "loss_mask": list[JsonValue]([0] * len(before) + [1] * len(completion)),
    }
    return next((code for level, code in turn_codes(turn) if level == "FATAL"), None)


def _is_token(item: JsonValue) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


def _is_finite(item: JsonValue) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool) and math.isfinite(item)


def _choice(turn: JsonObject) -> JsonObject:
    return next(iter(objects(as_object(turn.get("response")).get("choices"))), {})


def _read(document: JsonObject, where: str) -> Trajectory:
    turns = need_list(document, "turns", where)
    for finding in validate(document):
        if finding.level == "FATAL":
            raise FormError(f"{where}: {finding.where}: {finding.code}")
    if not turns:
        raise FormError(f"{where}: turns: a trace without a turn holds nothing")
    read = [ChainTurn(_context(turn), _step(turn), index) for index, turn in enumerate(turns)]
    # One document is one path; other calls stay in what the document holds more.
    path = max(chain(read), key=lambda one: (len(one), -one[0].position))
    tools = as_object(turns[path[-1].position].get("request")).get("tools")
    named = dict.fromkeys(one for turn in turns for one in _users(turn))
    return Trajectory(
        tuple(turn.step for turn in path), tools=tuple(objects(tools)), also_named=tuple(named)
    )


def _users(turn: JsonObject) -> tuple[str, ...]:
    """Return whom the request of a turn names as the one who used the application."""
    request = as_object(turn.get("request"))
    own = (as_id(request.get(name)) for name in ("user", "safety_identifier"))
    return people_in((), own, request)


def _context(turn: JsonObject) -> tuple[Message, ...]:
    messages = as_object(turn.get("request")).get("messages")
    return tuple(read_message(item) for item in objects(messages))


def _step(turn: JsonObject) -> PortableStep:
    prompt = cast(list[int], turn["prompt_token_ids"])
    made = cast(list[int], turn["completion_token_ids"])
    logprobs = cast(list[float], turn["per_token_logps"])
    mask = cast(list[int], turn["loss_mask"])[len(prompt) :]
    metadata, response = as_object(turn.get("metadata")), as_object(turn.get("response"))
    message = as_object(_choice(turn).get("message"))
    return PortableStep(
        observed=(),
        output=read_message({**message, "role": "assistant"}),
        step_id=as_text(turn.get("node_id")),
        model=as_text(metadata.get("model")),
        response_id=as_text(response.get("id")),
        finish_reason=as_text(_choice(turn).get("finish_reason")),
        sampling=as_object(metadata.get("sampling_params")),
        usage=read_usage(response.get("usage")),
        tokens=TokenCapture(tuple(prompt), tuple(made), tuple(map(float, logprobs))),
        loss_mask=None if all(mask) else tuple(map(bool, mask)),
    )


def _write(trajectory: Trajectory) -> JsonObject:
    turns: list[JsonValue] = []
    said: list[Message] = []
    for number, step in enumerate(trajectory.steps):
        said += step.observed
        if _has_exact_tokens(step):
            turns.append(_turn(step, said, trajectory, number))
        said.append(step.output)
    return {"schema_version": SCHEMA_VERSION, "turns": turns}


def _has_exact_tokens(step: PortableStep) -> bool:
    tokens = step.tokens
    return tokens is not None and bool(tokens.prompt_token_ids) and tokens.logprobs is not None


def _turn(
    step: PortableStep, said: list[Message], trajectory: Trajectory, number: int
) -> JsonObject:
    tokens = step.tokens
    assert tokens is not None  # noqa: S101 - only steps with exact tokens come here
    prompt, made = list(tokens.prompt_token_ids or ()), list(tokens.completion_token_ids)
    mask = [1] * len(made) if step.loss_mask is None else [int(one) for one in step.loss_mask]
    usage = step.usage
    response: JsonObject = {
        "choices": [{"message": write_message(step.output), "finish_reason": step.finish_reason}]
    }
    if step.response_id:
        response["id"] = step.response_id
    if usage.input_tokens is not None and usage.output_tokens is not None:
        response["usage"] = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
        }
    metadata: JsonObject = {"index": number}
    if step.model:
        metadata["model"] = step.model
    if step.sampling:
        metadata["sampling_params"] = step.sampling
    return {
        "node_id": step.step_id or f"step-{number}",
        "prompt_token_ids": list[JsonValue](prompt),
        "completion_token_ids": list[JsonValue](made),
        "per_token_logps": [min(float(one), 0.0) for one in tokens.logprobs or ()],
        "loss_mask": list[JsonValue]([0] * len(prompt) + mask),
        "request": {
            "messages": [write_message(message) for message in said],
            "tools": list(trajectory.tools),
        },
        "response": response,
        "metadata": metadata,
    }


# The free place: the metadata of the first turn.


def _put(document: JsonObject, rest: JsonObject) -> JsonObject | None:
    turns = objects(document.get("turns"))
    if not turns:
        return None
    metadata: JsonObject = {**as_object(turns[0].get("metadata")), KEY: rest}
    return {**document, "turns": [{**turns[0], "metadata": metadata}, *turns[1:]]}


def _take(document: JsonObject) -> tuple[JsonObject, JsonObject]:
    turns = as_list(document.get("turns"))
    first = as_object(turns[0]) if turns else {}
    metadata = as_object(first.get("metadata"))
    rest = metadata.get(KEY)
    if not isinstance(rest, dict):
        return document, {}
    left = {name: item for name, item in metadata.items() if name != KEY}
    return {**document, "turns": [{**first, "metadata": left}, *turns[1:]]}, rest


FORMAT = DocumentFormat(
    "openenv",
    "TrainingTrace 1 (openenv 0.10)",
    _read,
    _write,
    Carrier(_put, _take, f"turns[0].metadata.{KEY}"),
)
import_document = FORMAT.import_document
export_document = FORMAT.export_document

__all__ = ["FORMAT", "OpenEnvProblem", "export_document", "import_document", "validate"]
