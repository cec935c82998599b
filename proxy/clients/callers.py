"""Identifies callers of the forward proxy and transparent mode, by connection or configured key."""

import logging
import time

from mitmproxy import connection

from proxy.clients.credentials import RawFields
from proxy.clients.keys import KeyRegistry
from proxy.config import GatewayConfig, SecretSource
from proxy.heads import proxy_key
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
_KEY = b"proxy-authorization"
"""Header of the forward proxy's clients."""


class StandingKey:
    """The client key of a setting, for callers that present no key."""

    def __init__(self, setting: str, source: SecretSource | None, registry: KeyRegistry) -> None:
        """Read the key.

        Raises:
            ConfigurationError: its source is missing or empty.
        """
        self._source = source
        self._registry = registry
        self._looked = 0.0
        self._key: str | None = None
        if source is None:
            return
        try:
            self._key = source.secret()
        except ConfigurationError as error:
            raise ConfigurationError(f"gateway.{setting}: {error}") from None
        if self.client() is None:
            _log.warning(
                "gateway.%s is no client key now (see `headrace keys list`): whom it stands for "
                "is refused until it is",
                setting,
            )

    def client(self) -> ClientIdentity | None:
        """Return the key's identity. Read a refused key again: it may have been rotated."""
        found = self._registry.authenticate(self._key)
        if found is None and self._changed():
            found = self._registry.authenticate(self._key)
        return found

    def _changed(self) -> bool:
        now = time.monotonic()
        if self._source is None or self._source.file is None or now < self._looked + _LOOK_SECONDS:
            return False
        self._looked = now
        try:
            fresh = self._source.secret()
        except ConfigurationError:
            return False
        changed, self._key = fresh != self._key, fresh
        return changed


class Callers:
    """Knows who opened which tunnel: clients of the forward proxy say who they are as they connect.

    What they said is looked at again with each request, for keys are revoked and rotated.
    """

    def __init__(self, config: GatewayConfig, registry: KeyRegistry) -> None:
        self._registry = registry
        self._said: dict[str, RawFields] = {}
        self._redirected = StandingKey("transparent_key", config.transparent_key, registry)
        self._keyless = StandingKey("forward_key", config.forward_key, registry)

    def connects(self, opened: connection.Client, fields: RawFields) -> bool:
        """Note who opens a tunnel; tell whether they may."""
        said = tuple([field for field in fields if field[0].lower() == _KEY])
        if self._presented(said) is None:
            return False
        self._said[opened.id] = said
        return True

    def disconnects(self, closed: connection.Client) -> None:
        """Forget a connection."""
        self._said.pop(closed.id, None)

    def of_forward(self, standing: connection.Client, fields: RawFields) -> ClientIdentity | None:
        """Return who asks through the forward proxy, in a tunnel or without one."""
        return self._presented(self._said.get(standing.id, fields))

    def of_redirected(self, presented: str | None) -> ClientIdentity | None:
        """Return who asks in transparent mode."""
        if presented:
            return self._registry.authenticate(presented)
        return self._redirected.client()

    def _presented(self, fields: RawFields) -> ClientIdentity | None:
        for name, value in fields:
            if name.lower() == _KEY:
                return self._registry.authenticate(proxy_key(value))
        return self._keyless.client()
