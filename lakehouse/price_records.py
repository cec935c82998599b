"""Prices of a price table, recorded in the lake for the models that answered.

Views read costs from the table ``prices`` alone, so an earlier state of the lake has the costs that it
had. A price that a person recorded for a model holds, and the table then says nothing about it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa

from trajectory.prices import PriceTable

_RECORDED = "SELECT * FROM prices_latest ORDER BY valid_from"
_SERVED = "SELECT DISTINCT tenant_id, model_served FROM steps WHERE model_served IS NOT NULL"
_ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)
"""From when the first price of a model holds: it is the best guess for its earlier calls too."""

type ServedPair = tuple[str, str]
"""A tenant and a model that answered it."""


class PricedLake(Protocol):
    """A lake that prices are recorded in."""

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a statement."""
        ...

    def append_rows(self, table: str, rows: Sequence[Any]) -> int:
        """Append rows to a table."""
        ...


class RecordedPrices:
    """Records what a table says about models, once for each tenant and model."""

    def __init__(self, lake: PricedLake, table: PriceTable) -> None:
        self._lake = lake
        self._table = table
        self._seen: set[ServedPair] = set()

    def record(self, served: Iterable[ServedPair]) -> int:
        """Record the prices of models that answered, where the lake lacks them; return how many.

        Raises:
            RetryableError: they could not be written; the same call may be made again.
        """
        new = set(served) - self._seen
        if not new:
            return 0
        rows = list(self._missing(new))
        self._lake.append_rows("prices", rows)
        self._seen |= new
        return len(rows)

    def record_all(self) -> int:
        """Record the prices of every model in the lake; return how many."""
        found = self._lake.query(_SERVED).to_pylist()
        return self.record((row["tenant_id"], row["model_served"]) for row in found)

    def _missing(self, pairs: Iterable[ServedPair]) -> Iterable[dict[str, Any]]:
        known: dict[ServedPair, list[Mapping[str, Any]]] = defaultdict(list)
        for row in self._lake.query(_RECORDED).to_pylist():
            known[row["tenant_id"], row["model"]].append(row)
        day = datetime.combine(self._table.spec.as_of, datetime.min.time(), UTC)
        for tenant, model in sorted(pairs):
            price, before = self._table.of(model), known[tenant, model]
            if price is None or any(row["source"] is None for row in before):
                continue
            says = {
                "currency": self._table.spec.currency,
                "input_per_million": price.input,
                "cached_input_per_million": price.cached_input,
                "output_per_million": price.output,
                "up_to_input_tokens": price.up_to_input_tokens,
            }
            if before and (
                before[-1]["valid_from"] > day or all(before[-1][k] == v for k, v in says.items())
            ):
                continue
            yield {
                "tenant_id": tenant, "model": model, "valid_from": day if before else _ALWAYS,
                "recorded_at": datetime.now(UTC), "source": self._table.source, **says,
            }  # fmt: skip
