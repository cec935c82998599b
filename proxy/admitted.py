"""What is found out about a request: who calls, where it goes, or why it is refused."""

from typing import Literal, NamedTuple

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import RegularMode, TransparentMode

from proxy.answers import Reason
from proxy.heads import host_of
from proxy.plan import Plan
from proxy.pointing import Pointing
from proxy.rewriting import Rewritten
from proxy.serving import Version
from trajectory.exchange import ClientIdentity

type Mode = Literal["base_url", "forward", "transparent"]


class Refused(Exception):  # noqa: N818 - not an error of ours: the client's request is refused
    """The request is answered by the gateway itself."""

    def __init__(
        self,
        reason: Reason,
        *,
        client: ClientIdentity | None = None,
        plan: Plan | None = None,
        retry_after: int = 1,
    ) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.client = client
        self.plan = plan
        self.retry_after = retry_after


class Admitted(NamedTuple):
    """What admission found out about a request."""

    client: ClientIdentity
    plan: Plan
    mode: Mode
    rewritten: Rewritten
    path: bytes
    session: bytes | None = None
    """As the URL names it."""
    served: Version | None = None
    """The registered version that is named in the request's body."""
    pointing: Pointing | None = None
    """How it is pointed at one of several upstreams."""
    wishes: bool = True
    """Whether its client may wish less than a full capture: false where no header says so."""


def mode_of(client: connection.Client) -> Mode:
    """Return by which of the gateway's doors a client came in."""
    if isinstance(client.proxy_mode, RegularMode):
        return "forward"
    return "transparent" if isinstance(client.proxy_mode, TransparentMode) else "base_url"


def named_host(flow: http.HTTPFlow) -> str:
    """Return the host that a request is for: as the client calls it, where it was redirected."""
    if isinstance(flow.client_conn.proxy_mode, TransparentMode):
        said = flow.client_conn.sni or host_of(flow.request.host_header)
        return said or flow.request.data.host
    return flow.request.data.host
