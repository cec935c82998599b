"""The probe: whether an upstream's model says surrogates again whole."""

import json
import socket

from proxy.config import Route
from proxy.inline.probe import VALUES, InlineProbe, probe_inline
from proxy.inline.route import InlineTerms
from tests.support.echo import echo
from tests.support.upstream import ReceivedRequest, Reply, Upstream, plain
from trajectory.surrogate import FORM, PseudonymisedText, surrogate

KEY = b"k" * 32


class Pseudonymizer:
    """Finds what the probe plants."""

    def __init__(self, *misses: str) -> None:
        self._misses = misses

    def pseudonymise(self, body: str, *_: object, **__: object) -> PseudonymisedText:
        issued = {surrogate(KEY, "PERSON", one): one for one in VALUES if one not in self._misses}
        for name, value in issued.items():
            body = body.replace(value, name)
        return PseudonymisedText(body, issued, {}, frozenset(), ())


def probed(upstream: Upstream, *misses: str) -> InlineProbe:
    return probed_at(upstream.url, *misses)


def probed_at(url: str, *misses: str) -> InlineProbe:
    terms = InlineTerms(("engine",), (Pseudonymizer(*misses),), KEY)
    route = Route.model_validate({"name": "engine", "upstream": url})
    (choice,) = route.choices
    return probe_inline(route, choice, terms, model="m")


def test_a_model_that_copies_is_sound() -> None:
    with Upstream(echo) as upstream:
        found = probed(upstream)
    assert found.is_sound
    assert (found.returned, found.returned_streamed, found.unknown) == (4, 4, 0)
    assert not any(value.encode() in one.body for one in upstream.seen for value in VALUES)


def test_messages_are_asked_where_there_are_no_chats() -> None:
    def only_messages(request: ReceivedRequest) -> Reply:
        return echo(request) if request.target.endswith("/messages") else plain(404, b"")

    with Upstream(only_messages) as upstream:
        assert probed(upstream).is_sound


def test_torn_surrogates_and_what_goes_out_are_counted() -> None:
    def tears(request: ReceivedRequest) -> Reply:
        text = json.loads(request.body)["messages"][0]["content"]
        return echo(request, lambda _: FORM.sub(lambda found: found[0][:18], text))

    with Upstream(tears) as upstream:
        found = probed(upstream, VALUES[0])
    assert not found.is_sound
    assert (found.sent, found.returned, found.unknown) == (1, 1, 6)


def test_what_fails_is_told() -> None:
    with Upstream(lambda _: plain(500, b"")) as upstream:
        found = probed(upstream)
    assert (found.is_sound, found.problem) == (False, "it answered 500")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        nobody = probed_at(f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert not nobody.is_sound
    assert nobody.problem.startswith("ConnectError")
