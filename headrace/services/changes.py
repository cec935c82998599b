"""What may change what serves: the registry of models and the decisions, each change in somebody's name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.app.context import AppContext

if TYPE_CHECKING:
    from evolve.decisions import DecisionBook
    from train.registry.artifacts import ArtifactRegistry
    from train.registry.registry import AuditHook
    from train.registry.versions import ModelRegistry


def model_registry(app: AppContext, actor: str) -> "ModelRegistry":
    """Return the model registry; every change of what serves goes to the audit log first."""
    from train.registry.versions import ModelRegistry

    hook = _in_the_name_of(app, actor)
    return ModelRegistry(app.home.create().models, source=app.lake, audit=hook)


def artifact_registry(app: AppContext, actor: str) -> "ArtifactRegistry":
    """Return the registry of artefacts; every change of what is live goes to the audit log first."""
    from headrace.services.inspection import personal_data_of
    from train.registry.artifacts import ArtifactRegistry

    return ArtifactRegistry(
        app.home.create().artifacts,
        source=app.lake,
        audit=_in_the_name_of(app, actor),
        find=personal_data_of(app),
    )


def decision_book(app: AppContext, actor: str) -> "DecisionBook":
    """Return the decisions; every change of them goes to the audit log first."""
    from evolve.decisions import DecisionBook

    return DecisionBook(app.lake, _in_the_name_of(app, actor), actor=actor)


def _in_the_name_of(app: AppContext, actor: str) -> "AuditHook":
    audit = app.audit

    def write_down(action: str, subject: str, detail: Mapping[str, Any]) -> None:
        audit.append(actor=actor, action=action, subject=subject, detail=detail)

    return write_down
