"""Loading a bundle: a folder of YAML files becomes one checked, hashed policy."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import policies
from governance.errors import PolicyError
from governance.policy.documents import (
    API_VERSION,
    KINDS,
    LATER_KINDS,
    PolicyBundle,
)
from governance.policy.secrets import read_policy
from trajectory.canonical import bytes_hash
from trajectory.documents.problems import describe
from trajectory.documents.source import SourceDocument
from trajectory.files import read_file

SHIPPED = Path(policies.__file__).parent


def load_bundle(path: Path | None = None) -> PolicyBundle:
    """Return the policy of a folder; without one, the shipped default.

    Documents of later rooms (Substrate, Schedule, Recipe) may stand in the folder; they decide
    nothing here and are not part of the bundle. A shipped bundle is also found by its bare name (``strict``). Files that end in ``.test.yaml``
    and the folder ``tests`` are test cases, not policy.

    Raises:
        PolicyError: a document is wrong, or the bundle is not complete; every problem that was
            found is one line of the text.
    """
    folder = _folder(path)
    problems: list[str] = []
    found: dict[str, Any] = {}
    places: dict[str, SourceDocument] = {}
    read: dict[Path, list[SourceDocument] | PolicyError] = {}
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        if not file.name.endswith((".test.yaml", ".test.yml")):
            read[file] = _read(file)
    listed = _recognizers(read.values())
    problems += _misplaced(folder, listed)
    for file, documents in read.items():
        if file.resolve() in {(folder / name).resolve() for name in listed}:
            continue  # Presidio's, not a document of ours
        if isinstance(documents, PolicyError):
            problems.append(str(documents))
            continue
        for source in documents:
            problems += _take(source, found, places)
    recognizers, unread = _hashed(folder, listed)
    problems += unread
    missing = [kind for kind in KINDS if kind not in places]
    if missing and not problems:
        problems.append(
            f"{_shown(folder)}: no document of kind {', '.join(missing)}. A bundle has one of each "
            f"of {', '.join(KINDS)}; start from a copy of {SHIPPED.name}/default."
        )
    if problems:
        raise PolicyError("\n".join(problems))
    said: dict[str, Any] = {kind.lower(): document for kind, document in found.items()}
    return PolicyBundle(path=folder, recognizers=recognizers, sources=places, **said)


def _read(file: Path) -> list[SourceDocument] | PolicyError:
    try:
        return read_policy(file, _shown(file))
    except PolicyError as error:
        return error


def _misplaced(folder: Path, listed: Iterable[str]) -> list[str]:
    """Return what is wrong with policy documents in subfolders: nobody would miss them."""
    known = {(folder / name).resolve() for name in listed}
    problems: list[str] = []
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml")):
        inside = file.relative_to(folder).parts[:-1]
        is_case = file.name.endswith((".test.yaml", ".test.yml")) or "tests" in inside
        if not inside or is_case or any(one.startswith(".") for one in inside):
            continue
        documents = _read(file) if file.resolve() not in known else []
        for source in documents if isinstance(documents, list) else ():
            kind = source.value.get("kind") if isinstance(source.value, dict) else None
            if isinstance(kind, str) and kind in KINDS:
                said = f"stands in a subfolder, which is not read; move it to {_shown(folder)}"
                problems.append(source.error((), said))
    return problems


def _recognizers(read: Iterable[list[SourceDocument] | PolicyError]) -> dict[str, str]:
    """Return the files of recognisers that Redaction names, each with where it is named."""
    listed: dict[str, str] = {}
    for documents in read:
        for source in documents if isinstance(documents, list) else ():
            value = source.value if isinstance(source.value, dict) else {}
            spec = value.get("spec") if value.get("kind") == "Redaction" else None
            names = spec.get("recognizers") if isinstance(spec, dict) else None
            for index, name in enumerate(names if isinstance(names, list) else ()):
                path = ("spec", "recognizers", index)
                listed[str(name)] = source.error(path, "cannot be read; relative to this folder")
    return listed


def _hashed(folder: Path, listed: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the hash of each file of recognisers, and what cannot be read."""
    hashes: dict[str, str] = {}
    problems: list[str] = []
    for name, problem in listed.items():
        try:
            hashes[name] = bytes_hash(read_file(folder / name))
        except OSError as error:
            problems.append(f"{problem} ({type(error).__name__})")
    return hashes, problems


def _folder(path: Path | None) -> Path:
    if path is None:
        return SHIPPED / "default"
    if path.is_dir():
        return path
    if len(path.parts) == 1 and (SHIPPED / path).is_dir():
        return SHIPPED / path
    shipped = ", ".join(sorted(folder.name for folder in SHIPPED.iterdir() if _is_bundle(folder)))
    raise PolicyError(f"{path}: no such policy folder. Shipped bundles: {shipped}")


def _is_bundle(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.yaml"))


def _shown(path: Path) -> str:
    """Return a path as a reader would write it, from the current folder where that is shorter."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _take(
    source: SourceDocument, found: dict[str, Any], places: dict[str, SourceDocument]
) -> list[str]:
    """Check one document and put it in its place; return what is wrong with it."""
    if not isinstance(source.value, dict):
        return [source.error((), f"not a mapping. Valid: apiVersion: {API_VERSION}, kind, …")]
    kind: Any = source.value.get("kind")
    if kind in LATER_KINDS:
        return []
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        said = f"unknown kind {kind!r}." if "kind" in source.value else "is required."
        return [source.error(("kind",), f"{said} Valid: {', '.join((*KINDS, *LATER_KINDS))}")]
    if kind in places:
        first = places[kind]
        place = f"{first.file}:{first.line_of(('kind',))}"
        return [source.error(("kind",), f"a second {kind}; the first is at {place}")]
    places[kind] = source
    try:
        found[kind] = model.model_validate(source.value)
    except ValidationError as error:
        return describe(error, source, model)
    return []
