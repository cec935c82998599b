"""Messages of Flight SQL: the generated code is the page's, and bytes that are no message are refused."""

import contextlib
import re
from importlib.resources import files

import pytest
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.sql_server import flight_sql_pb2 as messages
from lakehouse.sql_server.flight import packed, unpacked
from trajectory.errors import ConfigurationError

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_UINT32: "uint32",
}


def test_the_generated_code_is_of_the_proto() -> None:
    source = files("lakehouse.sql_server").joinpath("flight_sql.proto").read_text()
    written = {
        name: re.findall(r"^ +(?:(optional|repeated) )?(\w+) (\w+) = (\d+);$", body, re.MULTILINE)
        for name, body in re.findall(r"^message (\w+) \{(.*?)\}$", source, re.MULTILINE | re.DOTALL)
    }
    generated = {
        name: [
            (_label(field), TYPES[field.type], field.name, str(field.number))
            for field in message.fields
        ]
        for name, message in messages.DESCRIPTOR.message_types_by_name.items()
    }
    assert f"package {messages.DESCRIPTOR.package};" in source
    assert generated == written, "run scripts/generate-flight-sql"


def _label(field: FieldDescriptor) -> str:
    if field.is_repeated:
        return "repeated"
    return "optional" if field.has_presence else ""


def test_a_message_has_the_bytes_of_the_protocol() -> None:
    asked = messages.CommandGetTables(
        catalog="c", db_schema_filter_pattern="d%", table_name_filter_pattern="", table_types=["T"]
    )
    envelope = Envelope.FromString(packed(asked))
    assert envelope.type_url == PREFIX + "CommandGetTables"
    assert envelope.value == b"\x0a\x01c\x12\x02d%\x1a\x00\x22\x01T"
    assert unpacked(packed(asked)) == asked
    numbers = Envelope(type_url=PREFIX + "CommandGetSqlInfo", value=b"\x0a\x03\x01\x96\x01\x08\x07")
    read = unpacked(numbers.SerializeToString())
    assert read == messages.CommandGetSqlInfo(info=[1, 150, 7])


@settings(deadline=None)
@given(st.sampled_from(sorted(messages.DESCRIPTOR.message_types_by_name)), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(name: str, data: bytes) -> None:
    with contextlib.suppress(ConfigurationError, NotImplementedError):
        unpacked(data)
    envelope = Envelope(type_url=PREFIX + name, value=data)
    with contextlib.suppress(ConfigurationError):
        assert type(unpacked(envelope.SerializeToString())).__name__ == name


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        (PREFIX + "CommandStatementSubstraitPlan", b"", NotImplementedError),
        (PREFIX + "DESCRIPTOR", b"", NotImplementedError),
        ("type.googleapis.com/google.protobuf.Any", b"", ConfigurationError),
        (PREFIX + "CommandStatementQuery", b"\x0a\x01\xff", ConfigurationError),
        (PREFIX + "CommandStatementQuery", b"\x0a\x02a", ConfigurationError),
    ],
)
def test_what_is_no_message_of_the_door_is_refused(
    name: str, value: bytes, refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        unpacked(Envelope(type_url=name, value=value).SerializeToString())
