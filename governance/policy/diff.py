"""The difference between two bundles: which settings say something else."""

from collections.abc import Iterable
from dataclasses import dataclass

from governance.policy.documents import PolicyBundle
from trajectory.canonical import JsonValue


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """One setting that differs; None stands for one that is not there."""

    kind: str
    field: str
    """Path of the setting within ``spec``; named rules by their name: ``grants.acme.purposes``."""
    old: JsonValue
    new: JsonValue


def diff_bundles(old: PolicyBundle, new: PolicyBundle) -> list[PolicyChange]:
    """Return what ``new`` says otherwise than ``old``; names, comments and layout do not count."""
    changes: list[PolicyChange] = []
    for before, after in zip(old.documents, new.documents, strict=True):
        kind = type(before).__name__.removesuffix("Document")
        said_before = dict(_flat(before.model_dump(mode="json", by_alias=True)["spec"]))
        said_after = dict(_flat(after.model_dump(mode="json", by_alias=True)["spec"]))
        changes += [
            PolicyChange(kind, field, said_before.get(field), said_after.get(field))
            for field in dict.fromkeys((*said_before, *said_after))
            if _said(said_before.get(field)) != _said(said_after.get(field))
        ]
    return changes


def _said(value: JsonValue) -> JsonValue:
    """Return ``value``, None when it is an empty list or mapping: those say as much as no setting."""
    return None if value in ([], {}) else value


def _flat(value: JsonValue, path: tuple[str, ...] = ()) -> Iterable[tuple[str, JsonValue]]:
    """Yield the leaves of a document; lists of named things by name, other lists as one value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, (*path, key))
    elif isinstance(value, list) and value and all(_name(item) for item in value):
        for item in value:
            yield from _flat(item, (*path, _name(item)))
        yield ".".join((*path, "order")), [_name(item) for item in value]
    else:
        yield ".".join(path), value


def _name(value: JsonValue) -> str:
    return str(value.get("name") or "") if isinstance(value, dict) else ""
