from dataclasses import replace
from pathlib import Path

import pytest

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.price_records import RecordedPrices
from tests.lakehouse import make
from trajectory.prices import ModelPrice, PriceTable, load_prices

COSTS = "SELECT step_id, currency, cost FROM step_costs ORDER BY step_id"


def table(output: float = 4.0, as_of: str = "2026-11-01", most: int | None = None) -> PriceTable:
    price = ModelPrice(models=("m@*",), input=1.0, output=output, up_to_input_tokens=most)
    spec = {"as_of": as_of, "currency": "EUR", "prices": [price.model_dump()]}
    document = {"apiVersion": "headrace/v1", "kind": "Prices", "metadata": {"name": "ours"}}
    return PriceTable.model_validate({**document, "spec": spec})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.open(str(tmp_path))
    known, unknown = make.step("t", 0), make.step("u", 0, model_served="other")
    made.append(GovernedBatch(steps=(known, unknown)), app_id="t", version=0)
    return made


def test_a_table_prices_what_it_knows_and_the_rest_is_not_measured(lake: Lake) -> None:
    recorded = RecordedPrices(lake, table())
    assert (recorded.record_all(), recorded.record_all()) == (1, 0)
    assert RecordedPrices(lake, table()).record_all() == 0
    assert lake.query(COSTS).to_pylist() == [
        {"step_id": "t-s0", "currency": "EUR", "cost": pytest.approx(30 / 1e6)},
        {"step_id": "u-s0", "currency": None, "cost": None},
    ]
    figures = lake.query(
        "SELECT value, measure, state, reason FROM scorecards "
        "WHERE card = 'CLASSic' AND figure = 'cost' AND dimension = 'model' ORDER BY value"
    ).to_pylist()
    assert [(row["value"], row["state"]) for row in figures] == [
        ("m@1", "measured"), ("other", "not measured")
    ]  # fmt: skip
    assert figures[1]["measure"] is None
    assert "price" in figures[1]["reason"]


def test_a_newer_table_counts_from_its_day_on(lake: Lake) -> None:
    RecordedPrices(lake, table()).record_all()
    later = replace(make.step("v", 0), output_tokens=10)
    lake.append(GovernedBatch(steps=(later,)), app_id="t", version=1)
    before = lake.versions()
    day = (make.NOON.date()).isoformat()
    assert RecordedPrices(lake, table(output=8.0, as_of=day)).record_all() == 1
    old = replace(make.step("w", 0), started_at=make.NOON.replace(day=1))
    lake.append(GovernedBatch(steps=(old,)), app_id="t", version=2)
    costs = {row["step_id"]: row["cost"] for row in lake.query(COSTS).to_pylist()}
    assert costs["v-s0"] == pytest.approx((10 + 80) / 1e6)
    assert costs["w-s0"] == pytest.approx((10 + 20) / 1e6)
    # An earlier state of the lake keeps the costs that it had, and an older table changes nothing.
    earlier = {row["step_id"]: row["cost"] for row in lake.query(COSTS, as_of=before).to_pylist()}
    assert earlier["v-s0"] == pytest.approx((10 + 40) / 1e6)
    assert RecordedPrices(lake, table()).record_all() == 0


def test_what_a_person_recorded_holds(lake: Lake) -> None:
    row = {
        "tenant_id": "acme", "model": "m@1", "valid_from": make.NOON.replace(day=1),
        "recorded_at": make.NOON, "currency": "USD", "input_per_million": 0.0,
        "output_per_million": 1.0,
    }  # fmt: skip
    lake.append_rows("prices", [row])
    assert RecordedPrices(lake, table()).record_all() == 0
    assert lake.query(COSTS)["cost"].to_pylist() == [pytest.approx(5 / 1e6), None]


def test_a_call_longer_than_the_price_is_for_has_no_cost(lake: Lake) -> None:
    RecordedPrices(lake, table(most=9)).record_all()
    assert lake.query(COSTS)["cost"].to_pylist() == [None, None]


def test_every_shipped_price_can_be_recorded(lake: Lake) -> None:
    shipped = load_prices()
    names = [pattern for price in shipped.spec.prices for pattern in price.models]
    assert RecordedPrices(lake, shipped).record(("acme", name) for name in names) == len(names)
