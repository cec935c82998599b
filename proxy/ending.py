"""The end of a call: counted, its tokens taken off the budget, its span closed, its record ended."""

import logging
import time

from mitmproxy import http

from proxy.counters import Counters
from proxy.limits import Budgets
from proxy.live import Live
from proxy.tracing import Tracing
from proxy.usage import UsageMeter
from trajectory.exchange import ExchangeOutcome

_log = logging.getLogger(__name__)


class Endings:
    """Ends calls, each once."""

    def __init__(self, counters: Counters, budgets: Budgets, tracing: Tracing | None) -> None:
        self._counters = counters
        self._budgets = budgets
        self._tracing = tracing

    def end(self, flow: http.HTTPFlow, live: Live, outcome: ExchangeOutcome) -> None:
        """End a call; whatever fails here, the call itself is over."""
        live.sending = None
        self._counters.exchanges[live.plan.name, live.mode, outcome.value] += 1
        self._counters.observe(time.monotonic() - live.started)
        if live.meter is not None:
            self._spend(live, live.meter)
        if live.check is not None and outcome is ExchangeOutcome.COMPLETE:
            live.plan.note_tokens(sound=live.check.sound)
        if self._tracing is not None:
            self._trace(self._tracing, flow, live, outcome)
        if live.capture is not None and not live.capture.ended:
            try:
                live.capture.end(outcome)
            except Exception as error:  # noqa: BLE001 - the call goes on whatever capture does
                live.capture.abandon(error)

    def _trace(
        self, tracing: Tracing, flow: http.HTTPFlow, live: Live, outcome: ExchangeOutcome
    ) -> None:
        level = "none" if live.capture is None else live.capture.level.name.lower()
        try:
            tracing.exchange(
                flow,
                route=live.plan.name,
                mode=live.mode,
                outcome=outcome.value,
                level=level,
                seconds=time.monotonic() - live.started,
            )
        except Exception as error:  # noqa: BLE001 - the call goes on whatever tracing does
            self._counters.faults += 1
            _log.error("tracing fault: %s", type(error).__name__)

    def _spend(self, live: Live, meter: UsageMeter) -> None:
        """Take the tokens of an answer off the key's budget."""
        if not meter.answered:
            return
        if not meter.reported:
            self._counters.unlimited["estimated"] += 1
        self._budgets.spend(live.key_id, meter.tokens(live.sent_bytes))
