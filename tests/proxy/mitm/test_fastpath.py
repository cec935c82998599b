"""The overrides: gated on one version, put back whole, equal to stock where a test can compare.

The tests of the gateway, of faults and of the fault matrix run with and without them.
"""

import asyncio
import logging
import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of mitmproxy's own imports
    from mitmproxy import http, options, version
    from mitmproxy.master import Master
    from mitmproxy.proxy import mode_servers

    from proxy.mitm import fastpath
    from proxy.mitm.fastpath import lookups

NAMES = st.sampled_from([b"Accept", b"accept", b"ACCEPT", b"X-A", b"Content-Type"])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=6)), max_size=6).map(tuple)


def applied(*, enabled: bool) -> bool:
    async def main() -> bool:
        master = Master(options.Options(), event_loop=asyncio.get_running_loop())
        try:
            return fastpath.apply(master, enabled=enabled)
        finally:
            master._legacy_log_events.uninstall()

    return asyncio.run(main())


def test_they_are_put_in_and_taken_out() -> None:
    stock = mode_servers.ProxyConnectionHandler, http.Headers.get_all, http.Headers.__contains__
    assert applied(enabled=True)
    assert issubclass(mode_servers.ProxyConnectionHandler, fastpath.FastHandler)
    fastpath.revert()
    assert (
        mode_servers.ProxyConnectionHandler,
        http.Headers.get_all,
        http.Headers.__contains__,
    ) == stock
    assert not applied(enabled=False)
    assert mode_servers.ProxyConnectionHandler is stock[0]


def test_another_version_runs_as_it_comes_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(version, "VERSION", "99.0")
    with caplog.at_level(logging.WARNING, "proxy.mitm.fastpath"):
        assert not applied(enabled=True)
    assert "fast path off: made for mitmproxy" in caplog.text
    assert not issubclass(mode_servers.ProxyConnectionHandler, fastpath.FastHandler)


@given(fields=FIELDS, name=NAMES)
def test_headers_are_looked_up_as_stock_does(
    fields: tuple[tuple[bytes, bytes], ...], name: bytes
) -> None:
    headers = http.Headers(fields)
    asked = name.decode()
    assert lookups.get_all(headers, asked) == headers.get_all(asked)
    assert lookups.get(headers, asked) == headers.get(asked)
    assert lookups.contains(headers, asked) == (asked in headers)


def test_addons_that_are_not_used_are_not_imported() -> None:
    script = "import sys, proxy.gateway; print({'flask', 'ldap3', 'mitmproxy.addons.core'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"
