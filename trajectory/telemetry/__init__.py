"""Traces of instrumented agents: OTLP spans read as model calls, tool calls and judgements.

``spans`` decodes OTLP, ``genai`` and ``openinference`` know one convention each, and
``calls`` makes of an export what the rest of the house knows: calls and feedback.
"""
