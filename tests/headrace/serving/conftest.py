"""A tiny model and its engine, made once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.serving.engine import Engine
from tests.train.conftest import make_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("served-model"))


@pytest.fixture(scope="session")
def engine(model: Path) -> Iterator[Engine]:
    engine = Engine(model)
    yield engine
    engine.stop()
