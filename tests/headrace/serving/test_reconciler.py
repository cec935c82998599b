"""What serves follows the registry, and only once it is ready."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.app.home import Home
from headrace.app.settings import ServeSettings
from headrace.serving.reconciler import VersionReconciler, serve_models
from proxy.routes.pins import FILE_NAME, Pins
from train.registry.versions import ModelRegistry


@dataclass
class SlowHost:
    """A host whose versions are ready when a test says so."""

    up: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def begin(self, label: str, folder: Path) -> None:
        assert (folder / "manifest.json").is_file()
        self.begun.append(label)

    def ready(self, label: str) -> str | None:
        return "http://here:1" if label in self.up else None

    def problem(self, label: str) -> str | None:
        return "no memory" if label in self.broken else None

    def end(self, label: str) -> None:
        self.up.discard(label)
        self.ended.append(label)


@dataclass
class Reconciliation:
    registry: ModelRegistry
    host: SlowHost
    reconciler: VersionReconciler
    now: list[float]

    def published(self) -> dict[str, str]:
        self.reconciler.look()
        models = json.loads(self.reconciler.publication.read_text())["models"]
        places = models.get("shop", {})
        return {place: found["label"] for place, found in places.items() if place != "former"}


@pytest.fixture
def place(tmp_path: Path) -> Reconciliation:
    registry, host, now = ModelRegistry(tmp_path / "models"), SlowHost(), [0.0]
    for name in ("one", "two", "three"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(name.encode())
        registry.register("shop", folder, {"origin": "adopted"}, passed=True)
    registry.promote("shop", "0001", actor="ann")
    reconciler = VersionReconciler(
        tmp_path / "models",
        (),
        host,
        tmp_path / "serving.json",
        drain_seconds=30,
        clock=lambda: now[0],
    )
    reconciler.start()
    return Reconciliation(registry, host, reconciler, now)


def test_a_promoted_version_takes_over_when_it_is_ready_and_not_before(
    place: Reconciliation,
) -> None:
    assert place.published() == {}
    place.host.up.add("shop@0001")
    assert place.published() == {"live": "shop@0001"}
    place.registry.promote("shop", "0002", actor="ann")
    assert place.published() == {"live": "shop@0001"}
    assert place.host.begun == ["shop@0001", "shop@0002"]
    place.host.up.add("shop@0002")
    assert place.published() == {"live": "shop@0002"}


def test_what_was_replaced_is_put_away_after_a_while_and_comes_back_with_a_rollback(
    place: Reconciliation,
) -> None:
    place.host.up |= {"shop@0001", "shop@0002"}
    place.published()
    place.registry.promote("shop", "0002", actor="ann")
    assert place.published() == {"live": "shop@0002"}
    place.now[0] = 29
    place.published()
    assert place.host.ended == []
    place.now[0] = 31
    place.published()
    assert place.host.ended == ["shop@0001"]
    place.registry.rollback("shop", actor="ann", reason="worse")
    assert place.published() == {"live": "shop@0002"}
    place.host.up.add("shop@0001")
    assert place.published() == {"live": "shop@0001"}


def test_a_version_that_cannot_be_loaded_changes_nothing_and_is_told_once(
    place: Reconciliation, caplog: pytest.LogCaptureFixture
) -> None:
    place.host.up.add("shop@0001")
    place.published()
    place.host.broken.add("shop@0002")
    place.registry.promote("shop", "0002", actor="ann")
    for _ in range(3):
        assert place.published() == {"live": "shop@0001"}
    assert caplog.text.count("shop@0002 cannot be loaded: no memory") == 1
    assert place.host.begun.count("shop@0002") == 1
    place.now[0] = 31
    place.published()
    assert place.host.begun.count("shop@0002") == 2


def test_trials_are_published_when_ready_and_go_when_they_end(place: Reconciliation) -> None:
    place.host.up |= {"shop@0001", "shop@0003"}
    place.registry.try_out("shop", "0002", "canary", actor="ann")
    place.registry.try_out("shop", "0003", "shadow", actor="ann")
    assert place.published() == {"live": "shop@0001", "shadow": "shop@0003"}
    place.host.up.add("shop@0002")
    assert place.published() == {
        "live": "shop@0001",
        "canary": "shop@0002",
        "shadow": "shop@0003",
    }
    place.registry.end_trial("shop", "canary", actor="ann", reason="done")
    assert place.published() == {"live": "shop@0001", "shadow": "shop@0003"}


def test_the_share_of_a_trial_is_published_while_it_lasts(place: Reconciliation) -> None:
    place.host.up |= {"shop@0001", "shop@0002"}
    place.registry.try_out("shop", "0002", "canary", actor="ann", share=0.2)
    place.reconciler.look()
    assert '"canary_share":0.2' in place.reconciler.publication.read_text()
    place.registry.promote("shop", "0002", actor="ann")
    assert place.published() == {"live": "shop@0002"}


def test_a_server_that_goes_away_is_no_longer_published(place: Reconciliation) -> None:
    place.host.up.add("shop@0001")
    assert place.published() == {"live": "shop@0001"}
    place.host.up.clear()
    assert place.published() == {}


def test_at_the_end_nothing_is_published_and_nothing_is_left_up(place: Reconciliation) -> None:
    place.host.up.add("shop@0001")
    place.published()
    place.reconciler.close()
    assert json.loads(place.reconciler.publication.read_text()) == {"models": {}}
    assert place.host.ended == ["shop@0001"]


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"version": 5}'])
def test_a_broken_pointer_changes_nothing_and_holds_nobody_up(
    place: Reconciliation, content: str
) -> None:
    place.host.up.add("shop@0001")
    assert place.published() == {"live": "shop@0001"}
    other = place.registry.get("shop", "0002").path
    place.registry.adopt("chair", other, actor="ann", reason="ours")
    pointer = place.reconciler.models / "shop" / "live.json"
    sound = pointer.read_text()
    pointer.write_text(content)
    place.host.up.add("chair@0001")
    place.now[0] += 1000
    assert place.published() == {"live": "shop@0001"}
    models = json.loads(place.reconciler.publication.read_text())["models"]
    assert models["chair"]["live"]["label"] == "chair@0001"
    pointer.write_text(sound)
    place.registry.promote("shop", "0002", actor="ann")
    place.host.up.add("shop@0002")
    assert place.published() == {"live": "shop@0002"}


def former(place: Reconciliation) -> list[str]:
    models = json.loads(place.reconciler.publication.read_text())["models"]
    return [found["label"] for found in models["shop"].get("former", [])]


def pin(place: Reconciliation, label: str) -> None:
    pins = Pins(place.reconciler.publication.with_name(FILE_NAME))
    pins.keep(label.encode(), label, {label: 1}, 3600)
    pins.close()


def test_a_version_that_trajectories_are_pinned_to_stays_up_after_a_promotion(
    place: Reconciliation,
) -> None:
    place.host.up |= {"shop@0001", "shop@0002", "shop@0003"}
    place.published()
    pin(place, "shop@0001")
    place.registry.promote("shop", "0002", actor="ann")
    assert (place.published(), former(place)) == ({"live": "shop@0002"}, ["shop@0001"])
    place.now[0] = 1000.0
    assert (place.published(), former(place)) == ({"live": "shop@0002"}, ["shop@0001"])
    assert place.host.ended == []
    place.registry.promote("shop", "0003", actor="ann")
    place.published()
    place.now[0] = 2000.0
    place.published()
    assert (place.published(), former(place)) == ({"live": "shop@0003"}, ["shop@0001"])
    assert place.host.ended == ["shop@0002"]


def test_a_pinned_version_comes_up_again_with_the_keeper(place: Reconciliation) -> None:
    place.host.up |= {"shop@0001", "shop@0002"}
    pin(place, "shop@0001")
    place.registry.promote("shop", "0002", actor="ann")
    place.reconciler.close()
    place.host.up |= {"shop@0001", "shop@0002"}
    assert (place.published(), former(place)) == ({"live": "shop@0002"}, ["shop@0001"])


def test_a_version_that_a_rollback_took_out_answers_nobody_any_more(place: Reconciliation) -> None:
    place.host.up |= {"shop@0001", "shop@0002"}
    place.registry.promote("shop", "0002", actor="ann")
    place.published()
    pin(place, "shop@0002")
    place.registry.rollback("shop", actor="ann", reason="harm")
    assert (place.published(), former(place)) == ({"live": "shop@0001"}, [])
    place.now[0] = 1000.0
    place.published()
    assert place.host.ended == ["shop@0002"]
    place.registry.try_out("shop", "0002", "shadow", actor="ann")
    place.host.up.add("shop@0002")
    place.published()
    place.registry.end_trial("shop", "shadow", actor="ann", reason="seen enough")
    place.published()
    assert former(place) == []


def test_a_canary_that_was_taken_back_answers_nobody_any_more(place: Reconciliation) -> None:
    place.host.up |= {"shop@0001", "shop@0002"}
    place.registry.try_out("shop", "0002", "canary", actor="ann")
    place.published()
    pin(place, "shop@0002")
    place.registry.end_trial("shop", "canary", actor="ladder", reason="trial 1: harm")
    assert (place.published(), former(place)) == ({"live": "shop@0001"}, [])
    place.now[0] = 1000.0
    place.published()
    assert place.host.ended == ["shop@0002"]


def test_at_most_two_former_versions_take_memory(place: Reconciliation, tmp_path: Path) -> None:
    for name in ("four", "five"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(name.encode())
        place.registry.register("shop", folder, {"origin": "adopted"}, passed=True)
    labels = [f"shop@000{number}" for number in range(1, 6)]
    place.host.up |= set(labels)
    for label in labels:
        pin(place, label)
    place.registry.promote("shop", "0005", actor="ann")
    place.published()
    assert sorted(former(place)) == ["shop@0003", "shop@0004"]


def test_a_pins_file_that_cannot_be_read_changes_nothing(place: Reconciliation) -> None:
    place.host.up.add("shop@0001")
    place.reconciler.publication.with_name(FILE_NAME).write_bytes(b"no database" * 500)
    assert place.published() == {"live": "shop@0001"}


def test_a_model_without_a_version_is_named_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def announce(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("headrace.serving.reconciler._host", lambda *_: nullcontext())
    monkeypatch.setattr("signal.signal", lambda *_: None)
    home = Home(tmp_path).create()
    with pytest.raises(KeyboardInterrupt):
        serve_models(ServeSettings(), home, names=["shop"], announce=announce)
    assert said[1].startswith("no version of shop is live so far")
