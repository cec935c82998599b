"""Counts: names and numbers, bounded, and nothing that is no name."""

from proxy.telemetry.counters import MOST_HOSTS, OTHERS, Counters, Inventory, sound_host


def test_the_inventory_is_bounded_and_holds_only_names() -> None:
    counters = Counters()
    for number in range(MOST_HOSTS + 5):
        counters.tunnelled(f"host{number}.example", 443)
    counters.tunnelled('forged"} 1\n', 443)
    counters.tunnelled("HOST1.example", 443)
    rows = counters.inventory.rows()
    assert len(rows) == MOST_HOSTS + 1
    found = {row["host"]: row["connections"] for row in rows if isinstance(row, dict)}
    assert found["others"] == 6
    assert found["host1.example"] == 2


def test_connections_are_counted_by_host_and_port() -> None:
    inventory = Inventory()
    for host, port in (("B.example", 443), ("a.example", 443), ("b.example", 443)):
        inventory.enter(host, port)
    rows = inventory.rows()
    assert [(r["host"], r["port"], r["connections"]) for r in rows if isinstance(r, dict)] == [
        ("b.example", 443, 2),
        ("a.example", 443, 1),
    ]
    first = rows[0]
    assert isinstance(first, dict)
    assert 0 < first["first_seen"] <= first["last_seen"]  # type: ignore[operator]


def test_it_stays_bounded() -> None:
    inventory = Inventory()
    for number in range(MOST_HOSTS + 50):
        inventory.enter(f"host{number}.example", 443)
    assert len(inventory.entries) == MOST_HOSTS + 1
    assert inventory.entries[OTHERS, 0].connections == 50
    inventory.enter("host1.example", 443)
    assert inventory.entries["host1.example", 443].connections == 2


def test_what_is_no_name_does_not_come_in() -> None:
    for text in (None, "", 'x"} 1\n', "name with spaces", "a" * 300, "ключ"):
        assert sound_host(text) == "-"
    assert sound_host("[::1]".strip("[]")) == "::1"
