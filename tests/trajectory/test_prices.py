from datetime import UTC, datetime
from pathlib import Path

import pytest

from trajectory.errors import ConfigurationError
from trajectory.prices import load_prices

OWN = """apiVersion: headrace/v1
kind: Prices
metadata: {name: ours}
spec:
  as_of: 2026-11-01
  currency: EUR
  prices:
    - {models: [shop-1], input: 1, cached_input: 0.5, output: 4, up_to_input_tokens: 1000}
    - {models: [shop-*], input: 3, output: 5}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "prices.yaml"
    path.write_text(OWN)
    return path


def test_the_first_pattern_that_fits_says_the_price_and_none_is_not_zero(own: Path) -> None:
    table = load_prices(own)
    assert table.source == "ours@2026-11-01"
    first, other = table.of("Shop-1"), table.of("shop-2@7")
    assert first is not None
    assert other is not None
    assert first.cost(1000, 400, 10) == (600 * 1 + 400 * 0.5 + 10 * 4) / 1e6
    assert first.cost(1001, 0, 10) is None
    assert other.cost(1001, 1000, 10) == (1001 * 3 + 10 * 5) / 1e6
    assert table.of("gpt-5") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("input: 3, output: 5", "input: -3, output: 5"),
        ("currency: EUR", "currency: euro"),
        ("as_of: 2026-11-01", "as_of: soon"),
        ("models: [shop-*]", "models: []"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(own: Path, line: str, said: str) -> None:
    own.write_text(OWN.replace(line, said))
    number = 1 + OWN[: OWN.index(line)].count("\n")
    with pytest.raises(ConfigurationError, match=f"prices.yaml:{number}: "):
        load_prices(own)


def test_the_shipped_table_is_dated_and_names_dated_models_by_their_own_price() -> None:
    table = load_prices()
    assert table.spec.as_of < datetime.now(UTC).date()
    patterns = [pattern for price in table.spec.prices for pattern in price.models]
    assert len(patterns) == len(set(patterns))
    for model, output in (
        ("gpt-5-2025-08-07", 10), ("gpt-5-mini-2025-08-07", 2), ("gpt-5.4-mini", 4.5),
        ("gpt-4o-mini-2024-07-18", 0.6), ("claude-opus-4-20250514", 75), ("claude-opus-4-5-20251101", 25),
        ("claude-sonnet-4-5-20250929", 15), ("claude-opus-5-5", 20), ("gemini-2.5-flash-lite", 0.4),
    ):  # fmt: skip
        price = table.of(model)
        assert price is not None, model
        assert price.output == output, model
    for stranger in ("gpt-4o-audio-preview", "gpt-5-pro", "llama-3", "practice@0001"):
        assert table.of(stranger) is None
