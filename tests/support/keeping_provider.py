"""A provider that keeps conversations, files and batches for its clients, and says all of it again."""

import json
import re
import threading
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any
from urllib.parse import parse_qs

from tests.support.echo import echo
from tests.support.upstream import ReceivedRequest, Reply, as_json, plain, stream

_HEX = "689667905b048191b4740501625afd940c7533ace33a2dab"
"""What OpenAI's ids are made of: digits that a detector could take for somebody's."""


@dataclass
class KeepingProvider:
    """Answers as OpenAI and Anthropic do; a script for :class:`Upstream`."""

    files: dict[str, tuple[dict[str, Any], bytes]] = field(default_factory=dict)
    """What is known of each file, and what it holds."""
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    chats: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=dict)
    """Each with the messages that it answers."""
    conversations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    arrived: threading.Event | None = None
    """Set once a response is asked for; then it waits."""
    waits: threading.Event | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: ReceivedRequest) -> Reply:
        with self._lock:
            return self._answer(request)

    def _answer(self, request: ReceivedRequest) -> Reply:
        path, _, query = request.target.partition("?")
        parts = path.partition("/v1/")[2].split("/")
        if request.method == "GET" and parts[-1] in ("files", "batches"):
            return self._page(parts, {name: one for name, (one,) in parse_qs(query).items()})
        if parts[0] == "files":
            return self._file(request, parts[1:])
        body = json.loads(request.body) if request.body else {}
        if parts[:2] == ["chat", "completions"]:
            return self._chat(request, parts[2:], body)
        if parts[0] == "conversations":
            return self._conversation(request.method, parts[1:], body)
        if parts[0] == "batches":
            return self._batch(parts[1:], body)
        if parts[:2] == ["messages", "batches"]:
            return self._message_batch(request.method, parts[2:], body)
        return self._response(request, body)

    def _page(self, parts: list[str], asked: dict[str, str]) -> Reply:
        """List what is kept of a kind, the newest first."""
        named: list[dict[str, Any]]
        if parts == ["files"]:
            named = [told for told, _ in self.files.values()]
        elif parts == ["batches"]:
            named = [one for one in self.batches.values() if "object" in one]
        else:
            is_message = [name for name, one in self.batches.items() if "requests" in one]
            named = [_message_batch(one, "ended") for one in is_message]
        named.reverse()
        if after := asked.get("after") or asked.get("after_id"):
            named = named[[one["id"] for one in named].index(after) + 1 :]
        page = named[: int(asked.get("limit", 10_000))]
        return as_json({**_listed(page), "has_more": len(page) < len(named)})

    def _file(self, request: ReceivedRequest, parts: list[str]) -> Reply:
        if not parts:
            head = f"Content-Type: {request.header('content-type')}\r\n\r\n"
            fields: dict[str, bytes] = {}
            for one in message_from_bytes(head.encode() + request.body).get_payload():
                assert not isinstance(one, str)
                name = one.get_param("name", header="content-disposition")
                content = one.get_payload(decode=True)
                assert isinstance(content, bytes)
                fields[str(name)] = content
            content, purpose = fields["file"], fields.get("purpose", b"user_data")
            named = re.search(rb'filename="([^"]*)"', request.body)
            assert named is not None
            told = self._kept(content, named[1].decode(), purpose.decode())[0]
            if request.header("anthropic-version"):
                told |= {"type": "file", "mime_type": "text/plain", "size_bytes": len(content)}
            return as_json(told)
        known, content = self.files[parts[0]]
        if parts[1:] == ["content"]:
            disposition = f'attachment; filename="{known["filename"]}"'
            kind = ("Content-Type", "application/octet-stream")
            return plain(200, content, kind, ("Content-Disposition", disposition))
        if request.method == "DELETE":
            del self.files[parts[0]]
            deleted = {"id": parts[0], "object": "file", "deleted": True}
            if "type" in known:
                deleted = {"id": parts[0], "type": "file_deleted"}
            return as_json(deleted)
        return as_json(known)

    def _kept(self, content: bytes, name: str, purpose: str) -> tuple[dict[str, Any], bytes]:
        named = f"file-{len(self.files)}{_HEX[:22]}"
        told = {"id": named, "object": "file", "bytes": len(content), "filename": name}
        told |= {"created_at": 1, "purpose": purpose, "status": "processed"}
        self.files[named] = told, content
        return self.files[named]

    def _batch(self, parts: list[str], body: dict[str, Any]) -> Reply:
        if parts:
            return as_json(self.batches[parts[0]])
        asked = self.files[body["input_file_id"]][1].splitlines()
        lines = [json.loads(one) for one in asked if one.strip()]
        answers = []
        for line in reversed(lines):  # in whatever order they are ready
            response = {
                "status_code": 200,
                "request_id": "r",
                "body": _echoed(line["url"], line["body"]),
            }
            answers.append(
                {"id": "batch_req_1", "custom_id": line["custom_id"], "response": response}
            )
            answers[-1]["error"] = None
        content = b"".join(json.dumps(one).encode() + b"\n" for one in answers)
        named = f"batch_{len(self.batches)}{_HEX}"
        told = {"id": named, "object": "batch", "created_at": 1, **body, "status": "validating"}
        output = self._kept(content, "output.jsonl", "batch_output")[0]["id"]
        self.batches[named] = {**told, "status": "completed", "output_file_id": output}
        return as_json(told)

    def _message_batch(self, method: str, parts: list[str], body: dict[str, Any]) -> Reply:
        if not parts:
            named = f"msgbatch_{len(self.batches)}HkcTjaV5uDC8jWR4ZsDV8d"
            self.batches[named] = body
            return as_json(_message_batch(named, "in_progress"))
        named = parts[0]
        if parts[1:] == ["results"]:
            lines = []
            for one in reversed(self.batches[named]["requests"]):
                message = _echoed("/v1/messages", one["params"])
                result = {"type": "succeeded", "message": message}
                lines.append(json.dumps({"custom_id": one["custom_id"], "result": result}))
            data = "\n".join(lines).encode()
            pieces = [data[at : at + 97] for at in range(0, len(data), 97)]
            return stream(pieces, kind="application/x-jsonl")
        if method == "DELETE":
            del self.batches[named]
            return as_json({"id": named, "type": "message_batch_deleted"})
        return as_json(_message_batch(named, "ended"))

    def _chat(self, request: ReceivedRequest, parts: list[str], body: dict[str, Any]) -> Reply:
        if not parts and request.method == "GET":
            return as_json(_listed([told for told, _ in self.chats.values()]))
        if not parts:
            if body.get("store"):
                told = _echoed("/v1/chat/completions", {**body, "stream": False})
                self.chats[told["id"]] = {**told, "metadata": body["metadata"]}, body["messages"]
            return echo(request)
        named = parts[0]
        told, messages = self.chats[named]
        if request.method == "DELETE":
            del self.chats[named]
            return as_json({"id": named, "object": "chat.completion.deleted", "deleted": True})
        said = [{"id": f"{named}-{at}", **one} for at, one in enumerate(messages)]
        return as_json(_listed(said) if parts[1:] else told)

    def _conversation(self, method: str, parts: list[str], body: dict[str, Any]) -> Reply:
        if not parts:
            named = f"conv_{len(self.conversations)}{_HEX}"
            self.conversations[named] = []
            self.metadata[named] = body.get("metadata") or {}
            self._add(named, body.get("items") or [])
            return as_json(self._described(named))
        named, *rest = parts
        items = self.conversations.get(named)
        if items is None:
            error = {"message": "no such conversation", "type": "invalid_request_error"}
            return as_json({"error": {**error, "param": None, "code": None}}, 404)
        match method, rest:
            case "GET", []:
                return as_json(self._described(named))
            case "POST", []:
                self.metadata[named] = body["metadata"]
                return as_json(self._described(named))
            case "DELETE", []:
                del self.conversations[named]
                return as_json({"id": named, "object": "conversation.deleted", "deleted": True})
            case "POST", ["items"]:
                return as_json(_listed(self._add(named, body["items"])))
            case "GET", ["items"]:
                return as_json(_listed(items))
            case "GET", [_, item]:
                return as_json(next(one for one in items if one["id"] == item))
            case _, [_, item]:
                self.conversations[named] = [one for one in items if one["id"] != item]
                return as_json(self._described(named))
        raise AssertionError((method, rest))

    def _described(self, named: str) -> dict[str, Any]:
        kept = {"created_at": 1, "metadata": self.metadata[named]}
        return {"id": named, "object": "conversation", **kept}

    def _add(self, named: str, items: Any) -> list[dict[str, Any]]:
        said = [{"type": "message", "role": "user", "content": items}]
        added = []
        for item in said if isinstance(items, str) else items:
            one = {"type": "message", "status": "completed", **item}
            if isinstance(one.get("content"), str):
                one["content"] = [{"type": "input_text", "text": one["content"]}]
            number = len(self.conversations[named])
            added.append({**one, "id": f"msg_{number}{_HEX}"})
            self.conversations[named].append(added[-1])
        return added

    def _response(self, request: ReceivedRequest, body: dict[str, Any]) -> Reply:
        if "conversation" not in body:
            return echo(request, self._read)
        named = body["conversation"]
        named = named["id"] if isinstance(named, dict) else named
        self._add(named, body["input"])
        said = map(_words, self.conversations[named])
        told = " ".join(one for one in said if one)
        part = {"type": "output_text", "text": f"You said: {told}!", "annotations": []}
        self._add(named, [{"role": "assistant", "content": [part]}])
        calls = [
            {"type": "function_call", "call_id": name, "name": name}
            | {"arguments": json.dumps({"to": told})}
            | {"status": "completed"}
            for name in (one["name"] for one in body.get("tools") or ())
        ]
        self._add(named, calls)
        reply = echo(request, lambda _: told)
        if self.arrived is not None and self.waits is not None:
            self.arrived.set()
            reply.pieces.insert(0, self.waits)
        return reply

    def _read(self, body: dict[str, Any]) -> str:
        """Return what the files of a request say, and its words."""
        (message,) = body["input"] if "input" in body else body["messages"]
        told = []
        for part in message["content"]:
            named = part.get("source", part).get("file_id")
            told.append(self.files[named][1].decode() if named else part["text"])
        return " ".join(told)


def _message_batch(named: str, status: str) -> dict[str, Any]:
    counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
    told: dict[str, Any] = {"id": named, "type": "message_batch", "processing_status": status}
    told |= {"request_counts": counts, "created_at": "2026-01-01T00:00:00Z"}
    told |= {"expires_at": "2026-01-02T00:00:00Z", "results_url": None}
    if status == "ended":
        told["results_url"] = f"https://api.anthropic.com/v1/messages/batches/{named}/results"
    return told


def _echoed(path: str, body: dict[str, Any]) -> Any:
    """Return the answer to one request of a batch."""
    reply = echo(ReceivedRequest("POST", path, [], json.dumps(body).encode()))
    (whole,) = reply.pieces
    assert isinstance(whole, bytes)
    return json.loads(whole.partition(b"\r\n\r\n")[2])


def _words(item: dict[str, Any]) -> str:
    if item.get("role") == "assistant":
        return ""
    parts = item.get("content") or ()
    return str(item.get("output", "")) + "".join(one["text"] for one in parts)


def _listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
    return {"object": "list", "data": items, "has_more": False, **ends}
