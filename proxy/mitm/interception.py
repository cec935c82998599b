"""Which connections are opened: our certificates for configured hosts, a blind tunnel for others."""

import time
from collections.abc import Callable, Generator
from typing import Any

from mitmproxy import certs, connection, platform, tls
from mitmproxy.addons.tlsconfig import AppData, TlsConfig
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer, layers
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode, HttpStream
from mitmproxy.proxy.mode_specs import RegularMode, ReverseMode, TransparentMode

from proxy.mitm.authority import Authority
from proxy.routes.router import Router
from proxy.telemetry.counters import Counters
from trajectory.errors import ConfigurationError

type Address = tuple[str, int]
type Commands = Generator[commands.Command, Any, None]
type Ended = Callable[[connection.Client], bool]
"""Tells whether a client that opened a tunnel may say and hear no more in it."""

_LOOK_SECONDS = 0.5
_GREETING = b"\x16\x03"
"""With which TLS begins."""


def destination(accepted: Any) -> Address:
    """Return the original destination of an accepted connection.

    ``REDIRECT`` leaves it with the kernel's connection tracking, ``TPROXY`` as the connection's
    own address.

    Raises:
        OSError: the connection was made to the gateway itself; passed on, it would come back for
            ever.
    """
    own = _plain(accepted.getsockname())
    try:
        found = _tracked(accepted)
    except OSError:
        found = own
    if found == own and own[1] in _ports:
        raise OSError("this connection was not redirected: it was made to the gateway itself")
    return found


def _plain(address: tuple[Any, ...]) -> Address:
    """Return an address as it is in its own family: IPv4 may come in IPv6's clothes."""
    return str(address[0]).removeprefix("::ffff:"), int(address[1])


def _tracked(accepted: Any) -> Address:
    from mitmproxy.platform import linux

    host, port = linux.original_addr(accepted)
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


class Interception(TlsConfig):
    """TLS on both sides; the authority is given, nothing is read from or written to the disk."""

    name = "tlsconfig"

    def __init__(self, authority: Authority | None, counters: Counters, *, http2: bool) -> None:
        """Begin; ``http2`` offers it to clients of the base URL."""
        self._counters = counters
        self._http2 = http2
        self._authority = authority is not None
        if authority is not None:
            certificate = authority.certificate
            self.certstore = certs.CertStore(
                default_privatekey=authority.key,  # type: ignore[arg-type]
                default_ca=certs.Cert(certificate),
                default_chain_file=None,
                default_crl=b"",
                dhparams=None,  # type: ignore[arg-type]
            )

    # The authority never changes while the gateway runs, and no revocation list is served.
    configure = None  # type: ignore[assignment]
    running = None  # type: ignore[assignment]
    request = None  # type: ignore[assignment]

    def tls_start_client(self, tls_start: tls.TlsData) -> None:
        """Begin a handshake; clients of the base URL may speak HTTP/2, opened connections do not.

        An opened connection goes on as its client began it. HTTP/1.1 costs less there, because each call of HTTP/2
        takes an upstream connection of its own.
        """
        if not self._authority:
            return  # mitmproxy ends the connection
        super().tls_start_client(tls_start)
        client, handshake = tls_start.context.client, tls_start.ssl_conn
        if handshake is not None and self._http2 and isinstance(client.proxy_mode, ReverseMode):
            chosen = b"h2" if b"h2" in client.alpn_offers else None
            handshake.set_app_data(AppData(client_alpn=chosen, server_alpn=None, http2=False))

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """Count a handshake that failed."""
        self._counters.tls_failed(data.context.client.sni)


class KeyedTunnel(layers.TCPLayer):
    """A blind tunnel, until the key that lets it stand has ended."""

    def __init__(self, context: Context, ended: Ended) -> None:
        """Begin; ``ended`` is asked when something is to pass, first and then now and again."""
        super().__init__(context, ignore=True)
        self._ended = ended
        self._look_at = 0.0

    def relay_messages(self, event: events.Event) -> Commands:
        """Pass on what came, or close both sides."""
        now = time.monotonic()
        if isinstance(event, events.DataReceived) and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if self._ended(self.context.client):
                yield commands.CloseConnection(self.context.server)
                yield commands.CloseConnection(self.context.client)
                self._handle_event = self.done
                return
        yield from super().relay_messages(event)


class RedirectedTls(layers.ClientTLSLayer):
    """TLS of a redirected client; where its greeting names a host that is not opened, a tunnel."""

    def __init__(self, context: Context, ended: Ended) -> None:
        """Begin; ``ended`` is what the tunnel asks."""
        super().__init__(context)
        self._ended = ended

    def receive_handshake_data(
        self, data: bytes
    ) -> Generator[commands.Command, Any, tuple[bool, str | None]]:
        """Read more of the greeting; stock code puts a tunnel of its own in place, which has not begun yet."""
        done, error = yield from super().receive_handshake_data(data)
        if done and isinstance(self.child_layer, layers.TCPLayer):
            self.child_layer = KeyedTunnel(self.context, self._ended)
        return done, error


def _said_first(nextlayer: layer.NextLayer) -> bytes:
    data: bytes = nextlayer.data_client()  # type: ignore[no-untyped-call]
    return data


class Tunnels:
    """Decides whether a connection is opened or passed on as it is. The host in CONNECT decides; for redirected
    connections, the name in the TLS greeting."""

    def __init__(self, router: Router, counters: Counters, ended: Ended) -> None:
        self._router = router
        self._counters = counters
        self._ended = ended

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        """Pass connections to hosts that are not configured on without looking."""
        context, mode = nextlayer.context, nextlayer.context.client.proxy_mode
        if nextlayer.layer:
            return
        if isinstance(mode, TransparentMode):
            self._begin_tls(nextlayer)
        if not isinstance(mode, RegularMode):
            return
        after_connect = context.layers and isinstance(context.layers[-1], HttpStream)
        address = context.server.address
        if not after_connect or address is None:
            return
        if not self._router.intercepts(address[0], address[1]):
            self._counters.tunnelled(address[0], address[1])
            nextlayer.layer = KeyedTunnel(context, self._ended)

    def _begin_tls(self, nextlayer: layer.NextLayer) -> None:
        """Read the greeting of a redirected client."""
        context = nextlayer.context
        if not context.client.tls and starts_like_tls_record(_said_first(nextlayer)):
            nextlayer.layer = layers.ServerTLSLayer(context)
            nextlayer.layer.child_layer = RedirectedTls(context, self._ended)

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """Pass redirected connections to hosts that are not configured on without looking."""
        context = data.context
        if not isinstance(context.client.proxy_mode, TransparentMode):
            return
        address = context.server.address
        if address is None:
            return
        host = data.client_hello.sni or address[0]
        if not self._router.intercepts(host, address[1]):
            self._counters.tunnelled(host, address[1])
            data.ignore_connection = True
            context.server.tls = False  # the client's, end to end: nobody waits for ours to stand


class RawConnections:
    """What is neither TLS nor HTTP: passed on unread as long as its key stands, but not where it was opened.

    Asked once mitmproxy has chosen how to read a connection.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        """Pass a redirected connection on; what a client has opened to us is HTTP, or refused as such."""
        chosen, context = nextlayer.layer, nextlayer.context
        if type(chosen) is not layers.TCPLayer:
            return
        context.layers.remove(chosen)
        redirected = isinstance(context.client.proxy_mode, TransparentMode)
        said = _said_first(nextlayer)
        if said and _GREETING.startswith(said):
            nextlayer.layer = None  # it may go on as a greeting, whose name decides
        elif context.client.tls or not redirected:
            nextlayer.layer = layers.HttpLayer(context, HTTPMode.transparent)
        else:
            nextlayer.layer = KeyedTunnel(context, self._ended)
