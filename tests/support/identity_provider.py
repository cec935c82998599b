"""An identity provider for tests: OpenID Connect by Authlib's server side, over HTTP on this machine."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import OAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from trajectory.http_server import HttpServer


@dataclass
class Person:
    """Somebody whom the provider knows."""

    sub: str
    claims: dict[str, Any]


@dataclass
class _Client(ClientMixin):  # type: ignore[misc]
    name: str
    secret: str
    redirects: tuple[str, ...]

    def get_client_id(self) -> str:
        return self.name

    def get_default_redirect_uri(self) -> str | None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        parts = urlsplit(redirect_uri)
        # RFC 8252: an application on a machine comes back to any port of it.
        loopback = (
            parts._replace(netloc="127.0.0.1").geturl() if parts.hostname == "127.0.0.1" else ""
        )
        return redirect_uri in self.redirects or loopback in self.redirects

    def check_client_secret(self, client_secret: str) -> bool:
        return bool(self.secret) and client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == ("client_secret_basic" if self.secret else "none")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class _Code:
    code: str
    client: str
    redirect_uri: str
    scope: str
    nonce: str | None
    person: Person
    code_challenge: str | None
    code_challenge_method: str | None

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str | None:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class _Payload(OAuth2Payload):  # type: ignore[misc]
    def __init__(self, values: list[tuple[str, str]]) -> None:
        self._values = values

    @property
    def data(self) -> dict[str, str]:
        return dict(self._values)

    @property
    def datalist(self) -> "defaultdict[str, list[str]]":
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name, value in self._values:
            found[name].append(value)
        return found


class _Request(OAuth2Request):  # type: ignore[misc]
    def __init__(self, method: str, uri: str, headers: Any, values: list[tuple[str, str]]) -> None:
        super().__init__(method, uri, headers=headers)
        self.payload = _Payload(values)

    @property
    def args(self) -> dict[str, str]:
        return dict(self.payload.data)

    @property
    def form(self) -> dict[str, str]:
        return dict(self.payload.data)


class _Server(AuthorizationServer):  # type: ignore[misc]
    def __init__(self, provider: "TestProvider") -> None:
        super().__init__()
        self._provider = provider

    def query_client(self, client_id: str) -> _Client | None:
        return self._provider.clients.get(client_id)

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        self._provider.tokens[token["access_token"]] = request.user

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        pass

    def create_oauth2_request(self, request: Any) -> Any:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> Response:
        if status == 302:
            return RedirectResponse(dict(headers)["Location"], status_code=302)
        return JSONResponse(body, status_code=status)


@dataclass
class TestProvider:
    """The provider's state; a test changes what it says."""

    __test__ = False
    issuer: str = ""
    person: Person | None = None
    """Who sits at the browser; None says no."""
    clients: dict[str, _Client] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    signs_with: RSAKey | None = None
    """Another key than the published one."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Claims of ID tokens that are not as they should be."""
    moved: int = 0
    """How far its clock is from ours, in seconds."""
    hides: tuple[str, ...] = ()
    """Claims that only the userinfo endpoint tells."""
    tokens: dict[str, Person] = field(default_factory=dict)
    codes: dict[str, _Code] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    """What browsers were sent with."""

    def rotate(self) -> None:
        """Sign with a new key from now on; the old one is published no more."""
        self.key = RSAKey.generate_key(2048, {"kid": f"key-{time.monotonic_ns()}"})

    def register(self, name: str, secret: str, *redirects: str) -> None:
        """Let an application use the provider."""
        self.clients[name] = _Client(name, secret, redirects)

    def server(self) -> _Server:
        """Return Authlib's server with code flow, PKCE by S256, and OpenID Connect."""
        provider = self

        class Grant(AuthorizationCodeGrant):  # type: ignore[misc]
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "none")

            def save_authorization_code(self, code: str, request: Any) -> None:
                given = request.payload.data
                provider.codes[code] = _Code(
                    code, given["client_id"], given["redirect_uri"], given["scope"],
                    given.get("nonce"), request.user, given.get("code_challenge"),
                    given.get("code_challenge_method"),
                )  # fmt: skip

            def query_authorization_code(self, code: str, client: _Client) -> _Code | None:
                found = provider.codes.get(code)
                return found if found is not None and found.client == client.name else None

            def delete_authorization_code(self, authorization_code: _Code) -> None:
                provider.codes.pop(authorization_code.code, None)

            def authenticate_user(self, authorization_code: _Code) -> Person:
                return authorization_code.person

        class Tokens(OpenIDCode):  # type: ignore[misc]
            def exists_nonce(self, nonce: str, request: Any) -> bool:
                return any(one.nonce == nonce for one in provider.codes.values())

            def resolve_client_private_key(self, client: Any) -> RSAKey:
                return provider.signs_with or provider.key

            def get_client_algorithm(self, client: Any) -> str:
                return "RS256"

            def get_encode_header(self, client: Any) -> dict[str, str]:
                return {"alg": "RS256", "kid": str(provider.key.kid)}

            def get_client_claims(self, client: _Client) -> dict[str, Any]:
                now = int(time.time()) + provider.moved
                return {
                    "iss": provider.issuer, "aud": [client.name], "iat": now, "exp": now + 300
                }  # fmt: skip

            def generate_user_info(self, user: Person, scope: str) -> UserInfo:
                shown = {
                    name: value for name, value in user.claims.items() if name not in provider.hides
                }
                return UserInfo({"sub": user.sub, **shown, **provider.changed})

        class Challenge(CodeChallenge):  # type: ignore[misc]
            SUPPORTED_CODE_CHALLENGE_METHOD = ("S256",)

        made = _Server(self)
        made.register_token_generator(
            "default", BearerTokenGenerator(lambda *_args, **_more: f"at-{time.monotonic_ns()}")
        )
        made.register_grant(Grant, [Tokens(require_nonce=True), Challenge(required=True)])
        return made


def _application(provider: TestProvider) -> Starlette:
    server = provider.server()

    async def read(request: Request) -> _Request:
        values = list(request.query_params.multi_items())
        if request.method == "POST":
            values += parse_qsl((await request.body()).decode(), keep_blank_values=True)
        headers = {name.title(): value for name, value in request.headers.items()}
        return _Request(request.method, str(request.url), headers, values)

    async def metadata(_request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": provider.issuer,
                "authorization_endpoint": f"{provider.issuer}/authorize",
                "token_endpoint": f"{provider.issuer}/token",
                "userinfo_endpoint": f"{provider.issuer}/userinfo",
                "jwks_uri": f"{provider.issuer}/keys",
                "end_session_endpoint": f"{provider.issuer}/logout",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            }
        )

    async def keys(_request: Request) -> Response:
        return JSONResponse(KeySet([provider.key]).as_dict(private=False))

    async def authorize(request: Request) -> Response:
        asked = await read(request)
        provider.asked.append(dict(asked.payload.data))
        person = provider.person

        def answer() -> Response:
            grant = server.get_consent_grant(asked, end_user=person)
            made: Response = server.create_authorization_response(asked, person, grant)
            return made

        return await run_in_threadpool(answer)

    async def token(request: Request) -> Response:
        made: Response = await run_in_threadpool(server.create_token_response, await read(request))
        return made

    async def userinfo(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        person = provider.tokens.get(given)
        if person is None:
            return JSONResponse({"error": "invalid_token"}, status_code=401)
        return JSONResponse({"sub": person.sub, **person.claims})

    return Starlette(
        routes=[
            Route("/.well-known/openid-configuration", metadata),
            Route("/keys", keys),
            Route("/authorize", authorize),
            Route("/token", token, methods=["POST"]),
            Route("/userinfo", userinfo),
        ]
    )


@contextmanager
def identity_provider() -> Iterator[TestProvider]:
    """Serve a provider on this machine."""
    provider = TestProvider()
    with HttpServer(_application(provider), host="127.0.0.1", port=0) as server:
        provider.issuer = f"http://127.0.0.1:{server.port}"
        yield provider
