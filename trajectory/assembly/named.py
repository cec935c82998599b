"""What stands under a name: most names have one bearer only, and no list is made for it."""

from collections.abc import Iterable, Sequence


class Named[Entry]:
    """Entries by name, each name's in the order in which they came; an entry is no list itself."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[str, Entry | list[Entry]] = {}

    def get(self, name: str) -> Sequence[Entry]:
        """Return the entries of a name."""
        found = self._entries.get(name)
        if found is None:
            return ()
        return found if isinstance(found, list) else (found,)

    def under(self, names: Iterable[str]) -> list[Entry]:
        """Return the entries of any of the names, each once."""
        return list(dict.fromkeys(entry for name in names for entry in self.get(name)))

    def add(self, name: str, entry: Entry) -> None:
        """Give an entry a name, once more if it has it."""
        found = self._entries.get(name)
        if found is None:
            self._entries[name] = entry
        elif isinstance(found, list):
            found.append(entry)
        else:
            self._entries[name] = [found, entry]

    def remove(self, name: str, entry: Entry) -> None:
        """Take a name from an entry, once; nothing happens when it does not have it."""
        found = self._entries.get(name)
        if not isinstance(found, list):
            if found == entry:
                del self._entries[name]
            return
        if entry in found:
            found.remove(entry)
        if len(found) == 1:
            self._entries[name] = found[0]


__all__ = ["Named"]
