"""The version that stands in each table's properties, and who may work with it."""

from deltalake import DeltaTable

from lakehouse.schema.tables import LAKE_VERSION, VERSION_PROPERTY, TableSpec
from lakehouse.storage.location import Location
from trajectory.errors import ConfigurationError, IntegrityError


def check_version(
    location: Location, spec: TableSpec, handle: DeltaTable, *, behind: bool = True
) -> int:
    """Return the version that a table was written at.

    Args:
        location: where the lake is.
        spec: the table as this Headrace knows it.
        handle: the table as it is.
        behind: whether an older version will do.

    Raises:
        IntegrityError: the table was written by a newer Headrace.
        ConfigurationError: it is older, and that will not do.
    """
    found = int(handle.metadata().configuration.get(VERSION_PROPERTY, "0"))
    if found > LAKE_VERSION:
        raise IntegrityError(
            f"{location.root}: table {spec.name} has version {found}, this Headrace knows "
            f"{LAKE_VERSION}; upgrade Headrace"
        )
    if found < LAKE_VERSION and not behind:
        raise ConfigurationError(
            f"{location.root}: table {spec.name} has version {found}, this Headrace reads "
            f"{LAKE_VERSION}; open the lake once to write: `headrace lake status`"
        )
    return found
