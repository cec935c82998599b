"""Credentials: found where clients put them, replaced before anything is written."""

from proxy.credentials import Fingerprints, presented_key

PRINTS = Fingerprints(b"k" * 32)


def test_the_key_is_found_in_each_header() -> None:
    assert presented_key(((b"Authorization", b"Bearer hr_a_b"),)) == ("hr_a_b", b"authorization")
    assert presented_key(((b"X-API-Key", b"hr_a_b"),)) == ("hr_a_b", b"x-api-key")
    assert presented_key(((b"x-goog-api-key", b" hr_a_b "),)) == ("hr_a_b", b"x-goog-api-key")
    both = ((b"authorization", b"Bearer sk-own"), (b"x-headrace-key", b"hr_a_b"))
    assert presented_key(both) == ("hr_a_b", b"x-headrace-key")
    assert presented_key(((b"authorization", b"Bearer sk-own"),)) == (None, None)


def test_fingerprints_are_keyed_and_equal_for_equal_values() -> None:
    (name, value), (other, kept) = PRINTS.headers(((b"X-Api-Key", b"sk"), (b"Accept", b"x")))
    assert (name, other, kept) == (b"x-api-key", b"accept", b"x")
    assert value.startswith(b"fp:")
    assert b"sk" not in value
    assert value == PRINTS.of(b"sk")
    assert value != Fingerprints(b"z" * 32).of(b"sk")


def test_queries_lose_their_credentials() -> None:
    out = PRINTS.query(b"key=AIza&alt=sse&monkey=1&API_KEY=x")
    assert out.startswith(b"key=fp:")
    assert b"alt=sse&monkey=1&API_KEY=fp:" in out
    assert b"AIza" not in out
    assert PRINTS.query(b"") == b""


def test_keys_of_sockets_and_signed_addresses_are_fingerprinted() -> None:
    prints = Fingerprints(b"k" * 32)
    offered = (b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key.sk-secret")
    subscribed = (b"Ocp-Apim-Subscription-Key", b"sk-secret")
    assert b"sk-secret" not in str(prints.headers((offered, subscribed))).encode()
    query = b"X-Amz-Signature=sk-secret&model=m&X-Amz-Security-Token=sk-secret&subscription-key=sk-secret"
    assert b"sk-secret" not in prints.query(query)
    assert b"&model=m&" in prints.query(query)


def test_headers_that_routes_name_are_replaced_too() -> None:
    fields = ((b"X-Own-Key", b"secret"),)
    assert PRINTS.headers(fields) == [(b"x-own-key", b"secret")]
    ((_, named),) = Fingerprints(b"k" * 32, also=(b"x-own-KEY",)).headers(fields)
    assert named == PRINTS.of(b"secret")
