"""The gateway's own API on the base-URL port: feedback, trace exports, artefacts and health."""

import time
from collections.abc import Sequence

from proxy.api.artifacts import MCP_PATH, FetchedArtifacts
from proxy.api.feedback import FeedbackError, FeedbackItem, read_feedback_items
from proxy.api.sessions import SessionCalls
from proxy.api.traces import Traces
from proxy.api.webhooks import Webhooks
from proxy.clients.credentials import Fingerprints, RawFields, presented_key
from proxy.clients.keys import KeyRegistry
from proxy.config import ENDPOINT_PREFIX
from proxy.heads import content_length, names, value_of
from proxy.recording.capture import new_exchange_id
from proxy.recording.recorder import Recorder
from proxy.responses import LocalReply, Reason, answer, json_reply
from proxy.spool import RecordKind, SpoolUnavailableError, records
from proxy.telemetry.counters import Counters
from trajectory.canonical import JsonValue
from trajectory.dialects.content_encoding import decode_body
from trajectory.dialects.errors import Shape
from trajectory.exchange import ClientIdentity
from trajectory.telemetry.calls import TRACES_PATH

FEEDBACK_PATH = f"{ENDPOINT_PREFIX}v1/feedback"
HEALTH_PATH = f"{ENDPOINT_PREFIX}v1/health"
MAX_BODY_BYTES = 4 * 1024 * 1024

_PREFIX = ENDPOINT_PREFIX.encode()
_TRACES = TRACES_PATH.encode()


def _problem(status: int, text: str) -> LocalReply:
    return json_reply(status, {"error": {"message": text, "type": "invalid_request_error"}})


_TOO_LARGE = _problem(413, f"a request may have {MAX_BODY_BYTES} bytes at most")


class Endpoints:
    """Answers requests to the gateway itself."""

    def __init__(
        self,
        registry: KeyRegistry,
        recorder: Recorder | None,
        counters: Counters,
        fingerprints: Fingerprints,
        sessions: SessionCalls,
        webhooks: Webhooks,
        artifacts: FetchedArtifacts,
    ) -> None:
        self._traces = Traces(recorder, counters, fingerprints)
        self._registry = registry
        self._recorder = recorder
        self._counters = counters
        self._sessions = sessions
        self._webhooks = webhooks
        self._artifacts = artifacts

    def takes(self, path: bytes) -> bool:
        """Tell whether the gateway answers this path itself."""
        own = path.startswith(_PREFIX) or path.partition(b"?")[0] == _TRACES
        return own or self._sessions.takes(path)

    def at_head(
        self, method: bytes, target: bytes, fields: RawFields
    ) -> LocalReply | ClientIdentity:
        """Answer a request whose body is not needed; return who asks where it is."""
        path = _path_of(target)
        if path == HEALTH_PATH:
            return json_reply(200, {"status": "ok"})
        of_session = self._sessions.takes(target)
        of_webhook = self._webhooks.takes(path)
        of_artifacts = self._artifacts.takes(path)
        if not (of_session or of_webhook or of_artifacts or path in (FEEDBACK_PATH, TRACES_PATH)):
            return answer(Reason.NO_ROUTE, Shape.OPENAI)
        takes = b"GET" if of_artifacts and path != MCP_PATH else b"POST"
        if method != takes:
            return _problem(405, f"{path} takes {takes.decode()}")
        if of_session:
            found = self._sessions.at_head(target, fields)
            if isinstance(found, LocalReply):
                self._counters.refusals[Reason.NO_KEY] += 1
                return found
            client: ClientIdentity | None = found
        elif of_webhook:
            client = self._webhooks.caller(path)
        else:
            client = self._registry.authenticate(presented_key(fields)[0])
        if client is None:
            self._counters.refusals[Reason.NO_KEY] += 1
            return answer(Reason.NO_KEY, Shape.OPENAI)
        if of_artifacts and path != MCP_PATH:
            return self._artifacts.fetch(path, client.tenant_id)
        chunked = b"transfer-encoding" in names(fields)
        if path == TRACES_PATH:
            refusal = self._traces.at_head(fields, content_length(fields), chunked=chunked)
        elif chunked:
            refusal = _problem(411, "send Content-Length, not chunks")
        elif content_length(fields) > MAX_BODY_BYTES:
            refusal = _TOO_LARGE
        else:
            refusal = None
        return refusal or client

    async def answer(
        self, client: ClientIdentity, target: bytes, fields: RawFields, body: bytes
    ) -> LocalReply:
        """Answer a request whose body has been read."""
        if _path_of(target) == TRACES_PATH:
            return await self._traces.take(client, fields, body)
        if _path_of(target) == MCP_PATH:
            return self._artifacts.call(body, client.tenant_id)
        if self._sessions.takes(target):
            reply, reward = self._sessions.answer(target, fields, body)
            return await self._keep(client, [reward], reply) if reward is not None else reply
        if self._webhooks.takes(_path_of(target)):
            reply, items = self._webhooks.read(_path_of(target), client, fields, body)
            return await self._keep(client, items, reply) if items else reply
        return await self._take_feedback(client, fields, body)

    async def _take_feedback(
        self, client: ClientIdentity, fields: RawFields, body: bytes
    ) -> LocalReply:
        """Take feedback; it is on the disk before the client hears that it was accepted."""
        encoding = value_of(fields, b"content-encoding")
        decoded = decode_body(
            body, None if encoding is None else encoding.decode("latin-1"), limit=MAX_BODY_BYTES
        )
        if decoded.problem == "encoding:too-large":
            return _TOO_LARGE
        if decoded.problem is not None or decoded.truncated:
            return _problem(400, "the body's content-encoding cannot be decoded")
        try:
            items = read_feedback_items(decoded.data, tenant_id=client.tenant_id)
        except FeedbackError as error:
            return _problem(400, str(error))
        accepted: list[JsonValue] = [item.feedback_id for item in items]
        said = json_reply(202, {"accepted": len(items), "feedback_ids": accepted})
        return await self._keep(client, items, said)

    async def _keep(
        self, client: ClientIdentity, items: Sequence[FeedbackItem], reply: LocalReply
    ) -> LocalReply:
        """Return the answer once the feedback is on the disk, or why it is not."""
        if self._recorder is None:
            return _problem(503, "this gateway captures nothing, feedback neither")
        try:
            for item in items:
                self._recorder.spool.append(*_record(item, client))
            await self._recorder.spool.synced()
        except SpoolUnavailableError:
            self._counters.uncaptured["feedback"] += 1
            return answer(Reason.SPOOL_FULL, Shape.OPENAI)
        self._counters.feedback += len(items)
        return reply


def _path_of(target: bytes) -> str:
    return target.partition(b"?")[0].decode("latin-1")


def _record(item: FeedbackItem, client: ClientIdentity) -> tuple[int, bytes]:
    record = records.feedback(
        new_exchange_id(),
        client,
        received_at=time.time(),
        feedback_id=item.feedback_id,
        target_kind=item.target_kind,
        target_id=item.target_id,
        body=item.body,
    )
    return RecordKind.FEEDBACK, record
