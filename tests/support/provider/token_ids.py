"""A provider whose chat completions have token ids, as servers of open models give them."""

import hashlib

from tests.support.upstream import ReceivedRequest, Reply, as_json


def with_token_ids(request: ReceivedRequest) -> Reply:
    """Answer with token ids, each call with an id of its own."""
    name = hashlib.sha256(request.body).hexdigest()[:12]
    said = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Two days."},
    }
    said |= {
        "token_ids": [7, 8],
        "logprobs": {
            "content": [
                {"token": one, "logprob": -0.5, "top_logprobs": []} for one in ("Two", " days.")
            ]
        },
    }
    base = {"id": f"chatcmpl-{name}", "object": "chat.completion", "created": 1, "model": "m"}
    return as_json({**base, "prompt_token_ids": [1, 2, 3], "choices": [said]})
