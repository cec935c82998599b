"""Session keys: a client key's own credential for one session, as clients of AReaL get and use one.

A key says whose it is, which session and task it names, and until when; a keyed hash proves it. So any
worker takes it, also after a restart, and none remembers it. It opens the one route that it was made for, as long as
the client key's secret that began it opens the gateway.
"""

import hmac
import re
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2b
from typing import NamedTuple

from proxy.clients.keys import KEY_PREFIX, KeyRegistry, hash_of, secret_of
from proxy.clients.shared_counters import SharedCounters
from trajectory.exchange import ClientIdentity

LIFE_SECONDS = 86_400
MOST_TASK_BYTES = 256
MOST_A_MINUTE = 1200
"""Sessions that one client key may begin within a minute."""
_FORM = re.compile(
    r"hr_([0-9a-f]{12})_([0-9a-f]{16})([0-9a-f]{8})([0-9a-f]{32})\.([\w-]*)", re.ASCII
)
"""A client key's form up to the dot, so that whatever looks for these finds session keys too."""


class ClientSession(NamedTuple):
    """One session of a client."""

    client: ClientIdentity
    name: bytes
    """What names it in calls: a random part and, behind a dot, the task."""
    expires: float

    @property
    def task(self) -> bytes | None:
        """What several attempts share; None where the client named none."""
        return task_of(self.name)


def may_be_task(text: str) -> bool:
    """Tell whether a text can name a task: it goes into a line of the capture."""
    return text.isprintable() and len(text.encode("utf-8", "surrogatepass")) <= MOST_TASK_BYTES


def task_of(name: bytes) -> bytes | None:
    """Return the task in a session's name; None where there is none."""
    coded = name.partition(b".")[2]
    try:
        task = urlsafe_b64decode(coded + b"=" * (-len(coded) % 4))
        return task if task and may_be_task(task.decode()) else None
    except ValueError:
        return None


class SessionKeys:
    """Makes and reads session keys, and counts what each session did."""

    def __init__(self, secret: bytes, registry: KeyRegistry, ledger: SharedCounters) -> None:
        self._secret = secret
        self._registry = registry
        self._ledger = ledger

    def begin(
        self, client: ClientIdentity, route: str, task: str, *, presented: str
    ) -> tuple[ClientSession, str] | None:
        """Begin a session with the client key that is presented; return it with its key.

        None where the client begins too many.
        """
        now = time.time()
        minute = int(now) // 60
        counted = f"sessions:{client.key_id}:{minute}", (minute + 1) * 60.0
        if self._ledger.used(*counted) >= MOST_A_MINUTE:
            return None
        self._ledger.add(counted[0], 1, counted[1])
        random, expires = secrets.token_hex(8), int(now) + LIFE_SECONDS
        coded = urlsafe_b64encode(task.encode()).rstrip(b"=").decode()
        said = client.key_id, route, f"{random}{expires:08x}", coded
        proof = self._proof(*said, hash_of(secret_of(presented)))
        key = f"{KEY_PREFIX}{client.key_id}_{random}{expires:08x}{proof}.{coded}"
        return ClientSession(client, f"{random}.{coded}".encode(), expires), key

    def read(self, presented: str | None, route: str) -> ClientSession | None:
        """Return the session of a key; None when it is none, is over, or its client key or secret is."""
        found = _FORM.fullmatch(presented or "")
        if found is None:
            return None
        key_id, random, expires, proof, coded = found.groups()
        client = self._registry.identity(key_id)
        if client is None or int(expires, 16) <= time.time():
            return None
        said = key_id, route, random + expires, coded
        if not any(
            hmac.compare_digest(self._proof(*said, secret), proof)
            for secret in self._registry.secrets_of(key_id)
        ):
            return None
        return ClientSession(client, f"{random}.{coded}".encode(), int(expires, 16))

    def named(self, client: ClientIdentity, name: bytes) -> ClientSession:
        """Return the session that a client names itself."""
        return ClientSession(client, name, time.time() + LIFE_SECONDS)

    def _proof(self, key_id: str, route: str, when: str, task: str, secret_hash: str) -> str:
        text = "\0".join((key_id, route, when, task, secret_hash)).encode()
        return blake2b(text, digest_size=16, key=self._secret, person=b"session-key").hexdigest()

    def note_call(self, session: ClientSession) -> None:
        """Count a call of a session."""
        self._ledger.add(self._counted("calls", session), 1, session.expires)

    def calls(self, session: ClientSession) -> int:
        """Return how many calls a session made, as this worker knows it."""
        return self._ledger.used(self._counted("calls", session), session.expires)

    def end(self, session: ClientSession) -> None:
        """Let a session take no call any more; other workers know it within half a second."""
        self._ledger.add(self._counted("ended", session), 1, session.expires)

    def ended(self, session: ClientSession) -> bool:
        """Tell whether a session was ended."""
        return self._ledger.used(self._counted("ended", session), session.expires) > 0

    def _counted(self, what: str, session: ClientSession) -> str:
        """Return under which name something of a session is counted: what a client says stays out of the file."""
        hashed = blake2b(session.name, digest_size=16, key=self._secret, person=b"session-name")
        return f"{what}:{session.client.key_id}:{hashed.hexdigest()}"
