"""Processes that change the registry at the same moment do not undo what the others did."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from train.registry.pointer import TRIALS, read_pointer
from train.registry.versions import ModelRegistry, weights_hash

_AT_ONCE = 3
_TIMES = 12


def at_once(*works: Callable[..., None], root: Path) -> None:
    """Run each in a process of its own, all from the same moment on."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(works))
    processes = [
        context.Process(target=work, args=(root, number, barrier))
        for number, work in enumerate(works)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0


def trained(root: Path, name: str) -> Path:
    folder = root / f"trained-{name}"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(name.encode() * 1_000_000)
    return folder


def facts(run: str) -> dict[str, Any]:
    return {"origin": "adopted", "gate": {"findings": []}, "run_id": run}


def register(root: Path, number: int, barrier: Barrier) -> None:
    registry = ModelRegistry(root / "models")
    for time in range(_TIMES):
        name = f"{number}-{time}"
        folder = trained(root, name)
        barrier.wait(60)
        made = registry.register("shop", folder, facts(name), passed=True)
        assert made.manifest["run_id"] == name
        assert not folder.exists()


def test_each_registration_gets_a_version_of_its_own(tmp_path: Path) -> None:
    at_once(*[register] * _AT_ONCE, root=tmp_path)
    versions = ModelRegistry(tmp_path / "models").versions("shop")
    assert [v.version for v in versions] == [f"{n + 1:04d}" for n in range(_AT_ONCE * _TIMES)]
    assert len({v.manifest["run_id"] for v in versions}) == len(versions)
    for version in versions:
        files = {path.name for path in version.path.iterdir()}
        assert files == {"README.md", "bom.json", "manifest.json", "model.safetensors"}
        assert weights_hash(version.path) == version.manifest["weights_hash"]
        name = version.manifest["run_id"].encode()
        assert (version.path / "model.safetensors").read_bytes().startswith(name)


def promote(root: Path, _number: int, barrier: Barrier) -> None:
    registry = ModelRegistry(root / "models")
    barrier.wait(60)
    for time in range(_TIMES):
        registry.promote("shop", f"{2 + time % 2:04d}", actor="night")
        registry.rollback("shop", actor="night", reason="slower")


def try_out(root: Path, _number: int, barrier: Barrier) -> None:
    registry = ModelRegistry(root / "models")
    barrier.wait(60)
    for time in range(_TIMES):
        trial = TRIALS[time % 2]
        registry.try_out("shop", "0004", trial, actor="ann")
        registry.end_trial("shop", trial, actor="ann", reason="seen")


def test_the_pointer_is_what_the_history_tells(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    for number in range(4):
        registry.register("shop", trained(tmp_path, str(number)), facts(str(number)), passed=True)
    registry.promote("shop", "0001", actor="ann")
    at_once(promote, try_out, root=tmp_path)
    live, trials, before = None, {}, []
    for entry in registry.history("shop"):
        what, _, trial = entry.action.partition("_")
        if entry.served:
            assert entry.previous == live, "what served before is known to who changes it"
            live = entry.version
        elif what == "try":
            trials[trial] = entry.version
        else:
            assert trials.pop(trial) == entry.version
        before.append(entry.action)
    assert sorted(before) == sorted(
        ["promote"] * (1 + _TIMES)
        + ["rollback"] * _TIMES
        + [f"{what}_{trial}" for what in ("try", "end") for trial in TRIALS] * (_TIMES // 2)
    )
    pointer = read_pointer(tmp_path / "models" / "shop")
    assert pointer is not None
    assert (pointer.version, pointer.trials) == (live, trials) == ("0001", {})
