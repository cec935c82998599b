"""Quality of detection on labelled text: masks, types, documents in which somebody is still named."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from governance.policy.redaction import NamesSpec, RedactionSpec
from governance.redact import RedactionScope, Redactor, build_redactor

_DIRECT = frozenset(
    [
        "PERSON",
        "EMAIL_ADDRESS",
        "PHONE_NUMBER",
        "US_SSN",
        "CREDIT_CARD",
        "IBAN_CODE",
        "API_KEY",
        "PASSWORD",
        "MAC_ADDRESS",
        "IP_ADDRESS",
        "USERNAME",
        "BANK_ACCOUNT",
        "MEDICAL_RECORD",
        "US_DRIVER_LICENSE",
    ]
)
_SAME = {
    "PERSON_NAME": "PERSON",
    "PER": "PERSON",
    "SOCIAL_SECURITY_NUMBER": "US_SSN",
    "ORGANIZATION_NAME": "ORGANIZATION",
    "ORG": "ORGANIZATION",
    "GPE": "LOCATION",
    "LOC": "LOCATION",
    "BANK_ACCOUNT_NUMBER": "BANK_ACCOUNT",
    "MEDICAL_RECORD_NUMBER": "MEDICAL_RECORD",
    "ZIP_CODE": "POSTCODE",
}


class Document(NamedTuple):
    """A labelled text."""

    text: str
    spans: tuple[tuple[int, int, str], ...]


def synthetic(path: Path) -> Iterator[Document]:
    """Read presidio-research's format."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        spans = ((s["start_position"], s["end_position"], s["entity_type"]) for s in row["spans"])
        yield Document(row["full_text"], tuple(spans))


def annotated(path: Path) -> Iterator[Document]:
    """Read pii-anon's format."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        spans = ((s["start"], s["end"], s["entity_type"]) for s in row["annotations"])
        yield Document(row["text"], tuple(spans))


def web(path: Path) -> Iterator[Document]:
    """Read UNER's columns; words are found again in the sentence's own text."""
    text, at = "", 0
    spans: list[tuple[int, int, str]] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("# text = "):
            text = line.removeprefix("# text = ")
        elif not line.strip() and text:
            yield Document(text, tuple(spans))
            text, at, spans = "", 0, []
        elif line and not line.startswith("#"):
            _, word, tag, *_ = line.split("\t")
            start = text.find(word, at)
            if start < 0:
                continue
            at = start + len(word)
            if tag.startswith("I-") and spans:
                spans[-1] = (spans[-1][0], at, spans[-1][2])
            elif tag != "O":
                spans.append((start, at, tag[2:]))


SETS: dict[str, Callable[[Path], Iterator[Document]]] = {
    "presidio_synth_dataset_v2.json": synthetic,
    "piianon_technology.jsonl": annotated,
    "piianon_adversarial.jsonl": annotated,
    "ewt_dev.iob2": web,
}


def found(redactor: Redactor, number: int, text: str) -> list[tuple[int, int, str]]:
    """Return what redaction takes away, by the report of a text that is walked as plain text."""
    done = redactor.redact_text(text, scope=RedactionScope("bench", str(number)))
    return [(p.start, p.end, p.entity) for p in done.report.places if p.path == "/"]


def judged(redactor: Redactor, documents: list[Document]) -> dict[str, Any]:
    """Return the figures of the protocol for one set.

    ``asked_mask_recall`` counts only what is labelled with a type that the policy asks for: a policy
    that leaves the times of log lines where they are has not missed them.
    """
    asked_for = frozenset(redactor.operators)
    masked = labelled = both = leaking = asked = asked_both = 0
    hit: Counter[str] = Counter()
    total: Counter[str] = Counter()
    claimed: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number, document in enumerate(documents):
        spans = [(s, e, _SAME.get(kind, kind)) for s, e, kind in document.spans]
        mine = found(redactor, number, document.text)
        truth = {at for s, e, _ in spans for at in range(s, e)}
        mask = {at for s, e, _ in mine for at in range(s, e)}
        masked, labelled, both = masked + len(mask), labelled + len(truth), both + len(mask & truth)
        wanted = {at for s, e, kind in spans if kind in asked_for for at in range(s, e)}
        asked, asked_both = asked + len(wanted), asked_both + len(mask & wanted)
        leaks = False
        for s, e, kind in spans:
            total[kind] += 1
            covered = any(ms < e and me > s for ms, me, _ in mine)
            hit[kind] += covered
            leaks |= kind in _DIRECT and not all(
                at in mask for at in range(s, e) if document.text[at].isalnum()
            )
        leaking += leaks
        for ms, me, kind in mine:
            claimed[kind] += 1
            right[kind] += any(s < me and e > ms for s, e, _ in spans)
    return {
        "documents": len(documents),
        "mask_recall": round(both / max(1, labelled), 4),
        "asked_mask_recall": round(asked_both / max(1, asked), 4),
        "mask_precision": round(both / max(1, masked), 4),
        "documents_leaking": round(leaking / max(1, len(documents)), 4),
        "recall": {kind: round(hit[kind] / n, 3) for kind, n in total.most_common()},
        "precision": {kind: round(right[kind] / n, 3) for kind, n in claimed.most_common()},
    }


def report_on(
    folder: Path, model: str | None, say: Callable[[str], None], *, limit: int | None = None
) -> dict[str, Any]:
    """Measure each set twice: as the default policy redacts, and with all types of names on."""
    names = NamesSpec(model=model, propagate=False)
    wide = {"URL": "drop", "DATE_TIME": "drop"}
    if model is not None:
        wide |= {"LOCATION": "drop", "ORGANIZATION": "drop"}
    policies = {
        "default": RedactionSpec(names=names),
        "wide": RedactionSpec.model_validate({"names": names, "entities": wide}),
    }
    out: dict[str, Any] = {}
    for policy, spec in policies.items():
        redactor = build_redactor(spec, pseudonym_key=bytes(32))
        for name, read in SETS.items():
            path = folder / "eval" / name
            if not path.is_file():
                continue
            figures = judged(redactor, list(read(path))[:limit])
            out[f"{name}:{policy}"] = figures
            say(
                f"{name} ({policy}): mask recall {figures['mask_recall']:.3f} "
                f"(of asked types {figures['asked_mask_recall']:.3f}) precision "
                f"{figures['mask_precision']:.3f} leaking {figures['documents_leaking']:.3f}\n"
                f"   recall {figures['recall']}\n   precision {figures['precision']}"
            )
    return out
