"""Asks the detectors what is in texts; remembers the latest answers by a hash, not by the text."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import batched
from operator import itemgetter
from threading import Lock

from governance.detect.finding import Detector, Finding, Unit
from governance.detect.named_tuples import new
from governance.detect.names.patterns import BETWEEN_EMPHASISED
from governance.detect.normalized_text import view_of
from governance.redact.own_marks import MarkFinder
from governance.redact.report import RedactionError
from governance.vocabulary import is_drawn_id

type Item = tuple[tuple[str, ...], str, bool]
"""The keys that detection depends on, a text, and whether it is digits of another one, and no name."""
type Findings = dict[bytes, tuple[Finding, ...]]
"""What was found, by a hash of keys and text."""

_CACHE_ENTRIES = 50_000
_BATCH = 256
_BATCH_SIZE = 128 * 1024
"""Characters of a batch, but for one text that is longer; between batches time is looked at."""
_FASTEST = 4_000_000
"""Characters that nobody looks through in a second."""
_EMPHASIS = re.compile(BETWEEN_EMPHASISED)
_PLACE = itemgetter(1, 2)
_NEVER = 2.0
"""More than any score."""
_IDS_OF_PROVIDERS = frozenset({("response_id",), ("parts", "call_id")})
"""Keys under which providers put ids that they draw: nobody is in those. One in 500 looked like a
name or an IBAN, and lost its links; and each is new, so that looking at them took a twentieth of a batch."""
_BEGUN = blake2b(digest_size=16)
_BEGUN_OF_DIGITS = blake2b(digest_size=16, person=b"digits")


def _name(item: Item) -> bytes:
    keys, text, is_digits = item
    hashed = (_BEGUN_OF_DIGITS if is_digits else _BEGUN).copy()
    if keys:  # with their sizes, else a text could pass for keys and a text
        text = ",".join([str(len(key)) for key in keys]) + "\x1f" + "".join(keys) + text
    else:
        text = "\x1f" + text
    hashed.update(text.encode("utf-8", "surrogatepass"))
    return hashed.digest()


def by_hash(found: Mapping[Item, tuple[Finding, ...]]) -> Findings:
    """Return what was found without the texts that it was found in."""
    return {_name(item): one for item, one in found.items()}


def _batches(fresh: Mapping[bytes, Item]) -> Iterator[list[tuple[bytes, Item]]]:
    """Yield what is to be looked at, a batch at a time."""
    batch: list[tuple[bytes, Item]] = []
    size = 0
    for name, item in fresh.items():
        if batch and (len(batch) == _BATCH or size + len(item[1]) > _BATCH_SIZE):
            yield batch
            batch, size = [], 0
        batch.append((name, item))
        size += len(item[1])
    if batch:
        yield batch


class DetectionMemory:
    """What was found lately, by a hash of each text; several threads may share it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.found: OrderedDict[bytes, tuple[Finding, ...]] = OrderedDict()
        """What was asked for last stands last."""


class DetectionCache:
    """Asks detectors and keeps what policy asks for. Not for several threads at once."""

    def __init__(
        self,
        detectors: Sequence[Detector],
        least: Mapping[str, float],
        *,
        marks: MarkFinder,
        allow: Iterable[str],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        memory: DetectionMemory | None = None,
    ) -> None:
        """Ask in this order.

        Args:
            detectors: what finds.
            least: the least score of a finding, by each entity that policy asks for.
            marks: what redaction writes itself.
            allow: values that are no findings.
            seconds: how long one call may take.
            clock: seconds that only grow.
            memory: what other caches of the same policy know too.
        """
        self._detectors = tuple(detectors)
        self._least = dict(least)
        self._marks = marks
        self._allow = frozenset(allow)
        self.seconds = seconds
        """How long one call may take."""
        self._clock = clock
        self._memory = memory or DetectionMemory()

    def learn(self, found: Findings) -> None:
        """Take over what was found elsewhere by the same policy."""
        with self._memory.lock:
            self._memory.found.update(found)

    def find(self, items: Iterable[Item]) -> dict[Item, tuple[Finding, ...]]:
        """Return what is in texts: at once where they are in memory, a batch at a time where not.

        Raises:
            RedactionError: a detector failed or time ran out; nothing may be kept.
        """
        deadline = self._clock() + self.seconds
        out: dict[Item, tuple[Finding, ...]] = {}
        fresh: dict[bytes, Item] = {}
        memory = self._memory.found
        for some in batched(items, _BATCH):
            with self._memory.lock:
                for item in some:
                    if item[0] in _IDS_OF_PROVIDERS and is_drawn_id(item[1]):
                        out[item] = ()
                        continue
                    name = _name(item)
                    known = memory.get(name)
                    if known is None:
                        fresh[name] = item
                    else:
                        out[item] = known
                        memory.move_to_end(name)
        # Whatever machine looks, it cannot look through that much in this time.
        if sum(len(text) for _, text, _ in fresh.values()) > _FASTEST * self.seconds:
            raise self._late()
        for batch in _batches(fresh):
            if self._clock() > deadline:
                raise self._late()
            units = [new(Unit, (view_of(text), keys, digits)) for _, (keys, text, digits) in batch]
            counted = [
                self._counted(item[1], found) if found else ()
                for (_, item), found in zip(batch, self.detect(units), strict=True)
            ]
            with self._memory.lock:
                for (name, item), found in zip(batch, counted, strict=True):
                    out[item] = memory[name] = found
        with self._memory.lock:
            while len(memory) > _CACHE_ENTRIES:
                memory.popitem(last=False)
        return out

    def _late(self) -> RedactionError:
        return RedactionError(
            f"redaction takes longer than {self.seconds} s; the rows are held back. Raise "
            "spec.timeout_seconds or look for a hostile input."
        )

    def detect(self, units: Sequence[Unit]) -> list[list[Finding]]:
        """Ask all detectors; the failure of one is the failure of all.

        Raises:
            RedactionError: a detector failed.
        """
        out: list[list[Finding]] = [[] for _ in units]
        for detector in self._detectors:
            try:
                fresh = detector.find(units, out)
                for found, more in zip(out, fresh, strict=True):
                    if more:
                        found.extend(more)
            except Exception as error:  # noqa: BLE001 - any failure holds the rows back, and the
                # error's own text may quote what it was reading.
                raise RedactionError(
                    f"detector {detector.name} failed ({type(error).__name__}); the rows are "
                    "held back"
                ) from None
        return out

    def _counted(self, text: str, found: list[Finding]) -> tuple[Finding, ...]:
        """Return the findings that policy asks for, that are sure enough, and not made by redaction."""
        least, allow, marks = self._least, self._allow, self._marks.within(text)
        kept = [one for one in found if one[3] >= least.get(one[0], _NEVER)]
        if allow:
            kept = [one for one in kept if text[one.start : one.end] not in allow]
        if marks is not None:
            kept = [one for one in kept if marks.leave_free(one.start, one.end)]
        return tuple(_joined(text, kept) if "**" in text or "~~" in text else kept)


def _joined(text: str, found: Sequence[Finding]) -> list[Finding]:
    """Return findings in order, with one for the words of a name that are emphasised one by one."""
    out: list[Finding] = []
    for one in sorted(found, key=_PLACE):
        last = out[-1] if out else None
        if (
            last is not None
            and last.entity == one.entity == "PERSON"
            and _EMPHASIS.fullmatch(text, last.end, one.start)
        ):
            out[-1] = last._replace(end=one.end)
        else:
            out.append(one)
    return out
