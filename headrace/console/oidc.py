"""Sign-in by a company's identity provider: OpenID Connect, code flow with PKCE (Authlib).

Only a token of the provider's own token endpoint is read. A key of the provider must have signed it,
and it must be meant for this installation, this attempt and this time.
"""

import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import httpx
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from headrace.app.settings import OidcSettings
from headrace.console.attempt import SignInAttempt, SignInError
from headrace.console.users import User, is_name
from proxy.config.gateway import LOOPBACK_HOSTS
from trajectory.errors import ConfigurationError

if TYPE_CHECKING:
    from joserfc.jwt import Token

_SIGNATURES = frozenset(
    {
        "RS256",
        "RS384",
        "RS512",
        "PS256",
        "PS384",
        "PS512",
        "ES256",
        "ES384",
        "ES512",
        "EdDSA",
        "Ed25519",
    }
)
"""Signatures by a key that the provider alone has: never none, never a shared secret."""
_METADATA_SECONDS = 3600.0
_MOST_BYTES = 1 << 20


class IdentityProvider:
    """Who signs people in, and says which groups they are in."""

    def __init__(
        self,
        settings: OidcSettings,
        *,
        client_id: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Use the provider that the settings name.

        Args:
            settings: of the provider.
            client_id: as whom; that of the settings by default.
            clock: what time it is.

        Raises:
            ConfigurationError: a setting is missing or wrong.
        """
        parts = urlsplit(settings.issuer)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK_HOSTS:
            raise ConfigurationError("console.oidc.issuer: write https://…, as the provider does")
        self._settings = settings
        self._client_id = client_id or settings.client_id
        if not self._client_id:
            raise ConfigurationError(
                "console.oidc.client_id is missing: register Headrace at the provider and copy it"
            )
        is_public = client_id not in ("", settings.client_id)
        named = "" if is_public else settings.client_secret_env
        self._secret = os.environ.get(named, "")
        if named and not self._secret:
            raise ConfigurationError(
                f"the environment variable {named} is empty: put the client secret of the provider there "
                "(setting console.oidc.client_secret_env)"
            )
        self._clock = clock
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._keys: KeySet | None = None

    @property
    def issuer(self) -> str:
        """Its address, which is its name."""
        return self._settings.issuer

    @property
    def host(self) -> str:
        """Its host, for the eye."""
        return urlsplit(self.issuer).netloc

    def address(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Return where a browser goes to sign in."""
        return str(
            prepare_grant_uri(
                self._endpoint("authorization_endpoint"),
                client_id=self._client_id,
                response_type="code",
                redirect_uri=redirect_uri,
                scope=" ".join(self._settings.scopes),
                state=attempt.state,
                nonce=attempt.nonce,
                code_challenge=create_s256_code_challenge(attempt.verifier),
                code_challenge_method="S256",
            )
        )

    def signed_in(
        self, attempt: SignInAttempt, answer: Mapping[str, str], redirect_uri: str
    ) -> User:
        """Return whom the provider sent back; the roles are for the settings to say.

        Raises:
            SignInError: the provider or the person said no, or something does not fit.
        """
        if not secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInError("this answer belongs to another attempt; sign in again")
        # Of the provider, so that no other one's code is used here (RFC 9207).
        if answer.get("iss", self.issuer) != self.issuer:
            raise SignInError("this answer comes from another provider; sign in again")
        if "code" not in answer:
            said = answer.get("error", "no code")[:100]
            raise SignInError(f"{self.host} did not sign you in ({said}); sign in again")
        token = self._token(answer["code"], attempt, redirect_uri)
        claims = self._claims(token, attempt)
        return self._user(claims, token)

    def sign_out_address(self, back: str) -> str | None:
        """Return where a browser ends its session at the provider too; None where there is no such place."""
        place = self.metadata().get("end_session_endpoint")
        if not isinstance(place, str) or urlsplit(place).scheme not in ("https", "http"):
            return None
        asked = urlencode({"client_id": self._client_id, "post_logout_redirect_uri": back})
        return f"{place}{'&' if '?' in place else '?'}{asked}"

    def metadata(self) -> Mapping[str, Any]:
        """Return what the provider says of itself.

        Raises:
            SignInError: it does not answer, or is another one.
        """
        if self._metadata is not None and self._clock() - self._metadata[0] < _METADATA_SECONDS:
            return self._metadata[1]
        place = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = self._json("GET", place)
        if found.get("issuer") != self.issuer:
            raise SignInError(
                f"{place} names the issuer {str(found.get('issuer'))[:200]!r}: write exactly that into "
                "console.oidc.issuer, if it is your provider"
            )
        self._metadata = (self._clock(), found)
        return found

    def _endpoint(self, name: str) -> str:
        place = self.metadata().get(name)
        parts = urlsplit(place) if isinstance(place, str) else None
        if parts is None or (parts.scheme != "https" and parts.hostname not in LOOPBACK_HOSTS):
            raise SignInError(f"{self.host} names no {name} with HTTPS; ask who runs it")
        return str(place)

    def _token(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> Mapping[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
            "client_id": self._client_id,
        }
        methods = self.metadata().get("token_endpoint_auth_methods_supported") or ()
        auth: tuple[str, str] | None = None
        if (
            self._secret
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods
        ):
            form["client_secret"] = self._secret
        elif self._secret:
            auth = (self._client_id, self._secret)
        return self._json("POST", self._endpoint("token_endpoint"), data=form, auth=auth)

    def _claims(self, token: Mapping[str, Any], attempt: SignInAttempt) -> Mapping[str, Any]:
        """Return what the ID token says, which was signed for us and for this attempt.

        Raises:
            SignInError: it was not.
        """
        try:
            read = self._verified(str(token.get("id_token", "")))
            claims = CodeIDToken(
                read.claims,
                read.header,
                options={
                    "iss": {"essential": True, "value": self.issuer},
                    "aud": {"essential": True, "value": self._client_id},
                },
                params={
                    "nonce": attempt.nonce,
                    "client_id": self._client_id,
                    "access_token": token.get("access_token"),
                },
            )
            claims.validate(now=int(self._clock()), leeway=int(self._settings.clock_skew_seconds))
        except (JoseError, ValueError, TypeError) as error:
            raise SignInError(
                f"the ID token of {self.host} does not hold ({error}): check console.oidc.issuer and "
                "client_id, and the clocks of both machines"
            ) from None
        return dict(claims)

    def _verified(self, text: str) -> "Token":
        """Return a token that a key of the provider signed; it may have new keys since we looked."""
        offered = self.metadata().get("id_token_signing_alg_values_supported") or ["RS256"]
        allowed = sorted(_SIGNATURES.intersection(map(str, offered)))
        if self._keys is not None:
            try:
                return jwt.decode(text, self._keys, algorithms=allowed)
            except (JoseError, ValueError):
                self._keys = None
        self._keys = KeySet.import_key_set(self._json("GET", self._endpoint("jwks_uri")))  # type: ignore[arg-type]
        return jwt.decode(text, self._keys, algorithms=allowed)

    def _user(self, claims: Mapping[str, Any], token: Mapping[str, Any]) -> User:
        settings = self._settings
        if any(_claim(claims, one) is None for one in (settings.name_claim, settings.groups_claim)):
            claims = {**self._user_info(claims, token), **claims}
        name = _claim(claims, settings.name_claim)
        if not isinstance(name, str) or not is_name(name.strip()):
            raise SignInError(
                f"{self.host} says no {settings.name_claim!r} of you: let it send this claim, or name "
                "another one in console.oidc.name_claim"
            )
        # Some providers write the word.
        if settings.name_claim == "email" and claims.get("email_verified") not in (
            None,
            True,
            "true",
        ):
            raise SignInError(f"{self.host} has not verified your e-mail address; do that first")
        listed = _claim(claims, settings.groups_claim)
        listed = [listed] if isinstance(listed, str) else listed
        groups = frozenset(map(str, listed)) if isinstance(listed, list) else frozenset[str]()
        return User(name.strip(), frozenset(), self.issuer, str(claims["sub"]), groups)

    def _user_info(self, claims: Mapping[str, Any], token: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the provider says of a person beside the ID token."""
        if "userinfo_endpoint" not in self.metadata():
            return {}
        found = self._json(
            "GET",
            self._endpoint("userinfo_endpoint"),
            headers={"authorization": f"Bearer {token.get('access_token', '')}"},
        )
        if found.get("sub") != claims["sub"]:
            raise SignInError(f"{self.host} tells of two people at once; sign in again")
        return found

    def _json(self, method: str, place: str, **more: Any) -> Mapping[str, Any]:
        """Return the object that the provider answers with.

        Raises:
            SignInError: it answers with none.
        """
        try:
            answer = httpx.request(method, place, timeout=10, follow_redirects=False, **more)
        except httpx.HTTPError as error:
            raise SignInError(
                f"{self.host} does not answer ({type(error).__name__}): is console.oidc.issuer right, and "
                "can this machine reach it?"
            ) from None
        try:
            found = answer.json() if len(answer.content) <= _MOST_BYTES else None
        except ValueError:
            found = None
        if answer.status_code != 200 or not isinstance(found, dict):
            said = str(found.get("error", "")) if isinstance(found, dict) else ""
            remedy = _REMEDIES.get(said, "is it the issuer of an OpenID provider?")
            raise SignInError(
                f"{urlsplit(place)._replace(query='').geturl()} answers HTTP {answer.status_code} "
                f"{said[:100]}: {remedy}"
            )
        return found


_REMEDIES = {
    "invalid_client": "check console.oidc.client_id and the secret in console.oidc.client_secret_env",
    "unauthorized_client": "let the provider allow this client the authorization code",
    "invalid_grant": "the code was used or is too old, or the redirect address is not as registered; sign in again",
    "invalid_request": "let the provider allow the redirect address and PKCE with S256 for this client",
}


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, or by the way to it (``realm_access.roles``)."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
