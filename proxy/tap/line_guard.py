"""Judges what a client sends to a stdio server; a line goes on whole, or not at all.

A line that waits for a person holds up no other: JSON-RPC tells requests apart by their ids. Nothing is
said to a client in the middle of its server's line.
"""

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from proxy.guard.answers import denial, progress_message
from proxy.guard.calls import ReadRequest, UnreadableCallError
from proxy.guard.elicitation import ClientUser, ElicitedAnswer, McpSession
from proxy.guard.route import CallDecision, CallGuard, Waiting
from proxy.guard.rules import Ruling
from proxy.tap.messages import LINE_BYTES
from proxy.telemetry.counters import Counters
from trajectory.canonical import JsonObject, JsonValue
from trajectory.dialects.errors import Shape
from trajectory.exchange import ClientIdentity

_UNREADABLE = (
    "Headrace: tool calls of this server are judged before they are sent, and this line cannot be read "
    "for certain; send JSON-RPC in UTF-8, one message a line, each key once."
)
_FAULT = "Headrace: this line could not be judged, and was not sent."
_WAITS = "Headrace: this call waits for a person."
_CODE = -32001


class LineWriter:
    """Writes to one pipe from several threads, whole lines between those that pass."""

    def __init__(self, target: int) -> None:
        """Write to a file descriptor."""
        self._target = target
        self._lock = threading.Lock()
        self._within = False
        """The last byte that passed did not end a line."""
        self._queued: list[bytes] = []

    def passed(self, data: bytes) -> bool:
        """Write bytes that pass; False where nobody reads them."""
        with self._lock:
            end = data.rfind(b"\n") + 1
            if self._queued and end:
                data = data[:end] + b"".join(self._queued) + data[end:]
                self._queued.clear()
            self._within = not data.endswith(b"\n")
            return self._write(data)

    def line(self, data: bytes) -> bool:
        """Write a line of our own, once the one that passes has ended."""
        with self._lock:
            if self._within:
                self._queued.append(data)
                return True
            return self._write(data)

    def close(self) -> None:
        """Write nothing any more: the descriptor may soon be another file's."""
        with self._lock:
            self._target = -1

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except OSError:
                return False
        return True


class CallListener(Protocol):
    """Takes the messages that pass, and hears of decisions."""

    def message(self, line: bytes, *, from_client: bool) -> str:
        """Take one line; return the step that it is, where it is one."""

    def decided(self, decisions: Sequence[CallDecision], step_id: str) -> None:
        """Take decisions about the calls of a step."""


class LineGuard:
    """Judges the lines of one run; fed by the thread that reads the client."""

    def __init__(
        self,
        guard: CallGuard,
        name: str,
        client: ClientIdentity,
        counters: Counters,
        listener: CallListener | None,
    ) -> None:
        """Begin before the first line."""
        self._guard = guard
        self._name = name
        self._client = client
        # An answer is good for this run alone.
        run = secrets.token_hex(12)
        self._session = McpSession(client.tenant_id, client.key_id, name, run)
        self._counters = counters
        self._listener = listener
        self._pending = bytearray()
        self._skips = False
        """The line that comes is longer than lines may be."""
        self._cancelled: set[str] = set()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.to_server: Callable[[bytes], bool] = lambda _: False
        self.to_client: Callable[[bytes], bool] = lambda _: False

    def feed(self, data: bytes) -> bytes:
        """Return the lines that may go on now, of those that these bytes end."""
        self._pending += data
        out: list[bytes] = []
        while (end := self._pending.find(b"\n") + 1) > 0:
            line = bytes(self._pending[:end])
            del self._pending[:end]
            if self._skips:
                self._skips = False
            elif self._goes_on(line):
                out.append(line)
        if len(self._pending) > LINE_BYTES:
            if not self._skips:
                self._refuse(b"", _UNREADABLE)
            self._skips = True
            self._pending.clear()
        return b"".join(out)

    def end(self) -> bytes:
        """Return what is left when the client has closed its side; whoever waits waits no more."""
        line, self._pending = bytes(self._pending), bytearray()
        self._closed = True
        return line if line and not self._skips and self._goes_on(line) else b""

    def close(self) -> None:
        """Stop waiting for people."""
        self._closed = True
        with suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _serve(self) -> None:
        """Let held lines wait, until this is closed."""
        loop = self._loop
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    def _goes_on(self, line: bytes) -> bool:
        """Judge a line; what waits or is denied is dealt with here."""
        content = line.strip(b"\r\n")
        step_id = self._recorded(content, from_client=True)
        if not content:
            return True
        try:
            return self._judged(line, content, step_id)
        except UnreadableCallError:
            self._refuse(content, _UNREADABLE)
        except Exception:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._counters.faults += 1
            self._refuse(content, _FAULT)
        return False

    def _judged(self, line: bytes, content: bytes, step_id: str) -> bool:
        # Some servers end their lines there, and would read another message than we do.
        body = content.replace(b"\r", b"\x00")
        read = self._guard.read(self._name, b"POST", b"/mcp", (), body, self._client)
        if read is not None:
            self._note_cancelled(content)
        if read is not None and read.answered is not None:
            work = self._take_answer(read.answered)
            asyncio.run_coroutine_threadsafe(work, self._loop)
            return False
        if read is not None and read.can_elicit:
            self._guard.remember(self._session)
        if read is None or not read.calls:
            return True
        decisions = self._guard.judge(self._name, read, self._client.key_id)
        if any(one.ruling is Ruling.HOLD for one in decisions):
            waits = self._wait(line, content, read, decisions, step_id)
            asyncio.run_coroutine_threadsafe(waits, self._loop)
            return False
        return self._settle(read, decisions, step_id)

    def _settle(self, read: ReadRequest, decisions: Sequence[CallDecision], step_id: str) -> bool:
        """Tell whether a line goes on; else its client hears why."""
        if self._listener is not None:
            self._listener.decided(decisions, step_id)
        texts = {one.number: one.text for one in decisions if not one.goes_on}
        if texts and read.answers:
            self._say(denial(read, texts, Shape.JSONRPC).body)
        return not texts

    async def _wait(
        self,
        line: bytes,
        content: bytes,
        read: ReadRequest,
        decisions: Sequence[CallDecision],
        step_id: str,
    ) -> None:
        """Wait for a person, and send the line or say why not."""
        ids = {json.dumps(request_id) for request_id, _ in read.answers}
        tokens = {json.dumps(one.progress): one.progress for one in read.calls if one.progress}

        def gone() -> bool:
            return self._closed or bool(ids & self._cancelled)

        def tell(count: int) -> None:
            for token in tokens.values():
                self._say(json.dumps(progress_message(token, count, _WAITS)).encode())

        def put(question: JsonObject) -> None:
            self._say(json.dumps(question).encode())

        try:
            settled = await self._guard.ask(
                self._name,
                read,
                decisions,
                key_id=self._client.key_id,
                step_id=step_id,
                waiting=Waiting(tell, gone, ClientUser(self._session, put)),
            )
            if gone():
                self._cancelled -= ids
                return
            if self._settle(read, settled, step_id):
                self.to_server(line if line.endswith(b"\n") else line + b"\n")
        except Exception:  # noqa: BLE001 - whatever it is, the calls must not pass
            self._counters.faults += 1
            self._refuse(content, _FAULT)

    async def _take_answer(self, answer: ElicitedAnswer) -> None:
        """Let the client's user decide; the line is for nobody else."""
        try:
            await self._guard.take_answer(answer, self._session)
        except Exception:  # noqa: BLE001 - nothing is decided, and the call waits on
            self._counters.faults += 1

    def _note_cancelled(self, content: bytes) -> None:
        value = json.loads(content)
        for message in value if isinstance(value, list) else [value]:
            if message.get("method") == "notifications/cancelled":
                params = message.get("params")
                if isinstance(params, dict):
                    self._cancelled.add(json.dumps(params.get("requestId")))

    def _refuse(self, content: bytes, text: str) -> None:
        """Answer a line that is not sent, under its id as far as one can be made out."""
        request_id: JsonValue = None
        try:
            value = json.loads(content)
            if isinstance(value, dict) and isinstance(value.get("id"), str | int):
                request_id = value["id"]
        except (ValueError, RecursionError):
            pass
        error: JsonObject = {"code": _CODE, "message": text}
        self._say(json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode())

    def _recorded(self, line: bytes, *, from_client: bool) -> str:
        """Let a line be recorded; return the step that it is, where it is one."""
        if self._listener is None:
            return ""
        try:
            return self._listener.message(line, from_client=from_client)
        except Exception:  # noqa: BLE001 - the line goes on whatever capture does
            self._counters.faults += 1
            return ""

    def _say(self, message: bytes) -> None:
        """Tell the client something, as its server would."""
        self._recorded(message, from_client=False)
        self.to_client(message + b"\n")
