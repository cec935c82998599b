"""Admission of requests that mitmproxy has read: by the path of a base URL, or where their client wanted."""

from mitmproxy import connection, http
from mitmproxy.proxy.mode_specs import RegularMode, TransparentMode

from proxy.admission import REFLECTED, AdmissionControl, AdmittedRequest, Mode, RequestRefusal
from proxy.clients.callers import Callers
from proxy.clients.credentials import RawFields, holds_client_key, presented_key
from proxy.heads import host_of
from proxy.responses import Reason
from proxy.routes.router import Router
from proxy.routes.upstream_request import at_its_host, key_giver, without_client_keys


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


def method_of(request: http.Request) -> bytes:
    """Return the method of a request as the most lenient server reads it, which takes any case."""
    return request.data.method.upper()


class FlowAdmission:
    """Decides about requests of all doors; what it refuses it raises."""

    def __init__(self, control: AdmissionControl, *, router: Router, callers: Callers) -> None:
        self._control = control
        self._router = router
        self._callers = callers

    def admit(self, flow: http.HTTPFlow) -> AdmittedRequest:
        """Find client and route of a request.

        Raises:
            RequestRefusal: there is no key, no route, or nothing left of a limit; or a client key stands in
                the path, which would be kept and go upstream; or the method asks for a reflection.
        """
        data, fields = flow.request.data, flow.request.headers.fields
        mode, method = mode_of(flow.client_conn), method_of(flow.request)
        if mode == "base_url":
            stick = flow.client_conn.id.encode()
            return self._control.admit_base_url(method, data.path, fields, stick=stick)
        if holds_client_key(data.path.partition(b"?")[0]) or method in REFLECTED:
            raise RequestRefusal(Reason.NO_ROUTE)  # it would carry a key to where it must not be
        admit = self._forward if mode == "forward" else self._transparent
        admitted = admit(flow, fields)
        self._control.limit(method, admitted)
        return admitted

    def _forward(self, flow: http.HTTPFlow, fields: RawFields) -> AdmittedRequest:
        data = flow.request.data
        client = self._callers.of_forward(flow.client_conn, fields)
        if client is None:
            raise RequestRefusal(Reason.NO_KEY)
        plan, target = self._router.by_host(data.host, data.port, data.path)
        https = data.scheme == b"https"
        given = None
        if target is not None and https == (target.upstream.scheme == "https"):
            given = key_giver(target, flow.client_conn.sni or data.host)
        return AdmittedRequest(
            client,
            plan,
            "forward",
            at_its_host(fields, None, given),
            without_client_keys(data.path),
            (data.scheme, data.host, data.port),
            fields,
        )

    def _transparent(self, flow: http.HTTPFlow, fields: RawFields) -> AdmittedRequest:
        """Admit a redirected request; it goes on to the address that it was sent to.

        A provider's key is added only behind TLS, where the upstream has proved its name. The name in a plain
        request is only what the client says.
        """
        data, host = flow.request.data, named_host(flow)
        presented, header = presented_key(fields)
        client = self._callers.of_redirected(presented)
        if client is None:
            raise RequestRefusal(Reason.NO_KEY)
        plan, target = self._router.by_host(host, data.port, data.path)
        given = None
        if target is not None and data.scheme == b"https":
            given = key_giver(target, flow.client_conn.sni or data.host)
        return AdmittedRequest(
            client,
            plan,
            "transparent",
            at_its_host(fields, header if presented else None, given),
            without_client_keys(data.path),
            (data.scheme, host, data.port),
            fields,
        )
