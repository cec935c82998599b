"""Building a redactor from policy: a guard that policy asks for and that cannot load stops it."""

import atexit
import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from governance.detect.finding import Detector
from governance.errors import FieldError
from governance.policy.documents import PolicyBundle
from governance.policy.redaction import DEFAULT_ENTITIES, RedactionSpec
from governance.redact.detection_cache import DetectionMemory
from governance.redact.pseudonym import key_of_epoch
from governance.redact.redactor import Redactor, known_entities
from governance.redact.subject_keys import SubjectKeys
from governance.redact.wire import WireRedactor, wire_spec
from trajectory.documents.problems import meant
from trajectory.errors import ConfigurationError
from trajectory.plugins import DETECTORS, load_plugins

NAME_ENTITIES = frozenset({"PERSON", "LOCATION", "ORGANIZATION", "NRP"})
"""What a names model may be asked for."""


def build_redactor(
    spec: RedactionSpec,
    *,
    pseudonym_key: bytes,
    base: Path | None = None,
    subjects: SubjectKeys | None = None,
) -> Redactor:
    """Return the redactor that a policy asks for. Imports Presidio (and spaCy): takes seconds.

    Args:
        spec: the policy's ``spec``.
        pseudonym_key: 16 to 64 secret bytes; the same key gives the same pseudonyms.
        base: folder that recogniser files of the policy are relative to.
        subjects: the keys of data subjects; needed where policy says ``keys: subject``.

    Raises:
        FieldError: a recogniser, model or entity that was asked for is not there.
    """
    if not 16 <= len(pseudonym_key) <= 64:
        raise ConfigurationError("the pseudonym key must have 16 to 64 bytes")
    if spec.keys == "subject" and subjects is None:
        raise ConfigurationError(
            "policy says `keys: subject`, and no store of subject keys is at hand here."
        )
    entities = frozenset(spec.operators())
    detectors = build_detectors(spec, entities, base or Path())
    known = known_entities(detectors)
    if missing := sorted(entities - known):
        raise FieldError(_nobody_finds(missing, known), ("spec", "entities", missing[0]))
    if missing := sorted({*spec.subjects} - known - {*DEFAULT_ENTITIES} - NAME_ENTITIES):
        raise FieldError(_nobody_finds(missing, known), ("spec", "subjects"))
    redactor = Redactor(
        spec,
        detectors,
        pseudonym_key=key_of_epoch(pseudonym_key, spec.key_epoch),
        subject_key=pseudonym_key,
        subjects=subjects,
    )
    redactor.warm()
    return redactor


def build_detectors(spec: RedactionSpec, entities: frozenset[str], base: Path) -> list[Detector]:
    """Return what looks for these entities, in the order in which it looks."""
    from governance.detect.address_blocks import AddressBlocks
    from governance.detect.keys import KeyPaths
    from governance.detect.names.whole_names import WholeNames
    from governance.detect.presidio import PresidioDetector, registry
    from governance.detect.tables import TableCells

    with _field("spec", "recognizers"):
        found = registry(entities, [base / name for name in spec.recognizers])
    detectors: list[Detector] = [PresidioDetector(found), KeyPaths(entities)]
    if "STREET_ADDRESS" in entities:
        detectors.append(AddressBlocks())
    embedded = None
    if spec.names.model == "embedded" and entities & NAME_ENTITIES:
        from governance.detect.names.embedded_model import EmbeddedNames

        embedded = EmbeddedNames(entities)
    if "PERSON" in entities and spec.names.rules:
        from governance.detect.names.rules import NameRules

        detectors.append(NameRules(None if embedded is None else embedded.confirmed))
    detectors += [one for one in load_plugins(DETECTORS) if entities & one.entities]
    detectors.append(TableCells([*detectors]))
    if embedded is not None:
        detectors.append(embedded)
    elif spec.names.model is not None and entities & NAME_ENTITIES:
        from governance.detect.names.model import NamesModel

        with _field("spec", "names", "model"):
            detectors.append(NamesModel.load(spec.names.model, entities))
    if "PERSON" in entities:
        detectors.append(WholeNames())
    return detectors


def build_wire_redactors(
    spec: RedactionSpec, count: int, *, pseudonym_key: bytes, base: Path
) -> tuple[WireRedactor, ...]:
    """Return what puts surrogates into requests; none where the policy does not ask for it.

    Args:
        spec: the policy's ``spec``.
        count: one for each thread; they share what they found.
        pseudonym_key: names data subjects as redaction at rest does.
        base: folder that recogniser files of the policy are relative to.

    Raises:
        FieldError: what it asks for is not there.
    """
    if spec.inline is None:
        return ()
    sought = wire_spec(spec, spec.inline.sought(spec.operators()))
    memory = DetectionMemory()
    made = []
    for _ in range(count):
        detectors = build_detectors(sought, frozenset(sought.operators()), base)
        made.append(
            WireRedactor(
                sought,
                detectors,
                pseudonym_key=key_of_epoch(pseudonym_key, spec.key_epoch),
                subject_key=pseudonym_key,
                memory=memory,
            )
        )
        made[-1].warm()
    return tuple(made)


def wire_redactors_of(
    bundle: PolicyBundle, count: int, *, pseudonym_key: bytes
) -> tuple[WireRedactor, ...]:
    """Return what puts surrogates into requests by a bundle; see :func:`build_wire_redactors`.

    Raises:
        PolicyError: what it asks for is not there; the text names file, line and field.
    """
    try:
        return build_wire_redactors(
            bundle.redaction.spec, count, pseudonym_key=pseudonym_key, base=bundle.path
        )
    except FieldError as error:
        raise bundle.located("Redaction", error) from error


def redactor_of(
    bundle: PolicyBundle, *, pseudonym_key: bytes, subjects: SubjectKeys | None = None
) -> Redactor:
    """Return the redactor that a bundle asks for; see :func:`build_redactor`.

    Raises:
        PolicyError: what it asks for is not there; the text names file, line and field.
    """
    try:
        return build_redactor(
            bundle.redaction.spec,
            pseudonym_key=pseudonym_key,
            base=bundle.path,
            subjects=subjects,
        )
    except FieldError as error:
        raise bundle.located("Redaction", error) from error


@contextmanager
def _field(*path: str) -> Iterator[None]:
    """Tell of an error which field asked for what is not there."""
    try:
        yield
    except ConfigurationError as error:
        raise FieldError(str(error), path) from error


def _nobody_finds(missing: Sequence[str], known: Collection[str]) -> str:
    return (
        f"no detector finds {', '.join(missing)}. Known entities: {', '.join(sorted(known))}; others "
        f"come with `names.model`, `recognizers` or plugins{meant(missing[0], known)}"
    )


_THRESHOLDS = (20_000, 10, 20)
"""New objects before the collector looks through the young, and how often before the older ones.

Python's own thresholds let it look through all open conversations again and again: an eighth of a batch's time.
"""


def settle() -> None:
    """Leave what is loaded out of garbage collection, for processes that redact for a long time.

    Python's collector would look through all of it again, for a tenth of a second and more, in the
    midst of some row. What an earlier policy left behind is collected first. From then on it looks more rarely.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)  # else extensions take what is left for leaks at the end
