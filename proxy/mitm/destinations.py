"""Where a redirected connection was going before iptables sent it to the gateway."""

from typing import Any

from mitmproxy import platform

from trajectory.errors import ConfigurationError

type Address = tuple[str, int]


def destination(connection: Any) -> Address:
    """Return the original destination of an accepted connection.

    ``REDIRECT`` leaves it with the kernel's connection tracking, ``TPROXY`` as the connection's
    own address.

    Raises:
        OSError: the connection was made to the gateway itself; passed on, it would come back for
            ever.
    """
    own = _plain(connection.getsockname())
    try:
        found = _tracked(connection)
    except OSError:
        found = own
    if found == own and own[1] in _ports:
        raise OSError("this connection was not redirected: it was made to the gateway itself")
    return found


def _plain(address: tuple[Any, ...]) -> Address:
    """Return an address as it is in its own family: IPv4 may come in IPv6's clothes."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def _tracked(connection: Any) -> Address:
    from mitmproxy.platform import linux

    host, port = linux.original_addr(connection)
    return host, port


_ports: set[int] = set()


def install(port: int) -> None:
    """Let mitmproxy's transparent mode, which listens on this port, ask here.

    Raises:
        ConfigurationError: this system cannot say where a connection was going.
    """
    if not platform.__dict__.get("linux"):
        raise ConfigurationError("transparent mode needs Linux; use the forward proxy instead")
    _ports.add(port)
    setattr(platform, "original_addr", destination)  # noqa: B010 - of mitmproxy's
