"""Our own document: the JSON form of a trajectory, which holds everything (``trajectory/schema.json``)."""

from trajectory.canonical import JsonObject
from trajectory.formats.document import DocumentFormat
from trajectory.json_form import from_json, to_json
from trajectory.portable import Trajectory
from trajectory.version import SCHEMA_VERSION


def _read(document: JsonObject, where: str) -> Trajectory:
    return from_json(Trajectory, document, where=where)


FORMAT = DocumentFormat("headrace", str(SCHEMA_VERSION), _read, to_json)
import_document = FORMAT.import_document
export_document = FORMAT.export_document

__all__ = ["FORMAT", "export_document", "import_document"]
