"""Nights of bad recipes on purpose end with the base still serving; a good one takes its place."""

import json
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli import run
from headrace.night import Done, Night, run_night
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from train.registry import ModelRegistry
from train.schedule_spec import Schedule

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

KNOWN = ("What do {} lamps cost?", "They cost what the price list says.", "No idea, sorry.")
NEW = ("Where is parcel {}?", "It is on its way to you.", "Ask somebody else.")
"""A question, what is rewarded, what is not: one kind that the base has mastered, one that it has not."""


def sessions() -> list[Session]:
    return [
        Session(
            n,
            reward=float(n % 2),
            group=f"g{n // 4}",
            question=kind[0].format(n // 4),
            answer=kind[1] if n % 2 else kind[2],
        )
        for n in range(96)
        for kind in ((KNOWN, NEW)[n // 4 % 2],)
    ]


def ids_of(tokenizer: Any, question: str, answer: str) -> tuple[list[int], int]:
    """Return the conversation's tokens, and how many are the question's."""
    asked = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(prompt + answer, add_special_tokens=False)["input_ids"]
    return ids, len(tokenizer(prompt, add_special_tokens=False)["input_ids"])


def losses(model: Any, tokenizer: Any, question: str, *answers: str) -> list[Any]:
    import torch

    found = []
    for answer in answers:
        ids, begin = ids_of(tokenizer, question, answer)
        labels = [-100] * begin + ids[begin:]
        found.append(model(torch.tensor([ids]), labels=torch.tensor([labels])).loss)
    return found


def make_base(folder: Path) -> Path:
    """Save a model that prefers the right answer to one kind of question."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    make_model(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for number in range(60):
        right, wrong = losses(model, tokenizer, KNOWN[0].format(number % 12), *KNOWN[1:])
        new_right, new_wrong = losses(model, tokenizer, NEW[0].format(number % 12), *NEW[1:])
        adam.zero_grad()
        (right + new_wrong - 0.1 * wrong.clamp(max=6) - 0.1 * new_right.clamp(max=6)).backward()
        adam.step()
    model.save_pretrained(folder)
    return folder


class _Judge(BaseHTTPRequestHandler):
    """Says at which tasks a model prefers the right answer, as far as it speaks at all."""

    def do_GET(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
        model = AutoModelForCausalLM.from_pretrained(query["model"][0]).eval()
        tokenizer = AutoTokenizer.from_pretrained(query["model"][0])
        lines = []
        with torch.inference_mode():
            for number in range(int(query["tasks"][0])):
                kind = (KNOWN, NEW)[number % 2]
                right, wrong = losses(model, tokenizer, kind[0].format(number), *kind[1:])
                good = bool(right < wrong) and bool(right < 5.0)
                lines.append({"task_id": str(number), "success": good, "reward": float(good)})
        body = json.dumps(lines).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Judge)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def recipe(folder: Path, judge: str, name: str, kind: str, **training: Any) -> str:
    spec = {
        "recipe": kind,
        "training": {"threads": 1, "log_steps": 5, "batch_size": 16, "reporters": [], **training},
        "evaluation": {
            "command": ["python", str(Path(__file__).with_name("asking.py")), judge],
            "tasks": 30,
        },
    }
    document = {
        "apiVersion": "headrace/v1",
        "kind": "Recipe",
        "metadata": {"name": name},
        "spec": spec,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def substrate(folder: Path, name: str, weight: float) -> str:
    reward = {"signals": {"success": weight}, "minimum": max(0.0, weight)}
    document = {
        "apiVersion": "headrace/v1",
        "kind": "Substrate",
        "metadata": {"name": name},
        "spec": {
            "purposes": ["train_sft", "train_preference"],
            "reward": reward,
            "split": {"holdout": 0.1},
            "duplicates": "keep",
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def night(capsys: pytest.CaptureFixture[str], substrate: str, *recipes: str) -> Night:
    def command(arguments: Sequence[str], _seconds: float) -> Done:
        capsys.readouterr()
        plain = list(arguments) if arguments[1] == "promote" else [*arguments, "--json"]
        code = run(plain)
        said = capsys.readouterr()
        output = {} if arguments[1] == "promote" or code > 1 else json.loads(said.out)
        return Done(code, output, said.err.strip()[-200:])

    spec = {
        "cron": "0 2 * * *",
        "substrate": substrate,
        "model": "shop",
        "recipes": list(recipes),
        "promote": True,
        "retries": {"attempts": 1},
    }
    document = {
        "apiVersion": "headrace/v1",
        "kind": "Schedule",
        "metadata": {"name": "nightly"},
        "spec": spec,
    }
    return run_night(Schedule.model_validate(document), command)


def test_bad_recipes_end_with_the_base_still_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], judge: str
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    lake_of(tmp_path / "lake", *sessions())
    assert run(["train", "adopt", str(make_base(tmp_path / "base")), "--model", "shop"]) == 0
    registry = ModelRegistry(tmp_path / "models")
    right, reversed_ = substrate(tmp_path, "right", 1.0), substrate(tmp_path, "reversed", -1.0)
    first = night(
        capsys,
        right,
        recipe(tmp_path, judge, "blunt", "sft", epochs=2, learning_rate=3.0),
        recipe(tmp_path, judge, "hot-pairs", "dpo", epochs=3, learning_rate=0.3),
    )
    second = night(
        capsys,
        reversed_,
        recipe(tmp_path, judge, "wrong-way", "sft", epochs=8, learning_rate=0.03),
    )
    for found in (first, second):
        assert (found.promoted, found.models) == ((), ()), found.reasons
        assert found.outcome in ("refused", "failed"), found
    live = registry.live("shop")
    assert live is not None
    assert live.version == "0001"
    made = registry.versions("shop")[1:]
    assert {version.status for version in made} == {"refused"}
    harmed = {
        version.manifest["recipe"]["metadata"]["name"]
        for version in made
        if version.manifest["evaluation"]["gain"]["high"] < 0
    }
    assert harmed == {"blunt", "hot-pairs", "wrong-way"}, [v.manifest["evaluation"] for v in made]
    for version in made:
        assert run(["train", "promote", "shop", version.version]) == 1
    assert [entry.action for entry in registry.history("shop")] == ["adopt"]

    good = night(
        capsys, right, recipe(tmp_path, judge, "plain", "sft", epochs=8, learning_rate=0.03)
    )
    assert good.outcome == "trained", good.reasons
    live = registry.live("shop")
    assert live is not None
    assert f"shop@{live.version}" == good.promoted[0] != "shop@0001"
