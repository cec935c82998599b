"""From ``headrace train promote`` to the client's next answer, and into the lake."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from headrace.app.master_key import load_secrets
from headrace.cli import run
from headrace.processes.supervisor import headrace_command
from proxy.clients.keys import KeyRegistry
from tests.headrace.pipelines import pipeline
from tests.support.ports import free_port
from tests.train.conftest import make_model
from train.registry.versions import ModelRegistry


@contextmanager
def running(home: Path, *arguments: str) -> Iterator[None]:
    with (home / f"{arguments[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            headrace_command(["--home", str(home), *arguments]), stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0, (home / f"{arguments[0]}.log").read_text()


def answered_by(client: openai.OpenAI, label: str) -> None:
    """Ask until this version answers; what meets a version that ends is asked again."""
    until = time.monotonic() + 120
    while True:
        assert time.monotonic() < until, label
        try:
            answer = client.chat.completions.create(
                model="shop", messages=[{"role": "user", "content": "hi"}], max_tokens=2
            )
        except (openai.InternalServerError, openai.APIConnectionError):
            time.sleep(0.2)
            continue
        if answer.model == label:
            return
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_is_promoted_answers_and_the_lake_says_which_version_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    gateway = {
        "routes": [{"name": "shop", "model": "shop", "shadow": 1.0}],
        "port": (port := free_port()),
        "forward_port": None,
        "admin_port": None,
    }
    settings = {"gateway": gateway, "serve": {"port": free_port(), "engine": "transformers"}}
    (tmp_path / "headrace.yaml").write_text(json.dumps(settings))
    assert run(["train", "adopt", str(make_model(tmp_path / "base")), "--model", "shop"]) == 0
    registry = ModelRegistry(tmp_path / "models")
    for seed in (1, 2):
        trained = make_model(tmp_path / f"trained-{seed}", seed=seed)
        registry.register("shop", trained, {"origin": "adopted"}, passed=seed == 1)
    purposes = ("debug", "eval", "train_sft")
    key = KeyRegistry.load(tmp_path / "keys.json").create(
        tenant_id="acme", app_id="bot", environment="test", purposes=purposes
    )
    client = openai.OpenAI(
        base_url=f"http://127.0.0.1:{port}/shop/v1", api_key=key.secret, max_retries=0
    )
    with running(tmp_path, "serve"), running(tmp_path, "gateway"), client:
        answered_by(client, "shop@0001")
        assert run(["train", "promote", "shop", "0002"]) == 0
        answered_by(client, "shop@0002")
        assert run(["train", "promote", "shop", "0003"]) == 1
        assert run(["train", "try", "shop", "0003", "--as", "canary"]) == 1
        assert run(["train", "try", "shop", "0003", "--as", "shadow"]) == 0
        until = time.monotonic() + 60
        while (
            "shadow"
            not in json.loads((tmp_path / "state" / "serving.json").read_text())["models"]["shop"]
        ):
            assert time.monotonic() < until
            time.sleep(0.1)
        time.sleep(0.6)
        answered_by(client, "shop@0002")
        assert run(["train", "rollback", "shop", "--reason", "worse"]) == 0
        answered_by(client, "shop@0001")
        time.sleep(0.5)
    carrying = pipeline(tmp_path, spool_key=load_secrets(tmp_path / "secrets").derive(b"spool"))
    while carrying.run_batch() is not None:
        pass
    found = carrying.lake.query(
        "select role_in_graph, model_served, count(*) as steps from steps "
        "where role_in_graph <> 'discarded' group by all order by all"
    ).to_pylist()
    assert {(row["role_in_graph"], row["model_served"]) for row in found} == {
        ("agent", "shop@0001"),
        ("agent", "shop@0002"),
        ("shadow", "shop@0003"),
    }
    (joined,) = carrying.lake.query(
        "select distinct a.model_served as live, b.model_served as shadow from links l "
        "join steps a on a.step_id = l.from_step_id join steps b on b.step_id = l.to_step_id "
        "where l.kind = 'shadow' and a.model_served = 'shop@0002'"
    ).to_pylist()
    assert joined == {"live": "shop@0002", "shadow": "shop@0003"}
    trajectories = carrying.lake.query(
        "select distinct t.model_served from trajectories t join steps s using (trajectory_id) "
        "where s.role_in_graph <> 'discarded'"
    )
    assert set(trajectories["model_served"].to_pylist()) == {"shop@0001", "shop@0002"}
