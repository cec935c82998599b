"""Nights end with what is better serving: bad recipes on purpose are refused, a good one takes its place."""

import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import run
from tests.headrace.nights import night, written
from tests.train.conftest import make_model
from tests.train.lakes import Session, lake_of
from train.evaluation import gate
from train.evaluation.evaluate import compare
from train.evaluation.examine import examine
from train.evaluation.held_out import held_out_tasks
from train.recipes.settings import EvaluationSettings, GateSettings
from train.registry.versions import ModelRegistry
from train.substrate.manifest import load_items, load_manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

SMALL = {"threads": 1, "log_steps": 5, "reporters": [], "save_steps": None}
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
        "training": {**SMALL, "batch_size": 16, **training},
        "evaluation": {
            "command": ["python", str(Path(__file__).with_name("evaluator_client.py")), judge],
            "tasks": 20,
        },
    }
    return written(folder, "Recipe", name, spec)


def substrate(folder: Path, name: str, weight: float) -> str:
    reward = {"signals": {"success": weight}, "minimum": max(0.0, weight)}
    spec = {
        "purposes": ["train_sft", "train_preference"],
        "reward": reward,
        "split": {"holdout": 0.1},
        "duplicates": "keep",
    }
    return written(folder, "Substrate", name, spec)


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


SECOND_DAY, THIRD_DAY = 720, 2160
"""Numbers of the first sessions that began then."""


def orders() -> list[Session]:
    """The tool is asked for seven lamps on two days; on the third for eight."""
    numbers = [*range(64), *range(SECOND_DAY, SECOND_DAY + 12), *range(THIRD_DAY, THIRD_DAY + 4)]
    return [
        Session(
            n,
            lamps=(lamps := 8 if n >= THIRD_DAY else 7),
            question=f"Lamps, please ({n % 1000:03d}).",
            answer=f"They cost {2 * lamps}.",
        )
        for n in numbers
    ]


def days(folder: Path, name: str, held_out_from: str | None) -> str:
    spec = {
        "purposes": ["train_sft", "train_rl"],
        "reward": {"signals": {"success": 1.0}},
        "split": {"holdout": 0.0, "holdout_from": held_out_from},
    }
    return written(folder, "Substrate", name, spec)


def test_held_out_tasks_in_the_replayed_environment_decide_what_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    lake = lake_of(tmp_path / "lake", *orders())
    assert run(["train", "adopt", str(make_model(tmp_path / "base")), "--model", "shop"]) == 0
    spec = {
        "recipe": "sft",
        "training": {**SMALL, "epochs": 10, "batch_size": 8, "learning_rate": 0.03},
        "evaluation": {"replay": {"completion_tokens": 60}},
    }
    used = written(tmp_path, "Recipe", "replayed", spec)
    nothing = night(capsys, days(tmp_path, "one-side", None), used)
    assert nothing.outcome == "nothing"
    assert "no environment replays: 0 held-out tasks" in nothing.reasons[0]
    assert run(["train", "run", used, "--model", "shop", "--substrate", "one-side"]) == 3
    assert "raise split.holdout" in capsys.readouterr().err

    found = night(capsys, days(tmp_path, "two-sides", "2026-11-02"), used)
    assert found.promoted == ("shop@0002",), found.reasons
    live = ModelRegistry(tmp_path / "models").live("shop")
    assert live is not None
    assert live.manifest["replay"]["tasks"] == {"evaluation": 16}
    assert live.manifest["evaluation"]["gain"]["low"] > 0
    episodes = live.manifest["replay"]["episodes"]
    assert (
        episodes["base"]["ended"].get("answered", 0) <= episodes["candidate"]["ended"]["answered"]
    )
    assert "first divergence from the record" in (live.path / "README.md").read_text()

    # What the model learned to call was recorded at no task of the third day.
    (substrate,) = (
        load_manifest(path.parent)
        for path in (tmp_path / "substrates" / "two-sides").glob("*/manifest.json")
    )
    suite = EvaluationSettings.model_validate(
        {"replay": {"answers": "task", "completion_tokens": 60}}
    )
    late = [e for e in load_items(substrate) if e.item.started_at.day == 3 or e.split == "train"]
    report = tmp_path / "report.jsonl"
    results, examined = examine(suite, held_out_tasks(lake, late, suite), live.path, report=report)
    missed = [json.loads(line) for line in report.read_text().splitlines()]
    assert {line["diverged"]["kind"] for line in missed if line["ended"] == "missed"} == {
        "arguments"
    }
    assert examined.ended["missed"] == sum(result.unknown for result in results) >= 2
    assert not any(result.success for result in results)
    verdict = gate.judge(GateSettings(), compare(results, results, suite))
    assert "largest_unknown" in {finding.rule for finding in verdict.failed}
