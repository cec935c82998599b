"""The practice floor in this process: a model in small, its provider, the tool server."""

import fcntl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.practice.model import BASE, pretrain
from examples.practice.provider import Provider
from examples.practice.tokenizer import train_tokenizer
from examples.practice.tools import ToolServer
from tests.practice.demo_model import MAKING_SECONDS

KEY = "practice-key-of-the-tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test that may have to make the model the time for it."""
    for item in items:
        if "model_folder" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(MAKING_SECONDS))


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A model that knows the format and little else; made once, whatever the number of workers."""
    shared = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        shared = shared.parent
    folder = shared / "practice-models" / "v1"
    folder.parent.mkdir(exist_ok=True)
    with (shared / "practice-models.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _make_model(folder)
    return folder


def _make_model(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    tokenizer = train_tokenizer(BASE.texts())
    plain, rest = BASE.phases
    lesson = replace(BASE, layers=2, phases=(replace(plain, steps=60), rest))
    model = pretrain(tokenizer, lesson, seed=0, steps=130)
    scratch = folder.with_name("making")
    tokenizer.save_pretrained(scratch)
    model.save_pretrained(scratch)
    scratch.rename(folder)


@pytest.fixture(scope="session")
def provider_url(model_folder: Path) -> Iterator[str]:
    """Address of a provider that serves the small model."""
    provider = Provider(model_folder, key=KEY)
    with provider.listen() as server:
        yield f"http://127.0.0.1:{server.port}"
    provider.engine.stop()


@pytest.fixture(scope="session")
def tools_url() -> Iterator[str]:
    """Address of the tool server."""
    with ToolServer(seed=3).listen() as server:
        yield f"http://127.0.0.1:{server.port}/mcp"
