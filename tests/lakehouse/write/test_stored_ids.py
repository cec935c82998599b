"""Which ids are stored: what the index says is what the files that are there now hold."""

from collections.abc import Iterator, Sequence
from typing import cast

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.lake import Lake
from lakehouse.write.stored_ids import IdIndex

NAMES = [f"step_{number}" for number in range(12)]
TENANTS = ("clinic", "shop")
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(TENANTS), st.lists(st.sampled_from(NAMES), unique=True)),
        st.integers(0, 20),  # the place of a file that goes
    ),
    max_size=12,
)


class TableFiles:
    """The files of one table: what an index asks a lake for."""

    def __init__(self) -> None:
        self.files: dict[str, Sequence[str]] = {}
        self._written = 0

    def write(self, tenant_id: str, names: Sequence[str]) -> None:
        self._written += 1
        self.files[f"tenant_id={tenant_id}/{self._written}.parquet"] = names

    def drop(self, place: int) -> None:
        if self.files:
            del self.files[[*self.files][place % len(self.files)]]

    def snapshot_of(self, table: str) -> list[str]:
        return [*self.files]

    def fresh_names(self, file: str) -> pa.Array | None:
        return None if len(file) % 2 else pa.array(self.files[file], pa.string())

    def rows_of_file(
        self, table: str, file: str, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({columns[0]: pa.array(self.files[file], pa.string())})


@given(CHANGES)
def test_it_knows_what_the_files_hold(changes: list[tuple[str, list[str]] | int]) -> None:
    table = TableFiles()
    index = IdIndex(cast(Lake, table), "steps", "step_id")
    for change in changes:
        if isinstance(change, int):
            table.drop(change)
        else:
            table.write(*change)
        for tenant in TENANTS:
            held = {
                name
                for file, names in table.files.items()
                if f"tenant_id={tenant}/" in file
                for name in names
            }
            assert index.known(tenant, NAMES) == held


def test_nothing_is_asked_of_an_empty_table() -> None:
    index = IdIndex(cast(Lake, TableFiles()), "steps", "step_id")
    assert index.known("shop", []) == set()
    assert index.known("shop", NAMES) == set()
