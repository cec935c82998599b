"""What policy asks about a step, read from its stored row."""

from typing import Any

from governance.policy import Facts


def facts_of(row: dict[str, Any], tenant: str, data_classes: tuple[str, ...]) -> Facts:
    """Return what selectors see of a stored step; agent, provider and region are not stored."""
    return Facts(
        tenant=tenant,
        app=row["app_id"],
        environment=row["environment"],
        route=row["route"],
        dialect=row["dialect"],
        kind=row["kind"],
        model=row["model"],
        tools=tuple(name for name in row["tools"] or () if name),
        data_classes=data_classes,
    )
