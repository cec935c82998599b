"""Traces of instrumented agents: OTLP spans read as model calls, tool calls and judgements.

``spans`` decodes OTLP, and ``genai`` and ``openinference`` know one convention each. ``calls`` turns an export
into calls and feedback.
"""
