"""Names of things: keys per tenant, ids of redacted content, pseudonyms of people."""

from hashlib import blake2b

from trajectory.canonical import JsonValue, bytes_hash, content_hash


def tenant_key(key: bytes, tenant_id: str) -> bytes:
    """Return the key that names a tenant's content: equal content of two tenants stays unlinked."""
    return blake2b(
        tenant_id.encode(), key=key[:64], digest_size=32, person=b"headrace-tenant"
    ).digest()


class Namer:
    """Gives keyed names; one per governor."""

    def __init__(self, message_key: bytes) -> None:
        """Name with keys derived from ``message_key``."""
        self._key = message_key
        self._tenants: dict[str, bytes] = {}

    def name(self, tenant_id: str, kind: str, value: JsonValue) -> str:
        """Return the keyed hash of a value of some kind, e.g. ``b2:4f0c…``."""
        return content_hash([kind, value], key=self._tenant(tenant_id))

    def message_id(self, tenant_id: str, message: JsonValue) -> str:
        """Return the id of a redacted message: the keyed hash of its canonical JSON."""
        return content_hash(message, key=self._tenant(tenant_id))

    def canonical_id(self, tenant_id: str, canonical: bytes) -> str:
        """Return :meth:`message_id` of a message from its canonical JSON."""
        return bytes_hash(canonical, key=self._tenant(tenant_id))

    def key_of(self, tenant_id: str) -> bytes:
        """Return the key that names a tenant's content."""
        return self._tenant(tenant_id)

    def _tenant(self, tenant_id: str) -> bytes:
        if tenant_id not in self._tenants:
            self._tenants[tenant_id] = tenant_key(self._key, tenant_id)
        return self._tenants[tenant_id]
