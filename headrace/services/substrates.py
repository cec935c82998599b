"""The substrates of a home: found by name, gated by the policy in force, marked when they are stale."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from governance.policy import load_bundle
from headrace.app.context import AppContext
from headrace.app.output import note
from train.substrate.manifest import SubstrateManifest, load_manifest, mark_stale
from train.substrate.quality import SubstrateGate
from trajectory.errors import ConfigurationError, IntegrityError


def manifests(app: AppContext) -> list[SubstrateManifest]:
    """Return the manifests of the substrates in the home folder that can be read, by time of building."""
    return [*_readable(_folders(app))]


def find_manifest(app: AppContext, name: str | None) -> SubstrateManifest:
    """Return a substrate by ``name`` or ``name@version``; without one, the latest.

    Raises:
        ConfigurationError: there is none; the text lists those that exist.
    """
    wanted, _, version = (name or "").partition("@")
    folders = _folders(app)[::-1]
    if wanted:
        for folder in folders:
            if folder.parent.name == wanted and folder.name.startswith(version):
                return load_manifest(folder)
    elif latest := next(_readable(folders), None):
        return latest
    known = ", ".join(f"{one.parent.name}@{one.name}" for one in folders[::-1]) or "none"
    raise ConfigurationError(
        f"no substrate{f' {name!r}' if name else ''}; there are: {known}. "
        "Build one: `headrace substrate build FILE`."
    )


def gate_of(app: AppContext) -> SubstrateGate:
    """Return the quality gate of the policy in force."""
    bundle = load_bundle(app.settings.policy.folder)
    return SubstrateGate(bundle.quality.spec, bundle.redaction.spec.allow)


def mark_stale_substrates(app: AppContext) -> list[str]:
    """Mark the substrates that hold what may no longer be used; return their names."""
    return [
        f"{manifest.name}@{manifest.version}"
        for manifest in manifests(app)
        if mark_stale(app.lake, manifest)
    ]


def note_stale_serving(app: AppContext, actor: str) -> None:
    """Say and audit which models and artefacts serve on though they rest on what may no longer be used.

    They go on: a person decides when agents do without them.
    """
    from train.registry.artifacts import ArtifactRegistry
    from train.registry.versions import ModelRegistry

    for registry in (
        ModelRegistry(app.home.models, source=app.lake),
        ArtifactRegistry(app.home.artifacts, source=app.lake),
    ):
        for label, why in registry.stale_serving().items():
            app.audit.append(
                actor=actor, action=f"{registry.kind}.stale", subject=label, detail={"why": why}
            )
            command = "train" if registry.kind == "model" else "artifact"
            note(
                f"{why}; {label} serves on: promote a clean version, or `headrace {command} rollback`."
            )


def _readable(folders: Iterable[Path]) -> Iterator[SubstrateManifest]:
    """Yield the manifests; one that cannot be read is told of and left: nothing can learn from it."""
    for folder in folders:
        try:
            yield load_manifest(folder)
        except (ConfigurationError, IntegrityError) as error:
            note(str(error))


def _folders(app: AppContext) -> list[Path]:
    folders = [path.parent for path in app.home.substrates.glob("*/*/manifest.json")]
    return sorted(folders, key=lambda folder: (folder / "manifest.json").stat().st_mtime_ns)
