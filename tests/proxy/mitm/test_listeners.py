"""Sockets: bound before anything starts, on one address or on both loopbacks, shared or not."""

import socket

import pytest

from proxy.mitm.listeners import Listeners
from trajectory.errors import ConfigurationError


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def listening(listeners: Listeners, name: str) -> None:
    for bound in listeners.of(name):
        bound.listen()


def test_one_address_or_both_loopbacks() -> None:
    listeners = Listeners(shared=False)
    one = listeners.bind("base_url", "127.0.0.1", 0)
    both = listeners.bind("transparent", "localhost", 0)
    assert one is not None
    assert both is not None
    assert both[0] == "127.0.0.1"
    listening(listeners, "base_url")
    listening(listeners, "transparent")
    assert [reaches(host, one[1]) for host in ("127.0.0.1", "::1")] == [True, False]
    assert reaches("127.0.0.1", both[1])
    assert reaches("::1", both[1]) is (len(listeners.of("transparent")) == 2)
    listeners.close()
    assert not reaches("127.0.0.1", one[1])


def test_what_is_off_binds_nothing() -> None:
    assert Listeners(shared=False).bind("admin", "127.0.0.1", None) is None


def test_a_taken_port_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f":{taken}: .*another gateway.port$"):
            Listeners(shared=False).bind("base_url", "127.0.0.1", taken)
        with pytest.raises(ConfigurationError, match=r"another gateway\.forward_port$"):
            Listeners(shared=False).bind("forward", "127.0.0.1", taken)


def test_an_address_of_another_machine_is_named_with_its_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"gateway\.admin_host must be an address of this"):
        Listeners(shared=False).bind("admin", "192.0.2.1", 0)


def test_workers_share_all_ports_but_the_admin_port() -> None:
    first, second = Listeners(shared=True), Listeners(shared=True)
    bound, admin = first.bind("forward", "127.0.0.1", 0), first.bind("admin", "127.0.0.1", 0)
    assert bound is not None
    assert admin is not None
    assert second.bind("forward", *bound) == bound
    listening(first, "admin")
    with pytest.raises(ConfigurationError):
        second.bind("admin", *admin)
    first.close()
    second.close()
