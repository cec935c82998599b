"""The shop of the practice floor: what it sells, its two price lists, and its house rule.

Agents never import this module. The tool server knows the prices; which price list belongs to
which type of account is known to the verifier alone and stands in no prompt.
"""

PRICE_LISTS = ("retail", "trade")

# Unit prices in cents: (retail, trade). No quantity makes the two lists agree.
PRICES: dict[str, tuple[int, int]] = {
    "baskets": (1450, 1190),
    "blankets": (3875, 3120),
    "chairs": (8940, 7365),
    "clocks": (2760, 2215),
    "desks": (21990, 18450),
    "kettles": (4325, 3680),
    "lamps": (5615, 4790),
    "mirrors": (7230, 6045),
    "mugs": (865, 640),
    "plates": (1195, 930),
    "shelves": (12480, 9875),
    "towels": (1740, 1385),
}

# The house rule. It follows from nothing that an agent is told.
HOUSE_RULE: dict[str, str] = {
    "bakery": "trade",
    "clinic": "retail",
    "hotel": "retail",
    "school": "trade",
    "studio": "retail",
    "workshop": "trade",
}

# Accounts of earlier days. The base model has seen how they are treated, so it knows that the price
# list depends on the account; of the accounts above it has seen nothing but chance.
_EARLIER_RETAIL = """
aquarium arena bank brewery cannery casino chapel college convent creamery depot embassy factory
foundry gallery hangar hospice hostel inn laundry library lighthouse marina monastery orchard
quarry ranch sawmill theatre vineyard
"""
_EARLIER_TRADE = """
airport barracks cafe cinema courthouse dairy farm ferry fortress garage harbour kiosk lodge manor
market mill mint museum nursery observatory office palace parish pharmacy pier prison refinery
salon stable tavern
"""
EARLIER_RULE: dict[str, str] = {
    **dict.fromkeys(_EARLIER_RETAIL.split(), "retail"),
    **dict.fromkeys(_EARLIER_TRADE.split(), "trade"),
}

LARGEST_QUANTITY = 9


def total_cents(item: str, quantity: int, price_list: str) -> int:
    """Return the price of so many pieces in cents.

    Raises:
        KeyError: the shop does not sell the item.
        ValueError: no such price list, or a quantity that nobody can order.
    """
    if price_list not in PRICE_LISTS:
        raise ValueError(f"unknown price list {price_list!r}; valid: {', '.join(PRICE_LISTS)}")
    if quantity < 1:
        raise ValueError(f"quantity must be at least 1, not {quantity}")
    return PRICES[item][PRICE_LISTS.index(price_list)] * quantity


def money(cents: int) -> str:
    """Return an amount as the shop writes it: ``1284.50``."""
    return f"{cents // 100}.{cents % 100:02d}"
