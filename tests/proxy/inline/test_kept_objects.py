"""Paths name what a provider keeps; what only looks like it is none."""

import pytest

from proxy.inline.kept_objects import from_the_start, kept_object


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("GET", "/v1/responses/resp_1?include=x", ("responses", "resp_1", "", None)),
        ("GET", "/v1/responses/r?stream=true&starting_after=7", ("responses", "r", "", 7)),
        (
            "GET",
            "/v1/responses/r/input_items?starting_after=7",
            ("responses", "r", "input_items", None),
        ),
        ("POST", "/openai/v1/responses/r/cancel", ("responses", "r", "cancel", None)),
        ("POST", "/v1/conversations/c", ("conversations", "c", "", None)),
        ("DELETE", "/v1/conversations/c/items/m", ("conversations", "c", "items", None)),
        ("GET", "/v1/files/f/content", ("files", "f", "content", None)),
        ("GET", "/v1/messages/batches/b/results", ("batches", "b", "results", None)),
        ("GET", "/v1/batches/b", ("batches", "b", "", None)),
        ("POST", "/v1/responses/compact", None),
        ("POST", "/v1/files/f/content", None),
        ("GET", "/v1/files/f/content/x", None),
        ("GET", "/v1/vector_stores/v/files/f/content", None),
        ("GET", "/v1/containers/c/files/f/content", None),
        ("GET", "/v1/conversations/c/messages", None),
        ("GET", "/v1/files?after=f", ("files", "", "", None)),
        ("GET", "/v1/batches", ("batches", "", "", None)),
        ("GET", "/v1/messages/batches?limit=2", ("batches", "", "", None)),
        ("GET", "/v1/chat/completions?limit=2", ("chat/completions", "", "", None)),
        ("GET", "/v1/chat/completions/c/messages", ("chat/completions", "c", "messages", None)),
        ("DELETE", "/v1/chat/completions/c", ("chat/completions", "c", "", None)),
        ("POST", "/v1/chat/completions/c", None),
        ("POST", "/v1/chat/completions", None),
        ("POST", "/v1/files", None),
        ("DELETE", "/v1/batches", None),
        ("GET", "/v1/vector_stores/v/files", None),
        ("GET", "/v1/conversations", None),
    ],
)
def test_a_path_is_about_what_it_names(method: str, path: str, found: object) -> None:
    assert kept_object(method.encode(), path.encode()) == found


def test_all_of_a_stream_is_asked_for_with_all_else_that_was() -> None:
    assert from_the_start(b"/r?a=1&starting_after=7&b=2") == b"/r?a=1&b=2"
    assert from_the_start(b"/r?starting_after=7") == b"/r"
    assert from_the_start(b"/r?not_starting_after=7") == b"/r?not_starting_after=7"
