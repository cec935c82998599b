"""What a path says of a request's cost: what a model answers, what is free, and what is paid later."""

import pytest

from proxy.clients.paid_calls import PaidCall, costs, is_paid_later, paid_call


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/responses", "/v1/messages", "/openai/v1/responses?x=/files"),
        *("/v1beta/models/gemini-3:streamGenerateContent", "/model/claude/converse", "/api/chat"),
        *("/v1/audio/transcriptions", "/v1/images/edits", "/v1/embeddings", "/generate"),
        *("/v1beta/interactions", "/v1/files/../chat/completions", "/v1/files/.%2E/responses"),
    ],
)
def test_calls_of_models_cost(path: str) -> None:
    assert costs(b"POST", path.encode())
    assert not costs(b"GET", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/files", "/upload/v1beta/files", "/v1/uploads/upload_1/parts", "/v1/batches"),
        *("/v1/messages/batches", "/v1/messages/count_tokens", "/v1/responses/input_tokens"),
        *("/v1/responses/resp_1/cancel", "/v1beta/models/gemini-3:countTokens", "/tokenize"),
        *("/v1/vector_stores/vs_1/files", "/v1beta/cachedContents", "/model/claude/count-tokens"),
        *("/models/count-tokens:rawPredict", "/v1/realtime/client_secrets", "/api/show"),
        "/v1/fine_tuning/jobs",
    ],
)
def test_what_is_kept_or_only_counted_costs_nothing(path: str) -> None:
    assert not costs(b"POST", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/v1/batches",
            "/v1/messages/batches/",
            "/openai/batches?api-version=1",
            "/v1/batch/jobs",
        ),
        *("/v1/fine_tuning/jobs", "/v1/fine-tuning/jobs", "/v1beta/tunedModels", "/v1/videos"),
        *("/v1beta/models/gemini-3:batchGenerateContent", "/v1/evals/eval_1/runs", "/async-invoke"),
        *("/v1/b%61tches", "/v1//Batches", "/v1/files/../batches", "/model-invocation-job"),
    ],
)
def test_what_is_paid_later_is_told_by_its_path(path: str) -> None:
    assert is_paid_later(b"POST", path.encode())
    assert not is_paid_later(b"GET", path.encode())


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/batches/batch_1/cancel", "/v1/fine_tuning/jobs/j/pause", "/v1/chat/completions"),
        *("/v1beta/models/gemini-3:batchEmbedContents", "/v1beta/tunedModels/m:generateContent"),
    ],
)
def test_other_requests_are_not_paid_later(path: str) -> None:
    assert not is_paid_later(b"POST", path.encode())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/model/us.anthropic.claude-opus-5-v1%3A0/converse-stream",
         PaidCall(model="us.anthropic.claude-opus-5-v1:0", only_path_names=True)),
        ("/model/meta.llama4/invoke-with-response-stream", PaidCall(model="meta.llama4")),
        ("/model/amazon.titan-embed-text-v2:0/invoke",
         PaidCall(model="amazon.titan-embed-text-v2:0", makes_vectors=True)),
        ("/v1beta/models/gemini-embedding-001:embedContent",
         PaidCall(model="gemini-embedding-001", makes_vectors=True)),
        ("/v1/embeddings", PaidCall(makes_vectors=True)),
        ("/v1/audio/transcriptions", PaidCall(hears=True)),
        ("/v1/audio/speech", PaidCall()),
        ("/v1/files", None),
    ],
)  # fmt: skip
def test_a_path_tells_model_and_kind(path: str, expected: PaidCall | None) -> None:
    assert paid_call(b"POST", path.encode()) == expected
    assert paid_call(b"GET", path.encode()) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/responses/resp_1", PaidCall(looks_up=True)),
        ("/v1/respons%65s/resp_1", PaidCall(looks_up=True)),
        ("/v1//files/../Responses/resp_1/", PaidCall(looks_up=True)),
        ("/v1/responses%00/resp_1", PaidCall(looks_up=True)),
        ("/v1beta/interactions/v1_a", PaidCall(looks_up=True, keeps=True, name="v1_a")),
        ("/v1/chat/deferred-completion/f15c-114e",
         PaidCall(looks_up=True, keeps=True, name="f15c-114e")),
        ("/v1/chat/deferred%2Dcompletion/f15c?x=1",
         PaidCall(looks_up=True, keeps=True, name="f15c")),
        ("/v1/chat/completions/chatcmpl-1", None),
        ("/v1/responses/resp_1/input_items", None),
    ],
)  # fmt: skip
def test_a_look_up_brings_an_answer_that_was_not_paid_yet(
    path: str, expected: PaidCall | None
) -> None:
    assert paid_call(b"GET", path.encode()) == expected
    assert not costs(b"GET", path.encode())


@pytest.mark.parametrize(
    "path", ["/v1/fine_tuning/alpha/graders/run", "/openai/v1/fine_tuning/%61lpha//graders/run/"]
)
def test_a_grader_costs_what_it_tells(path: str) -> None:
    assert costs(b"POST", path.encode())
    assert paid_call(b"POST", path.encode()) == PaidCall(only_reported=True)
    assert paid_call(b"POST", b"/v1/fine_tuning/alpha/graders/validate") is None
