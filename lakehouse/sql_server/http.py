"""SQL over HTTP: a query as JSON, its rows as Arrow or JSON.

``POST /v1/sql`` with ``{"sql": …, "parameters": …, "as_of": …}`` and ``Authorization: Bearer KEY``;
``Accept: application/vnd.apache.arrow.stream`` asks for Arrow, anything else gives JSON.
``GET /v1/tables`` lists what there is, ``GET /health`` needs no key. A response that ends without its
last chunk broke off. What clients may hold: :mod:`trajectory.http_server`.
"""

import json
import math
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import pyarrow as pa
from anyio import CancelScope
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sql_server.flight import Tls
from lakehouse.sql_server.service import AdmittedQuery, Reader, SqlService
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError
from trajectory.http_server import (
    BodyTooLongError,
    HttpLimits,
    HttpServer,
    client_of,
    read_body,
)

ARROW = "application/vnd.apache.arrow.stream"
_LONGEST_BODY = 4 << 20
_LIMITS = HttpLimits(admitted_of_one=16)
"""A key that asks for more at once would take the places of others."""
_MEMBERS = ("sql", "parameters", "as_of")
_LISTED = ", ".join(_MEMBERS)


def http_server(
    service: SqlService,
    *,
    host: str,
    port: int,
    tls: Tls | None = None,
    limits: HttpLimits = _LIMITS,
) -> HttpServer:
    """Return a server of SQL over HTTP, which answers once its context is entered.

    Raises:
        OSError: the port is taken, or the certificate is none.
    """
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
    return HttpServer(_application(service), host=host, port=port, tls=context, limits=limits)


def _application(service: SqlService) -> Starlette:
    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def tables(request: Request) -> Response:
        reader = await _reader(service, request)
        found = await run_in_threadpool(service.catalog, reader)
        return _Json({
            "tables": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "comment": one.comment,
                    "columns": _columns(one.schema),
                }
                for one in found
            ]
        })  # fmt: skip

    async def sql(request: Request) -> Response:
        reader = await _reader(service, request)
        body = await _query_body(request)
        as_of = _moment(body.get("as_of"))
        client = client_of(request)
        admitted = await run_in_threadpool(
            service.ask,
            reader,
            body["sql"],
            body.get("parameters"),
            as_of=as_of,
            gone=lambda: client.is_gone,
        )
        return await _answer(admitted, as_arrow=ARROW in request.headers.get("accept", ""))

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/v1/tables", tables),
            Route("/v1/sql", sql, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _refused, HeadraceError: _refused},
    )


class _Json(JSONResponse):
    """JSON with the text of comments as it is."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode()


def _error(status: HTTPStatus, text: str) -> Response:
    said = {"error": {"status": status.phrase.lower(), "message": text}}
    return _Json(said, status_code=status)


async def _refused(_request: Request, error: Exception) -> Response:
    match error:
        case HTTPException(status_code=404 | 405):
            return _error(HTTPStatus.NOT_FOUND, "there are POST /v1/sql and GET /v1/tables")
        case HTTPException():
            return _error(HTTPStatus(error.status_code), error.detail)
        case QueryTimeoutError():
            status = HTTPStatus.GATEWAY_TIMEOUT
        case ConfigurationError():
            status = HTTPStatus.BAD_REQUEST
        case RetryableError():
            status = HTTPStatus.SERVICE_UNAVAILABLE
        case _:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
    return _error(status, str(error))


async def _reader(service: SqlService, request: Request) -> Reader:
    """Return who asks; its connection keeps its place from here on."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    found = service.authenticate(secret.strip()) if kind.lower() == "bearer" else None
    if found is None:
        raise HTTPException(
            HTTPStatus.UNAUTHORIZED, "missing, wrong or revoked key, or one without the role lake"
        )
    if not client_of(request).admit(found.key_id):
        raise HTTPException(
            HTTPStatus.SERVICE_UNAVAILABLE, "too many are asking at once; ask again"
        )
    return found


async def _query_body(request: Request) -> Mapping[str, Any]:
    try:
        text = await read_body(request, _LONGEST_BODY)
    except BodyTooLongError:
        text = b""
    if not text:
        raise ConfigurationError(f"a query has 1 to {_LONGEST_BODY:,} bytes")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("sql"), str):
        raise ConfigurationError('send JSON: {"sql": "select …", "parameters": […]}')
    if not _is_unicode(body["sql"]):
        raise ConfigurationError("the query holds half a surrogate pair, which is no character")
    if unknown := sorted(set(body) - set(_MEMBERS)):
        raise ConfigurationError(f"{unknown[0]!r} means nothing here; give {_LISTED}")
    if not isinstance(body.get("parameters"), list | dict | None):
        raise ConfigurationError("parameters are a list for ?, or an object for $name")
    return body


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _answer(admitted: AdmittedQuery, *, as_arrow: bool) -> Response:
    """Return the rows; what is refused at the first of them still gets a status of its own."""
    chunks = _as_arrow(admitted) if as_arrow else _as_json(admitted)
    try:
        first = await run_in_threadpool(next, chunks)
    except BaseException:
        await run_in_threadpool(admitted.close)
        raise

    async def parts() -> AsyncIterator[bytes]:
        try:
            yield first
            async for chunk in iterate_in_threadpool(chunks):
                yield chunk
        finally:  # noted in the audit before the client knows that it has all
            with CancelScope(shield=True):  # also for a client that has gone
                await run_in_threadpool(admitted.close)

    return StreamingResponse(parts(), media_type=ARROW if as_arrow else "application/json")


def _as_arrow(admitted: AdmittedQuery) -> Iterator[bytes]:
    sink = _Chunks()
    with pa.ipc.new_stream(sink, admitted.schema) as writer:
        for batch in admitted.batches():
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


class _Chunks:
    """A file that hands on what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        """Keep what is written."""
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Do nothing."""

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        data, self._parts = b"".join(self._parts), []
        return data


def _as_json(admitted: AdmittedQuery) -> Iterator[bytes]:
    """Yield one JSON object; the rows are lists in the order of the columns."""
    batches = admitted.batches(may_be_cut=True)
    head = json.dumps({"columns": _columns(admitted.schema)}, ensure_ascii=False)[:-1]
    text = f'{head}, "rows": ['
    comma = ""
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            text += comma + json.dumps([_plain(value) for value in row], ensure_ascii=False)
            comma = ",\n"
        yield text.encode()
        text = ""
    cut = "true" if admitted.outcome == "truncated" else "false"
    yield f'{text}], "truncated": {cut}}}\n'.encode()


def _columns(schema: pa.Schema) -> list[dict[str, str]]:
    columns = []
    for field in schema:
        said = {"name": field.name, "type": str(field.type)}
        comment = (field.metadata or {}).get(b"comment")
        columns.append(said if comment is None else {**said, "comment": comment.decode()})
    return columns


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON has no number for is null."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | str():
            return value
    return str(value)


def _moment(text: Any) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ConfigurationError("as_of is a moment such as 2026-11-20T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
