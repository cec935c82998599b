"""The session calls of AReaL's clients: ``rl/start_session``, ``rl/set_reward``, ``rl/end_session``.

They stand below the prefix of a route with ``session_calls``. A client starts a session with its client
key and gets a key of the session. With that it calls the model and says the reward; older clients name
the session in the path instead. A reward becomes feedback about the session, or about the answer that it names.
"""

import math
from typing import NamedTuple

from proxy.api.feedback import FeedbackItem
from proxy.clients.credentials import RawFields, presented_key
from proxy.clients.keys import KeyRegistry
from proxy.clients.session_keys import MOST_TASK_BYTES, ClientSession, SessionKeys, may_be_task
from proxy.recording.capture import new_exchange_id
from proxy.request_json import parsed
from proxy.responses import LocalReply, json_reply
from proxy.routes.router import Router
from proxy.routes.upstream_request import take_session
from trajectory.canonical import JsonObject
from trajectory.exchange import ClientIdentity

_CALLS = (b"/rl/start_session", b"/rl/set_reward", b"/rl/end_session")
_MOST_GROUP = 256
_MOST_ID = 512
SOURCE = "areal-client"


def _refusal(status: int, text: str) -> LocalReply:
    """Return an error in the shape that these clients know."""
    return json_reply(status, {"detail": text})


class _Asked(NamedTuple):
    """What a request's head says."""

    call: bytes
    route: str
    presented: str | None
    client: ClientIdentity | None
    """Who presents a client key."""
    session: ClientSession | None


class SessionCalls:
    """Answers the session calls."""

    def __init__(self, router: Router, registry: KeyRegistry, keys: SessionKeys) -> None:
        self._router = router
        self._registry = registry
        self._keys = keys

    def takes(self, path: bytes) -> bool:
        """Tell whether a path is one of these calls."""
        return path.partition(b"?")[0].endswith(_CALLS) and self._place(path) is not None

    def _place(self, path: bytes) -> tuple[bytes, str, bytes | None] | None:
        """Return the call, its route and the session in the path; None where it is no such call."""
        path, session = take_session(path.partition(b"?")[0])
        plan = self._router.by_path(path)
        if plan is None or not plan.session_calls:
            return None
        rest = path[len(plan.prefix) :]
        if session is None:
            rest, session = take_session(rest)
        return (rest, plan.name, session) if rest in _CALLS else None

    def at_head(self, path: bytes, fields: RawFields) -> LocalReply | ClientIdentity:
        """Return who asks, or why nobody may."""
        asked = self._asked(path, fields)
        if asked.session is None and asked.client is None:
            return _refusal(401, "Missing or invalid key; start a session with a client key.")
        if asked.call == b"/rl/start_session":
            if asked.client is None:
                return _refusal(403, "A session key starts no session; send a client key.")
            return asked.client
        if asked.session is None:
            return _refusal(401, "Send the session's key, or name the session in the path.")
        return asked.session.client

    def _asked(self, path: bytes, fields: RawFields) -> _Asked:
        place = self._place(path)
        assert place is not None  # noqa: S101 - `takes` said so
        call, route, named = place
        presented = presented_key(fields)[0]
        client = self._registry.authenticate(presented)
        if client is not None:
            session = self._keys.named(client, named) if named is not None else None
        else:
            session = self._keys.read(presented, route)
        return _Asked(call, route, presented, client, session)

    def answer(
        self, path: bytes, fields: RawFields, body: bytes
    ) -> tuple[LocalReply, FeedbackItem | None]:
        """Answer a request whose body has been read; return the reward that must be kept first."""
        asked = self._asked(path, fields)
        try:
            value = parsed(body) if body else {}
        except (ValueError, RecursionError):
            return _refusal(422, "The body is not JSON."), None
        if not isinstance(value, dict):
            return _refusal(422, "The body is not a JSON object."), None
        if asked.call == b"/rl/start_session":
            if asked.client is None or asked.presented is None:
                return _refusal(401, "Missing or invalid key."), None
            return self._start(asked.client, asked.presented, asked.route, value), None
        if asked.session is None:
            return _refusal(401, "Missing or invalid session key."), None
        if asked.call == b"/rl/end_session":
            if self._keys.ended(asked.session):
                return _refusal(410, "Session already ended or expired"), None
            self._keys.end(asked.session)
            count = self._keys.calls(asked.session)
            return json_reply(200, {"message": "success", "interaction_count": count}), None
        return self._reward(asked.session, value)

    def _start(
        self, client: ClientIdentity, presented: str, route: str, value: JsonObject
    ) -> LocalReply:
        task, before, size = (
            value.get("task_id", ""),
            value.get("api_key"),
            value.get("group_size", 1),
        )
        if not isinstance(task, str) or not may_be_task(task):
            return _refusal(
                422, f"task_id must be a printable text of {MOST_TASK_BYTES} bytes at most."
            )
        if type(size) is not int or not 1 <= size <= _MOST_GROUP:
            return _refusal(422, f"group_size must be a whole number from 1 to {_MOST_GROUP}.")
        if before is not None:
            old = self._keys.read(before, route) if isinstance(before, str) else None
            if old is None or old.client.key_id != client.key_id:
                return _refusal(400, "api_key is no session key of this client on this route.")
            self._keys.end(old)
        made = []
        for _ in range(size):
            begun = self._keys.begin(client, route, task, presented=presented)
            if begun is None:
                return _refusal(429, "Too many sessions began in this minute; try again soon.")
            made.append((f"s/{begun[0].name.decode()}", begun[1]))
        session, key = made[0]
        return json_reply(
            201,
            {
                "session_id": session,
                "api_key": key,
                "group_id": task or session,
                "sessions": [
                    {"session_id": session, "session_api_key": key, "api_key": key}
                    for session, key in made
                ],
            },
        )

    def _reward(
        self, session: ClientSession, value: JsonObject
    ) -> tuple[LocalReply, FeedbackItem | None]:
        reward, target = value.get("reward"), value.get("interaction_id")
        if isinstance(reward, bool) or not isinstance(reward, int | float):
            return _refusal(422, "reward must be a number."), None
        try:
            number = float(reward)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return _refusal(422, "reward must be finite."), None
        if target is not None and (not isinstance(target, str) or not 0 < len(target) <= _MOST_ID):
            return _refusal(422, f"interaction_id must be a text of at most {_MOST_ID}."), None
        if self._keys.ended(session):
            return _refusal(410, "Session already ended or expired"), None
        body: JsonObject = {
            "name": "reward",
            "value": number,
            "source_kind": "env",
            "source": SOURCE,
        }
        kind, named = (
            ("session", session.name.decode("latin-1")) if target is None else ("response", target)
        )
        # A name of its own: a reward that is set again, to what it was before, is said again.
        item = FeedbackItem(new_exchange_id().hex(), kind, named, body)
        count = self._keys.calls(session)
        said = f"s/{session.name.decode('latin-1')}"
        reply: JsonObject = {"message": "success", "session_id": said, "interaction_count": count}
        return json_reply(200, reply), item
