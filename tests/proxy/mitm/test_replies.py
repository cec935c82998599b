"""The gateway's own answers reach clients as they were made."""

import warnings

import pytest

from proxy.responses import Reason, answer
from trajectory.dialects.errors import Shape

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy.net.http.http1 import assemble_response

    from proxy.mitm.replies import response_of
    from proxy.refusals import PROXY_REFUSAL


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("reason", Reason)
def test_an_answer_is_assembled_whole(reason: Reason, shape: Shape) -> None:
    reply = answer(reason, shape)
    raw = assemble_response(response_of(reply))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % reply.status)
    assert body == reply.body
    assert b"content-length: %d" % len(body) in head


def test_a_proxy_asks_for_a_key_as_proxies_do() -> None:
    refusal = response_of(PROXY_REFUSAL)
    assert refusal.status_code == 407
    assert refusal.headers["proxy-authenticate"] == 'Basic realm="headrace"'
