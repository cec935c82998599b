"""Loading models: several threads may, and every model comes whole."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from train.runs.fit import load_model


def test_models_loaded_by_several_threads_keep_their_tied_weights(tiny_model: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        models = [*pool.map(load_model, [tiny_model] * 12), load_model(tiny_model)]
    for model in models:
        assert model.lm_head.weight is model.model.embed_tokens.weight
