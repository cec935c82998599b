"""Sign-in by an identity provider: a real one, over HTTP, by Authlib's server side."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey
from starlette.testclient import TestClient

from headrace.app.context import AppContext
from headrace.app.settings import ConsoleSettings, OidcSettings, RoleGrant, Settings
from headrace.console.app import application
from headrace.console.oidc import IdentityProvider
from headrace.console.page import Console
from headrace.console.sessions import SessionStore
from tests.headrace.console.conftest import HOST, SAME
from tests.headrace.console.test_app import audited
from tests.support.identity_provider import Person, TestProvider, identity_provider
from trajectory.errors import ConfigurationError

CALLBACK = "https://localhost/sign-in/callback"
GRANTS = (RoleGrant(group="leads", role="reviewer", tenant="acme"),)


def ida() -> Person:
    claims = {"email": "ida@example.com", "email_verified": True, "groups": ["staff", "leads"]}
    return Person("17", claims)


@pytest.fixture(scope="module")
def served() -> Iterator[TestProvider]:
    with identity_provider() as provider:
        provider.register("console", "s3cret", CALLBACK)
        yield provider


@pytest.fixture
def provider(served: TestProvider, monkeypatch: pytest.MonkeyPatch) -> TestProvider:
    monkeypatch.setenv("OIDC_SECRET", "s3cret")
    served.person = ida()
    served.changed, served.hides, served.moved, served.signs_with = {}, (), 0, None
    return served


def console_of(console: Console, provider: TestProvider, **changes: Any) -> Console:
    """Return the console with this provider in its settings."""
    given = {"issuer": provider.issuer, "client_id": "console", "client_secret_env": "OIDC_SECRET"}
    oidc = OidcSettings(**{**given, **changes})
    settings = console.running.settings.model_copy(
        update={"console": ConsoleSettings(oidc=oidc, groups=GRANTS)}
    )
    running = AppContext(console.running.home_option, debug=False)
    assert isinstance(settings, Settings)
    running.__dict__["settings"] = settings
    sessions = SessionStore.of(running.home.sessions, settings.console)
    return replace(console, running=running, sessions=sessions, provider=IdentityProvider(oidc))


def browser(console: Console) -> TestClient:
    return TestClient(application(console), base_url=HOST, follow_redirects=False)


def come_back(client: TestClient, then: str = "/home") -> Any:
    """Go to the provider and come back; return the console's answer."""
    went = client.get("/sign-in/provider", params={"next": then})
    assert went.status_code == 303, went.text
    answer = httpx.get(went.headers["location"])
    assert answer.status_code == 302, answer.text
    return client.get(answer.headers["location"])


def test_somebody_signs_in_with_the_roles_of_their_groups(
    console: Console, provider: TestProvider
) -> None:
    client = browser(console_of(console, provider))
    assert urlsplit(provider.issuer).netloc in client.get("/sign-in").text
    came = come_back(client, "/trajectories?outcome=failed")
    assert (came.status_code, came.headers["location"]) == (303, "/trajectories?outcome=failed")
    account = client.get("/account.json").json()
    assert account["name"] == "ida@example.com"
    assert account["authority"] == provider.issuer
    assert account["roles"] == [{"role": "reviewer", "tenant": "acme"}]
    assert client.get("/trajectories/t00002").status_code == 200
    assert client.get("/trajectories/t00002?tenant=globex").status_code == 403
    entries = audited(console)
    assert ("ida@example.com", "console.signed_in", "console") in entries
    assert ("ida@example.com", "content.read", "t00002") in entries
    asked = provider.asked[-1]
    assert asked["code_challenge_method"] == "S256"
    assert len({asked["state"], asked["nonce"], asked["code_challenge"]}) == 3
    left = client.post("/sign-out", headers=SAME)
    assert client.get("/account.json").status_code == 401
    page = client.get(left.headers["location"]).text
    assert f"{provider.issuer}/logout?client_id=console" in page


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"changed": {"iss": "https://evil.example"}}, "does not hold"),
        ({"changed": {"aud": "another"}}, "does not hold"),
        ({"changed": {"aud": ["console", "another"]}}, "does not hold"),
        ({"changed": {"nonce": "another"}}, "does not hold"),
        ({"changed": {"exp": 1}}, "the clocks of both machines"),
        ({"moved": 600}, "the clocks of both machines"),
        ({"signs_with": RSAKey.generate_key(2048, {"kid": "thief"})}, "does not hold"),
        ({"changed": {"email_verified": False}}, "not verified"),
        ({"changed": {"email_verified": "false"}}, "not verified"),
        ({"changed": {"email": "a\nb"}}, "name_claim"),
        (
            {"person": Person("18", {"email": "max@example.com", "groups": ["staff"]})},
            "console.groups",
        ),
        ({"person": Person("18", {"groups": ["leads"]})}, "name_claim"),
    ],
)
def test_what_does_not_fit_signs_nobody_in(
    console: Console, provider: TestProvider, wrong: dict[str, Any], told: str
) -> None:
    for name, value in wrong.items():
        setattr(provider, name, value)
    client = browser(console_of(console, provider))
    came = come_back(client)
    assert came.status_code == 403
    assert told in came.text
    assert client.get("/account.json").status_code == 401


def test_an_answer_is_for_who_asked_once(console: Console, provider: TestProvider) -> None:
    opened = console_of(console, provider)
    client, thief = browser(opened), browser(opened)
    place = httpx.get(client.get("/sign-in/provider").headers["location"]).headers["location"]
    assert thief.get(place).status_code == 403, "another browser"
    code = parse_qs(urlsplit(place).query)["code"][0]
    assert client.get(CALLBACK, params={"code": code, "state": "guessed"}).status_code == 403
    assert client.get(CALLBACK, params={"code": code}).status_code == 403
    assert client.get(place).status_code == 303
    assert browser(opened).get(place).status_code == 403
    again = httpx.get(client.get("/sign-in/provider").headers["location"]).headers["location"]
    assert client.get(f"{again}&iss=https://evil.example").status_code == 403
    refused = client.get("/sign-in/provider").headers["location"]
    state = parse_qs(urlsplit(refused).query)["state"][0]
    came = client.get(CALLBACK, params={"error": "access_denied", "state": state})
    assert came.status_code == 403
    assert "access_denied" in came.text


def test_a_code_is_worth_nothing_without_its_verifier(
    console: Console, provider: TestProvider
) -> None:
    went = browser(console_of(console, provider)).get("/sign-in/provider").headers["location"]
    code = parse_qs(urlsplit(httpx.get(went).headers["location"]).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK}
    form["code_verifier"] = "x" * 43
    stolen = httpx.post(f"{provider.issuer}/token", data=form, auth=("console", "s3cret"))
    assert stolen.json()["error"] == "invalid_grant"


def test_the_providers_keys_rotate(console: Console, provider: TestProvider) -> None:
    opened = console_of(console, provider)
    assert come_back(browser(opened)).status_code == 303
    provider.rotate()
    assert come_back(browser(opened)).status_code == 303


def test_a_clock_may_be_off_a_little(console: Console, provider: TestProvider) -> None:
    provider.moved = 30
    assert come_back(browser(console_of(console, provider))).status_code == 303
    provider.moved = -320
    assert come_back(browser(console_of(console, provider))).status_code == 303
    client = browser(console_of(console, provider, clock_skew_seconds=0))
    assert come_back(client).status_code == 403


def test_what_the_token_does_not_say_the_provider_is_asked(
    console: Console, provider: TestProvider
) -> None:
    provider.hides = ("email", "groups")
    client = browser(console_of(console, provider))
    assert come_back(client).status_code == 303
    assert client.get("/account.json").json()["name"] == "ida@example.com"


def test_groups_may_stand_deeper(console: Console, provider: TestProvider) -> None:
    claims = {"email": "ida@example.com", "realm_access": {"roles": ["leads"]}}
    provider.person = Person("17", claims)
    opened = console_of(console, provider, groups_claim="realm_access.roles")
    assert come_back(browser(opened)).status_code == 303


def test_a_wrong_setting_is_told_with_what_to_do(
    console: Console, provider: TestProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = browser(console_of(console, provider, issuer="http://127.0.0.1:9"))
    told = away.get("/sign-in/provider")
    assert (told.status_code, "does not answer" in told.text) == (502, True)
    slash = browser(console_of(console, provider, issuer=f"{provider.issuer}/"))
    assert "console.oidc.issuer" in slash.get("/sign-in/provider").text
    monkeypatch.setenv("OIDC_SECRET", "wrong")
    came = come_back(browser(console_of(console, provider)))
    assert "client_secret_env" in came.text
    monkeypatch.setenv("OIDC_SECRET", "")
    with pytest.raises(ConfigurationError, match="OIDC_SECRET"):
        console_of(console, provider)
    with pytest.raises(ConfigurationError, match="https"):
        console_of(console, provider, issuer="http://id.example")
    with pytest.raises(ConfigurationError, match="client_id"):
        console_of(console, provider, client_id="")
