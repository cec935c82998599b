"""The server in Arrow Flight SQL, for ADBC, JDBC and ODBC clients.

Clients show their key as a bearer token, or as the password of any user name. A statement's ticket is its text. It
opens nothing that the key does not open anyway, and nothing waits for a client that never comes back. Prepared
statements are kept in this process, so a client stays with one server.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message
from pyarrow import flight

from lakehouse.sandbox.deadline import QueryTimeoutError
from lakehouse.sandbox.stream import QueryCancelledError
from lakehouse.sql_server import flight_sql_pb2 as messages
from lakehouse.sql_server.metadata import ANSWERS, facts, sql_info
from lakehouse.sql_server.service import AdmittedQuery, Reader, SqlService
from lakehouse.sql_server.statements import Statements
from trajectory.errors import ConfigurationError, HeadraceError, RetryableError

_MIDDLEWARE = "headrace"
_VALUE_BYTES = 4 << 20
_READ_ONLY = "this server only reads; tables are written through the gateway and the command line"
_WRITES = (
    messages.CommandStatementUpdate,
    messages.CommandPreparedStatementUpdate,
    messages.CommandStatementIngest,
)


class Tls(NamedTuple):
    """A certificate chain and its key, as files in PEM."""

    certificate: Path
    key: Path


class _Session(flight.ServerMiddleware):  # type: ignore[misc]
    """One call's reader."""

    def __init__(self, reader: Reader, token: str) -> None:
        self.reader = reader
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        """Tell clients that came with a password which token to show from now on."""
        return {"authorization": f"Bearer {self._token}"} if self._token else {}


class _Keys(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Looks at the key of every call before anything else happens."""

    def __init__(self, authenticate: Callable[[str], Reader | None]) -> None:
        self._authenticate = authenticate

    def start_call(
        self,
        info: Any,  # noqa: ARG002 - pyarrow's signature
        headers: Mapping[str, Sequence[str]],
    ) -> _Session:
        secret, by_password = _secret(headers)
        reader = self._authenticate(secret) if secret else None
        if reader is None:
            raise flight.FlightUnauthenticatedError(
                "missing, wrong or revoked key, or one without the role lake: "
                "headrace keys create --tenant NAME --role lake"
            )
        return _Session(reader, secret if by_password else "")


class _NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake of password clients pass; :class:`_Keys` has looked at it by then."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Ask for nothing more."""

    def is_valid(self, token: bytes) -> bytes:  # noqa: ARG002 - pyarrow's signature
        """Take every call; :class:`_Keys` has looked at its key."""
        return b""


class _Rows:
    """The rows of a query; ends it when they are all sent, or when nobody wants them."""

    def __init__(self, admitted: AdmittedQuery) -> None:
        self._admitted = admitted
        self._batches = admitted.batches()

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            with _as_flight_errors():
                return next(self._batches)
        except BaseException:  # the end is one of them
            self._admitted.close()
            raise

    def __del__(self) -> None:
        self._admitted.close()


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves one :class:`SqlService`; :meth:`serve` runs until :meth:`shutdown`."""

    def __init__(
        self, service: SqlService, *, host: str, port: int, version: str, tls: Tls | None = None
    ) -> None:
        """Listen at ``host`` and ``port`` (0 picks a free one, see the attribute ``port``)."""
        self._service = service
        self._statements = Statements()
        seconds = service.limits.query.seconds
        self._facts = facts(version=version, timeout_ms=int(1000 * seconds))
        scheme = "grpc" if tls is None else "grpc+tls"
        place = f"[{host}]" if ":" in host else host
        super().__init__(
            f"{scheme}://{place}:{port}",
            auth_handler=_NoHandshake(),
            tls_certificates=None
            if tls is None
            else [(tls.certificate.read_bytes(), tls.key.read_bytes())],
            middleware={_MIDDLEWARE: _Keys(service.authenticate)},
        )

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Say where the answer to a command is fetched: here, with a ticket that names it."""
        with _as_flight_errors():
            message = unpacked(descriptor.command)
            ticket, schema = descriptor.command, None
            if isinstance(message, messages.CommandStatementQuery):
                ticket = packed(
                    messages.TicketStatementQuery(statement_handle=message.query.encode())
                )
            elif isinstance(message, messages.CommandPreparedStatementQuery):
                handle = message.prepared_statement_handle
                schema = self._statements.get(_reader(context).key_id, handle).schema
            else:
                schema = self._metadata(_reader(context), message).schema
            endpoint = flight.FlightEndpoint(flight.Ticket(ticket), [])
            return flight.FlightInfo(schema, descriptor, [endpoint], -1, -1)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the schema of a command's answer."""
        with _as_flight_errors():
            message, reader = unpacked(descriptor.command), _reader(context)
            if isinstance(message, messages.CommandStatementQuery):
                return flight.SchemaResult(self._describe(reader, message.query)[0])
            if isinstance(message, messages.CommandPreparedStatementQuery):
                handle = message.prepared_statement_handle
                sql = self._statements.get(reader.key_id, handle).sql
                return flight.SchemaResult(self._describe(reader, sql)[0])
            return flight.SchemaResult(self._metadata(reader, message).schema)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Run the query that a ticket names, and stream its rows."""
        with _as_flight_errors():
            message, reader = unpacked(ticket.ticket), _reader(context)
            if isinstance(message, messages.TicketStatementQuery):
                sql, values = _text(message), None
            elif isinstance(message, messages.CommandPreparedStatementQuery):
                held = self._statements.get(reader.key_id, message.prepared_statement_handle)
                sql, values = held.sql, held.values
            else:
                return flight.RecordBatchStream(self._metadata(reader, message))
            admitted = self._service.ask(reader, sql, values, gone=context.is_cancelled)
            return flight.GeneratorStream(admitted.schema, _Rows(admitted))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Take the values of a prepared statement's parameters."""
        with _as_flight_errors():
            message = unpacked(descriptor.command)
            if isinstance(message, _WRITES):
                raise ConfigurationError(_READ_ONLY)
            if not isinstance(message, messages.CommandPreparedStatementQuery):
                raise NotImplementedError(type(message).__name__)
            handle = message.prepared_statement_handle
            values = _one_row(reader)
            self._statements.bind(_reader(context).key_id, handle, values)
            bound = messages.DoPutPreparedStatementResult(prepared_statement_handle=handle)
            writer.write(pa.py_buffer(bound.SerializeToString()))

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Prepare and close statements."""
        with _as_flight_errors():
            reader = _reader(context)
            if action.type not in ("CreatePreparedStatement", "ClosePreparedStatement"):
                raise NotImplementedError(action.type)
            message = unpacked(action.body.to_pybytes())
            if isinstance(message, messages.ActionCreatePreparedStatementRequest):
                return iter([self._prepare(reader, message.query)])
            if isinstance(message, messages.ActionClosePreparedStatementRequest):
                self._statements.close(reader.key_id, message.prepared_statement_handle)
                return iter([])
            raise NotImplementedError(type(message).__name__)

    def list_actions(
        self,
        context: Any,  # noqa: ARG002 - pyarrow's signature
    ) -> list[tuple[str, str]]:
        """Name the actions that there are."""
        return [
            ("CreatePreparedStatement", "Prepares a SELECT"),
            ("ClosePreparedStatement", "Forgets a prepared statement"),
        ]

    def _prepare(self, reader: Reader, sql: str) -> Any:
        schema, names = self._describe(reader, sql)
        known = None if names else schema  # bound values may have other types than null
        handle = self._statements.add(reader.key_id, sql, names, known)
        made = messages.ActionCreatePreparedStatementResult(
            prepared_statement_handle=handle, dataset_schema=schema.serialize().to_pybytes()
        )
        if names:
            parameters = pa.schema([pa.field(name, pa.null()) for name in names])
            made.parameter_schema = parameters.serialize().to_pybytes()
        return flight.Result(pa.py_buffer(packed(made)))

    def _describe(self, reader: Reader, sql: str) -> tuple[pa.Schema, tuple[str, ...]]:
        admitted = self._service.describe(reader, sql)
        admitted.close()
        return admitted.schema, admitted.parameters

    def _metadata(self, reader: Reader, message: Message) -> pa.Table:
        if isinstance(message, messages.CommandGetSqlInfo):
            return sql_info(message, self._facts)
        answer = ANSWERS.get(type(message))
        if answer is None:
            raise NotImplementedError(type(message).__name__)
        return answer(message, self._service.catalog(reader))


def packed(message: Message) -> bytes:
    """Return a message inside ``google.protobuf.Any``, as Flight SQL sends nearly all of them."""
    envelope = Envelope()
    envelope.Pack(message)
    sealed: bytes = envelope.SerializeToString()
    return sealed


def unpacked(data: bytes | None) -> Message:
    """Return the message inside a ``google.protobuf.Any``; a descriptor that is a path has none.

    Raises:
        ConfigurationError: the bytes are no message of Flight SQL.
        NotImplementedError: the server does not know a message of this name.
    """
    try:
        envelope = Envelope.FromString(data or b"")
        package, _, name = envelope.TypeName().rpartition(".")
        if package != messages.DESCRIPTOR.package:
            raise ConfigurationError("this is no message of Flight SQL")
        if name not in messages.DESCRIPTOR.message_types_by_name:
            raise NotImplementedError(name)
        return getattr(messages, name).FromString(envelope.value)
    except DecodeError as error:
        raise ConfigurationError("these bytes are no message of Flight SQL") from error


def _text(ticket: messages.TicketStatementQuery) -> str:
    try:
        return ticket.statement_handle.decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError("the ticket holds no text; ask for a new one") from error


def _one_row(reader: Any) -> list[Any]:
    """Return the values that a client binds; no more is read than one row may hold."""
    rows = size = 0
    values: list[Any] = []
    for chunk in reader:
        rows += chunk.data.num_rows
        size += chunk.data.nbytes
        if rows > 1 or size > _VALUE_BYTES:
            break
        values = [column[0].as_py() for column in chunk.data.columns] if rows else []
    if rows != 1 or size > _VALUE_BYTES:
        raise ConfigurationError(
            f"bind one row of at most {_VALUE_BYTES:,} bytes of values to a query"
        )
    return values


def _reader(context: Any) -> Reader:
    session = context.get_middleware(_MIDDLEWARE)
    if not isinstance(session, _Session):
        raise flight.FlightUnauthenticatedError("no key")
    return session.reader


def _secret(headers: Mapping[str, Sequence[str]]) -> tuple[str, bool]:
    """Return the key that a call shows, and whether it came as a password."""
    found = next((v[0] for k, v in headers.items() if k.lower() == "authorization" and v), "")
    kind, _, value = found.partition(" ")
    if kind.lower() == "bearer":
        return value.strip(), False
    if kind.lower() != "basic":
        return "", False
    try:
        padded = value + "=" * (-len(value) % 4)  # Go's client leaves the padding out
        return base64.b64decode(padded, validate=True).decode().partition(":")[2], True
    except (binascii.Error, UnicodeDecodeError):
        return "", False


@contextmanager
def _as_flight_errors() -> Iterator[None]:
    """Turn our errors into the protocol's; of others nothing is told."""
    try:
        yield
    except (flight.FlightError, StopIteration):
        raise
    except NotImplementedError as error:
        raise pa.ArrowNotImplementedError(f"{error} is not supported: {_READ_ONLY}") from None
    except QueryTimeoutError as error:
        raise flight.FlightTimedOutError(str(error)) from None
    except QueryCancelledError as error:
        raise flight.FlightCancelledError(str(error)) from None
    except RetryableError as error:
        raise flight.FlightUnavailableError(str(error)) from None
    except ConfigurationError as error:
        raise pa.ArrowInvalid(str(error)) from None
    except HeadraceError as error:
        raise flight.FlightServerError(str(error)) from None
    except Exception as error:  # noqa: BLE001 - its text could hold what the client may not see
        raise flight.FlightInternalError(f"the server failed: {type(error).__name__}") from None
