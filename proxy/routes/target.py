"""One upstream, as the hot path needs it: where it is, its credential, whether it can be reached."""

from dataclasses import dataclass, field

from proxy.config import CredentialSource, Upstream, UpstreamChoice


@dataclass(slots=True)
class Target:
    """One upstream of a route, prepared."""

    url: str
    upstream: Upstream
    authority: bytes
    base: bytes
    """Path that is put before the client's."""
    origin: tuple[bytes, str, int]
    """Scheme, host and port."""
    weight: int = 1
    connect_seconds: float | None = None
    credential: tuple[bytes, bytes] | None = field(default=None, repr=False)
    source: CredentialSource | None = field(default=None, repr=False)
    shunned_until: float = 0.0
    """It could not be reached a moment ago; others take its sessions until then."""

    @classmethod
    def of(cls, choice: UpstreamChoice) -> "Target":
        """Prepare an upstream; its credential is read now.

        Raises:
            ConfigurationError: the credential's source is missing or empty.
        """
        upstream = Upstream.parse(choice.url)
        target = cls(
            url=choice.url,
            upstream=upstream,
            authority=upstream.authority.encode("ascii" if upstream.host.isascii() else "idna"),
            base=upstream.path.encode(),
            origin=(upstream.scheme.encode(), upstream.host, upstream.port),
            weight=choice.weight,
            connect_seconds=choice.connect_seconds,
            source=choice.credential,
        )
        target.refresh()
        return target

    def refresh(self) -> bool:
        """Read the credential again; tell whether it is another one.

        Raises:
            ConfigurationError: the credential's source is missing or empty.
        """
        if self.source is None:
            return False
        fresh = (self.source.header.encode(), self.source.header_value().encode())
        changed, self.credential = fresh != self.credential, fresh
        return changed
