"""Log probabilities of hosted models: their mean is kept, and nothing that repeats the answer in pieces."""

import json
from typing import Any

import pytest

from tests.trajectory.world import World
from trajectory.call import Call
from trajectory.reader import read_records

SECRET = "lopez"
PIECES = [
    {
        "token": token,
        "logprob": logprob,
        "bytes": list(token.encode()),
        "top_logprobs": [{"token": token, "logprob": logprob}],
    }
    for token, logprob in (("maria.", -0.5), (SECRET, -1.5))
]


def chat(tokens: list[Any]) -> dict[str, Any]:
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    return {
        "choices": [
            {**choice, "index": at, "logprobs": {"content": tokens, "refusal": None}}
            for at in range(2)
        ],
        "prompt_logprobs": [None, {"7": {"decoded_token": SECRET, "logprob": -1.0}}],
    }


def completion(values: list[Any]) -> dict[str, Any]:
    logprobs = {"tokens": ["maria.", SECRET], "token_logprobs": values, "text_offset": [0, 6]}
    return {"choices": [{"text": "hi", "logprobs": logprobs, "finish_reason": "stop"}]}


def response(tokens: list[Any]) -> dict[str, Any]:
    text = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": tokens}
    message = {"type": "message", "role": "assistant", "content": [text]}
    return {"id": "r", "status": "completed", "output": [message]}


def gemini(**told: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": "hi"}]}
    candidate = {"content": content, "finishReason": "STOP", **told}
    return {"candidates": [candidate, candidate]}


CHOSEN = [{"token": "maria.", "logProbability": -0.5}, {"token": SECRET, "logProbability": -1.5}]
ASKED = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
TOLD = [
    pytest.param("/v1/chat/completions", ASKED, chat(PIECES), id="chat"),
    pytest.param("/v1/completions", {"prompt": "x"}, completion([-0.5, -1.5]), id="completions"),
    pytest.param("/v1/responses", {"input": "x"}, response(PIECES), id="responses"),
    pytest.param(
        "/v1beta/models/m:generateContent",
        {"contents": []},
        gemini(logprobsResult={"chosenCandidates": CHOSEN}, avgLogprobs=-7.0),
        id="gemini",
    ),
    pytest.param(
        "/v1beta/models/m:generateContent",
        {"contents": []},
        gemini(avgLogprobs=-1.0),
        id="gemini mean",
    ),
    pytest.param(
        "/api/chat",
        ASKED,
        {"message": {"role": "assistant", "content": "hi"}, "done": True, "logprobs": PIECES},
        id="ollama",
    ),
]


def read(path: str, request: Any, answer: Any) -> Call:
    (call,), _ = read_records([World().exchange(path, request, answer)])
    return call


@pytest.mark.parametrize(("path", "request_body", "answer"), TOLD)
def test_the_mean_is_kept_and_no_piece_of_the_answer(
    path: str, request_body: Any, answer: Any
) -> None:
    call = read(path, request_body, answer)
    assert call.mean_logprob == -1.0
    assert call.tokens is None
    assert call.output is not None
    kept = json.dumps(call.ext)
    assert SECRET not in kept
    assert "-1.5" not in kept


@pytest.mark.parametrize(
    "values", [[], [None, -1.0], [-1.0, "x"], [-1.0, True], [-1.0, 0.5], [-1.0, float("-inf")]]
)
def test_what_is_no_log_probability_gives_no_mean(values: list[Any]) -> None:
    assert read("/v1/completions", {"prompt": "x"}, completion(values)).mean_logprob is None


def test_a_rounding_error_above_zero_is_certainty() -> None:
    assert read("/v1/completions", {"prompt": "x"}, completion([1e-7])).mean_logprob == 0.0
