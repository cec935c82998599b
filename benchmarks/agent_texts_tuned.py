"""The half of the templates that rules are tuned to; see ``agent_texts_held`` for the format."""

NAMES: dict[str, tuple[str, str]] = {"en": ("Maurice Philippa", "Tolliver Cranston")}
USERS = ("pcranston",)
PASSWORDS = ("Sommer2024!",)
WORD_PASSWORDS = ("gartenzaunlatte",)
STREETS = {"en": ("12 Foxglove Lane",)}
LISTS: dict[str, tuple[str, ...]] = {}
PERSONAL: dict[str, dict[str, tuple[str, ...]]] = {}
NEUTRAL: dict[str, dict[str, tuple[str, ...]]] = {}
