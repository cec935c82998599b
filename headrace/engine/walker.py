"""Walking a lake's trajectories by an engine: each worker reads its part of the tables itself."""

from collections.abc import Iterable, Mapping

from headrace.engine.opening import Engine
from headrace.engine.work import WalkJob
from lakehouse.lake import Lake
from train.substrate.iteration import Walked, Walker
from train.substrate.spec import SubstrateSpec


def walker_of(engine: Engine | None, lake: Lake) -> Walker | None:
    """Return the walker of an engine; None without one. Every node must reach the lake's path."""
    if engine is None:
        return None
    parts = engine.workers

    def walk(spec: SubstrateSpec, versions: Mapping[str, int]) -> Iterable[Walked]:
        jobs = [
            WalkJob(
                lake=lake.location.root,
                options=dict(lake.location.options),
                spec=spec.model_dump(mode="json"),
                versions=dict(versions),
                part=part,
                parts=parts,
            )
            for part in range(parts)
        ]
        return engine.map("walk", jobs)

    return walk
