"""An environment to learn in: the tool ``price`` of the shop, answered from a list."""

import json
from typing import Any


class PriceList:
    """One episode, as TRL takes it: ``reset`` begins it, each other public method is a tool."""

    def reset(self, **row: Any) -> None:
        """Begin an episode."""

    def price(self, lamps: int) -> str:
        """Return what lamps cost.

        Args:
            lamps: how many.
        """
        return json.dumps({"total": 2 * lamps})
