"""Routing: prefixes, hosts, sessions in URLs, and headers that go no further."""

import tracemalloc

import pytest

from proxy.config import GatewayConfig
from proxy.routes.router import Router
from proxy.routes.upstream_request import rewrite_headers, take_session


def router(**settings: object) -> Router:
    routes = [
        {"name": "openai", "upstream": "https://api.openai.com"},
        {"name": "deep", "prefix": "/openai/deep", "upstream": "http://10.0.0.1:8000"},
    ]
    return Router(GatewayConfig.model_validate({"routes": routes, **settings}))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"/openai/v1/x", "openai"),
        (b"/openai", "openai"),
        (b"/openai?x=1", "openai"),
        (b"/openai/deep/v1", "deep"),
        (b"/openaix/v1", None),
        (b"/", None),
    ],
)
def test_the_longest_prefix_wins(path: bytes, name: str | None) -> None:
    plan = router().by_path(path)
    assert (plan.name if plan else None) == name


@pytest.mark.parametrize("host", ["api.openai.com", "API.OpenAI.com", "api.openai.com."])
def test_a_host_leads_to_its_route_however_it_is_written(host: str) -> None:
    plan, target = router().by_host(host, 443, b"/v1/models")
    assert plan.name == "openai"
    assert target is not None


def test_only_configured_hosts_are_intercepted() -> None:
    gate = router(intercept_hosts=["*.example.com", "tools.internal:8443"])
    assert gate.intercepts("api.openai.com", 443)
    assert gate.intercepts("API.OpenAI.com.", 443)
    assert not gate.intercepts("api.openai.com", 8443)
    assert not gate.intercepts("evil-api.openai.com", 443)
    assert not gate.intercepts("api.openai.com.evil.test", 443)
    assert gate.intercepts("a.example.com", 443)
    assert not gate.intercepts("example.com", 443)
    assert not gate.intercepts("notexample.com", 443)
    assert gate.intercepts("tools.internal", 8443)
    assert not gate.intercepts("tools.internal", 443)
    assert not router(intercept_route_hosts=False).intercepts("api.openai.com", 443)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/s/run-1/v1/x", (b"/v1/x", b"run-1")),
        (b"/s//v1", (b"/s//v1", None)),
        (b"/s/run", (b"/s/run", None)),
        (b"/v1/s/x/y", (b"/v1/s/x/y", None)),
    ],
)
def test_a_session_is_taken_off(path: bytes, expected: tuple[bytes, bytes | None]) -> None:
    assert take_session(path) == expected


def test_headers_keep_order_and_case_and_lose_what_is_ours() -> None:
    fields = (
        (b"HOST", b"gateway"),
        (b"Authorization", b"Bearer hr_a_b"),
        (b"X-Api-Key", b"old"),
        (b"X-Headrace-Session", b"s"),
        (b"X-Headrace-Key", b"hr_a_b"),
        (b"Proxy-Authorization", b"Basic x"),
        (b"Accept", b"*/*"),
    )
    rewritten = rewrite_headers(
        fields,
        host=b"upstream",
        key_header=b"authorization",
        credential=(b"authorization", b"Bearer sk"),
        added=((b"x-headrace-url-session", b"u"),),
    )
    assert rewritten.sent == (
        (b"HOST", b"upstream"),
        (b"authorization", b"Bearer sk"),
        (b"Accept", b"*/*"),
    )
    assert rewritten.kept == (
        *rewritten.sent,
        (b"X-Headrace-Session", b"s"),
        (b"x-headrace-url-session", b"u"),
    )


def test_heads_of_thousands_of_names_leave_nothing_in_memory() -> None:
    """Sets of names are remembered, but a client could send others each time."""

    def rewrite(turn: int) -> None:
        fields = tuple([(b"x-%d-%d" % (turn, number), b"") for number in range(2000)])
        rewritten = rewrite_headers(fields, host=None, key_header=None, credential=None)
        assert rewritten.sent == fields

    rewrite(0)
    tracemalloc.start()
    try:
        for turn in range(1, 31):
            rewrite(turn)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
