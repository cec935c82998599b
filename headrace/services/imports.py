"""Import of documents: read, checked, sealed into the spool, and governed like everything else."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.api.documents import document_record
from proxy.spool import SpoolUnavailableError, SpoolWriter
from trajectory.canonical import JsonValue
from trajectory.dialects.wire import UnreadableError, parse_json
from trajectory.errors import ConfigurationError
from trajectory.exchange import ClientIdentity
from trajectory.formats.catalog import FORMATS, Format
from trajectory.imports import MODE, document_body, format_header
from trajectory.json_form import FormError
from trajectory.portable import Trajectory


@dataclass(slots=True)
class ImportReport:
    """Result of an import."""

    documents: int = 0
    trajectories: int = 0
    steps: int = 0


def find_format(name: str) -> Format:
    """Return a format by its name.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in FORMATS:
        raise ConfigurationError(f"unknown format {name!r}. Valid: {', '.join(FORMATS)}.")
    return FORMATS[name]


def read_documents(path: Path) -> Iterator[tuple[str, JsonValue]]:
    """Return the documents of a file with their places: JSON lines, or one document or list.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no JSON.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    whole = _whole(data)
    if whole is not None:
        many = whole if isinstance(whole, list) else [whole]
        for number, item in enumerate(many, 1):
            yield (f"{path}" if len(many) == 1 else f"{path}[{number}]"), item
        return
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                yield f"{path}:{number}", parse_json(line, "line")
            except UnreadableError as error:
                raise FormError(f"{path}:{number}: {error.args[0]}; expected JSON") from None


def _whole(data: bytes) -> JsonValue | None:
    """Return the file as one JSON value; None when it is lines."""
    try:
        return parse_json(data, "file")
    except UnreadableError:
        return None


def import_documents(
    paths: list[Path], *, form: Format, client: ClientIdentity, spool: SpoolWriter | None
) -> ImportReport:
    """Read documents and seal their trajectories into the spool; without one, only check them.

    Raises:
        FormError: a document is wrong; nothing of any file was sealed then.
        SpoolUnavailableError: it has no room for all of them beside captures; nothing was sealed then.
    """
    report = ImportReport()
    read: list[Trajectory] = []
    for path in paths:
        for where, document in read_documents(path):
            report.documents += 1
            try:
                read += form.read(document, where)
            except OverflowError:  # JSON has whole numbers of any length
                raise FormError(f"{where}: a number is too large") from None
    report.trajectories = len(read)
    report.steps = sum(len(trajectory.steps) for trajectory in read)
    if spool is not None:
        _seal([_record(trajectory, form, client) for trajectory in read], spool)
    return report


def _seal(records: Sequence[tuple[int, bytes]], spool: SpoolWriter) -> None:
    """Put records into the spool, all of them or none; captures of live calls need the rest of it."""
    size = sum(len(record) for _, record in records)
    if size > spool.room:
        raise SpoolUnavailableError(
            f"the documents have {size:,} bytes, and the spool has room for {spool.room:,} before it leaves out "
            "what live calls say: nothing was imported. Let the governor catch up, import fewer files at a time, or "
            "raise gateway.spool.max_bytes"
        )
    for record in records:
        spool.append(*record)


def _record(trajectory: Trajectory, form: Format, client: ClientIdentity) -> tuple[int, bytes]:
    try:
        return document_record(
            client,
            mode=MODE,
            path=f"/import/{form.name}",
            headers=(format_header(form.name),),
            body=document_body(trajectory),
        )
    except ValueError as error:
        name = json.dumps(trajectory.trajectory_id)
        raise ConfigurationError(f"trajectory {name} is too large: {error}") from None
