"""All formats by name: documents to trajectories and back."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from trajectory.canonical import JsonValue
from trajectory.formats import adp, atif, headrace, openai_messages, openenv, rlds, traces, trl
from trajectory.formats.document import DocumentFormat, WrittenDocument
from trajectory.json_form import FormError
from trajectory.portable import Trajectory


@dataclass(frozen=True, slots=True)
class Format:
    """One format, as commands know it."""

    name: str
    version: str
    place: str
    """Where the format keeps what it has no place for; empty where it has none."""
    read: Callable[[JsonValue, str], tuple[Trajectory, ...]]
    """Reads the trajectories of a document; errors begin with the second argument."""
    write: Callable[[Iterable[Trajectory]], Iterator[WrittenDocument]]
    """Writes trajectories as documents."""


def _one_each(form: DocumentFormat) -> Format:
    return _format(form, lambda document, where: (form.import_document(document, where=where),))


def _format(
    form: DocumentFormat, read: Callable[[JsonValue, str], tuple[Trajectory, ...]]
) -> Format:
    place = "" if form.carrier is None else form.carrier.place
    return Format(form.name, form.version, place, read, lambda many: map(form.write_document, many))


def _traces(form: DocumentFormat) -> Format:
    def read(document: JsonValue, where: str) -> tuple[Trajectory, ...]:
        if not isinstance(document, dict):
            raise FormError(f"{where}: expected an object, one {form.name} document")
        one = traces.FIRST_ATTRIBUTE.take(document)[1]
        parts = [document] if one else traces.split_traces(document, where)
        if not parts:
            raise FormError(f"{where}: resourceSpans: no span of a model call ({form.name})")
        return tuple(form.import_document(part, where=where) for part in parts)

    return _format(form, read)


_UNPAIRED = _one_each(trl.UNPAIRED)
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        _one_each(headrace.FORMAT),
        _one_each(openai_messages.FORMAT),
        _one_each(atif.FORMAT),
        _traces(traces.GENAI_FORMAT),
        _traces(traces.OPENINFERENCE_FORMAT),
        _one_each(openenv.FORMAT),
        _one_each(trl.CONVERSATIONAL),
        Format(
            "trl-preference",
            trl.VERSION,
            "column headrace",
            lambda row, where: trl.import_preference(row, where=where),
            trl.preference_rows,
        ),
        Format(
            _UNPAIRED.name,
            _UNPAIRED.version,
            _UNPAIRED.place,
            _UNPAIRED.read,
            lambda many: _UNPAIRED.write(part for one in many for part in trl.each_judged(one)),
        ),
        _one_each(trl.PROMPT_ONLY),
        _one_each(adp.FORMAT),
        _one_each(rlds.FORMAT),
    )
}

__all__ = ["FORMATS", "Format"]
