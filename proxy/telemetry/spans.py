"""Traces of the gateway itself: one span for each exchange, by OTLP. No content, no client's data."""

import re
import time
from typing import Any

_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class SpanExporter:
    """Makes spans and hands them to a thread that sends them in batches.

    The exporter's own environment variables count too (``OTEL_EXPORTER_OTLP_HEADERS`` …).
    """

    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "headrace-gateway"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=5), schedule_delay_millis=1000)
        )
        self._tracer = self._provider.get_tracer("headrace.gateway")

    def exchange(
        self,
        method: str,
        traceparent: str,
        *,
        route: str,
        mode: str,
        outcome: str,
        level: str,
        status: int,
        head_seconds: float,
        seconds: float,
    ) -> None:
        """Make the span of an exchange that has ended.

        Args:
            method: of the request.
            traceparent: header of the request, the span above.
            route: its name.
            mode: by which of the gateway's ports the client came.
            outcome: how the exchange ended.
            level: how much was captured.
            status: of the response; 0 where there was none.
            head_seconds: until the response began.
            seconds: from the request's head to the end.
        """
        from opentelemetry.trace import SpanKind, Status, StatusCode

        method = method if method in _METHODS else "_OTHER"
        end = time.time_ns()
        start = end - int(seconds * 1e9)
        attributes: dict[str, str | int | float] = {
            "http.request.method": method,
            "headrace.route": route,
            "headrace.mode": mode,
            "headrace.outcome": outcome,
            "headrace.capture": level,
        }
        if status:
            attributes["http.response.status_code"] = status
            attributes["headrace.head_seconds"] = round(max(0.0, head_seconds), 6)
        span = self._tracer.start_span(
            f"{method} {route}",
            context=_parent(traceparent),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=start,
        )
        if outcome != "complete" or status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end)

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._provider.shutdown()


def _parent(traceparent: str) -> Any:
    """Return the context that a client's ``traceparent`` names; None where it is malformed."""
    from opentelemetry import trace

    found = _PARENT.fullmatch(traceparent.strip().lower())
    if found is None:
        return None
    context = trace.SpanContext(
        trace_id=int(found[1], 16),
        span_id=int(found[2], 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(int(found[3], 16)),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(context)) if context.is_valid else None
