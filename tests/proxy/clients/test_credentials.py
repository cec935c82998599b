"""Credentials: found where clients put them, replaced before anything is written."""

import pytest

from proxy.clients.credentials import Fingerprints, presented_key

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


@pytest.mark.parametrize(
    "name",
    [
        *("apikey", "apiKey", "api_key", "API-Key", "api.key", "api%5Fkey", "appid", "app_key"),
        *("client_secret", "clientSecret", "password", "passwd", "auth_token", "access_token"),
        *("refresh_token", "id_token", "sig", "Signature", "sas", "X-Amz-Signature", "jwt"),
        *("X-Amz-Credential", "X-Goog-Signature", "X-Amz-Security-Token", "AWSAccessKeyId"),
        *("subscription-key", "x-functions-key", "hapikey", "private_token", "code", "token"),
        *("client_assertion", "code_verifier", "k%65y", "session_token"),
    ],
)
def test_credentials_in_a_query_are_known_however_they_are_written(name: str) -> None:
    out = PRINTS.query(f"q=Bern&{name}=S%2FECRET;x=1&b".encode())
    assert out == f"q=Bern&{name}=".encode() + PRINTS.of(b"S%2FECRET;x=1") + b"&b"
    for before in ("q=a;", "a;"):
        out = PRINTS.query(f"{before}{name}=SECRET".encode())
        assert out == f"{before}{name}=".encode() + PRINTS.of(b"SECRET")


@pytest.mark.parametrize(
    "query",
    [
        b"q=a&page_token=b&nextPageToken=c&max_tokens=9&continuation-token=d&monkey=e&keyword=f",
        b"key&token&apikey",
        b"q=apikey%3D1&countryCode=CH&zip_code=3000&appointment=1&passenger=2&author=x&design=y",
        b"=&&;=x",
    ],
)
def test_other_parameters_stay(query: bytes) -> None:
    assert PRINTS.query(query) == query


@pytest.mark.parametrize(
    "name",
    [
        *(b"X-RapidAPI-Key", b"apikey", b"X-Vault-Token", b"DD-API-KEY", b"DD-Application-Key"),
        *(b"X-Shopify-Access-Token", b"X-Client-Secret", b"X-Hub-Signature", b"X-Functions-Key"),
        *(b"X-Forwarded-Authorization", b"X-Amz-Security-Token", b"Cookie", b"X-API_Key"),
    ],
)
def test_credentials_in_headers_are_known_however_they_are_written(name: bytes) -> None:
    ((_, value),) = PRINTS.headers(((name, b"secret"),))
    assert value == PRINTS.of(b"secret")
    assert b"secret" not in PRINTS.block(((name, b"secret"),))


def test_addresses_in_headers_lose_the_credentials_of_their_queries() -> None:
    fields = (
        (b"Location", b"https://x.example/cb?code=secret&state=1#access_token=secret"),
        (b"Referer", b"https://x.example/?q=1&apiKey=secret"),
        (b"Accept", b"?key=kept"),
        (b"Idempotency-Key", b"kept"),
        (b"X-RateLimit-Remaining-Tokens", b"100"),
        (b"Sec-WebSocket-Key", b"kept"),
    )
    for kept in (PRINTS.block(fields), repr(PRINTS.headers(fields)).encode()):
        assert b"secret" not in kept
        assert kept.count(b"kept") == 3
        assert b"state=1" in kept
        assert b"100" in kept
