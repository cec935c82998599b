"""A tiny model and its engine, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.conftest import make_model
from train.generation import Engine, LanguageModel


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("served-model"))


@pytest.fixture(scope="session")
def engine(model: Path) -> Iterator[Engine[LanguageModel]]:
    engine = Engine(LanguageModel(model))
    yield engine
    engine.stop()
