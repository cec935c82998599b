"""Documents of every kind, in one shape: their JSON Schema, and checks of those beside a bundle.

A bundle decides over rows. Documents of other kinds may stand in the same folder and are checked with it:
``Substrate``, ``Schedule``, ``Recipe``, ``Evolution``, ``Prices``, ``Artifact``, ``Safety``, ``Action``,
``ReviewQueue``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from governance.policy import KINDS, PolicyError
from governance.policy.documents import LATER_KINDS
from governance.policy.secrets import read_policy
from headrace.app.settings import Settings
from trajectory.canonical import JsonObject
from trajectory.documents import document
from trajectory.documents.problems import describe
from trajectory.documents.source import SourceDocument
from trajectory.errors import ConfigurationError


def models() -> dict[str, type[BaseModel]]:
    """Return kind → model of every kind."""
    from evolve.policy import Evolution
    from headrace.services.review_queues import ReviewQueue
    from proxy.guard.document import Action
    from train.evaluation.safety import Safety
    from train.recipes.settings import Recipe
    from train.schedule import Schedule
    from train.substrate.spec import Substrate
    from trajectory.artifact import Artifact
    from trajectory.prices import PriceTable

    later: dict[str, type[BaseModel]] = {
        "Substrate": Substrate,
        "Schedule": Schedule,
        "Recipe": Recipe,
        "Safety": Safety,
        "Evolution": Evolution,
        "Prices": PriceTable,
        "Artifact": Artifact,
        "Action": Action,
        "ReviewQueue": ReviewQueue,
    }
    return {**KINDS, **{kind: later[kind] for kind in LATER_KINDS}}


def json_schema() -> JsonObject:
    """Return the schema that a document of any kind must fit."""
    return document.json_schema(models().values())


def check_file(file: Path) -> list[str]:
    """Check every document of one file, or settings with what webhooks say; return the kinds.

    Raises:
        PolicyError: something is wrong; each problem is one line.
    """
    documents = list(read_policy(file, str(file)))
    first = documents[0].value if documents else None
    if isinstance(first, dict) and "kind" not in first and "gateway" in first:
        _check_settings(documents[0])
        return ["settings"]
    return _checked(documents, models())


def _check_settings(source: SourceDocument) -> None:
    try:
        settings = Settings.model_validate({"home": ".", **source.value})
    except ValidationError as error:
        raise PolicyError("\n".join(describe(error, source, Settings))) from None
    problems = [
        source.error(("gateway", "webhooks", number, *path), text)
        for number, webhook in enumerate(settings.gateway.webhooks)
        for path, text in webhook.problems()
    ]
    if problems:
        raise PolicyError("\n".join(problems))


def check_beside(folder: Path) -> list[str]:
    """Check documents of later rooms in a bundle's folder; return their kinds.

    Raises:
        PolicyError: something is wrong; each problem is one line.
    """
    known = models()
    later = {kind: known[kind] for kind in LATER_KINDS}
    return _checked((one for one in _documents(folder) if _kind(one) in later), later)


def _documents(folder: Path) -> Iterator[SourceDocument]:
    for file in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        if not file.name.endswith((".test.yaml", ".test.yml")):
            yield from read_policy(file, str(file))


def _checked(documents: Any, known: dict[str, type[BaseModel]]) -> list[str]:
    kinds: list[str] = []
    problems: list[str] = []
    for source in documents:
        kind = _kind(source)
        model = known.get(kind)
        if model is None:
            problems.append(
                source.error(("kind",), f"unknown kind {kind!r}. Valid: {', '.join(known)}")
            )
            continue
        try:
            model.model_validate(source.value)
        except ValidationError as error:
            problems += describe(error, source, model)
        except ConfigurationError as error:
            problems.append(source.error(("spec",), str(error)))
        kinds.append(kind)
    if problems:
        raise PolicyError("\n".join(problems))
    return kinds


def _kind(source: SourceDocument) -> str:
    return str(source.value.get("kind", "")) if isinstance(source.value, dict) else ""
