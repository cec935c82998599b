"""The document of kind ``Prices``: what models cost, by patterns of their names, as of a day."""

from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trajectory.documents.document import Document, StrictModel, load_document

SHIPPED = Path(__file__).parent.parent / "policies" / "prices.yaml"
"""The table that holds where nobody names one."""

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(StrictModel):
    """What a million tokens of some models cost."""

    models: tuple[str, ...] = Field(min_length=1)
    """Patterns of names as the provider answers them (``gpt-5-2*``); the first price that fits holds."""
    input: Price
    cached_input: Price | None = None
    """Of cached input tokens; without it they cost as others."""
    output: Price
    up_to_input_tokens: int | None = Field(default=None, ge=1)
    """The prices are for calls with so many input tokens at most; a longer call has no known price."""

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float | None:
        """Return what a call costs; None where its price is not known.

        Args:
            input_tokens: all of them.
            cached_tokens: those among them that were cached.
            output_tokens: those of the answer.
        """
        if self.up_to_input_tokens is not None and input_tokens > self.up_to_input_tokens:
            return None
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = (input_tokens - cached_tokens) * self.input
        return (fresh + cached_tokens * cached + output_tokens * self.output) / 1e6


class PricesSpec(StrictModel):
    """The ``spec`` of a price table."""

    as_of: date
    """The day whose prices these are."""
    currency: str = Field(pattern=r"^[A-Z]{3}$")
    prices: tuple[ModelPrice, ...] = Field(min_length=1)


class PriceTable(Document):
    """A document of kind ``Prices``."""

    kind: Literal["Prices"]
    spec: PricesSpec

    @property
    def source(self) -> str:
        """Name and day, as rows say where a price comes from."""
        return f"{self.metadata.name}@{self.spec.as_of:%Y-%m-%d}"

    def of(self, model: str) -> ModelPrice | None:
        """Return the price of a model; None where the table has none."""
        name = model.lower()
        for price in self.spec.prices:
            if any(fnmatchcase(name, pattern.lower()) for pattern in price.models):
                return price
        return None

    @property
    def dearest(self) -> ModelPrice:
        """The highest price of each kind: no call that the table knows costs more."""
        prices = self.spec.prices
        return ModelPrice(
            models=("*",),
            input=max(max(price.input, price.cached_input or 0.0) for price in prices),
            output=max(price.output for price in prices),
        )


def load_prices(path: Path | None = None) -> PriceTable:
    """Read a price table; without a path the one that Headrace ships.

    Raises:
        DocumentError: naming file, line and field.
    """
    return load_document(PriceTable, path or SHIPPED)
