"""Run by the Python of the environment ``formats``: an agent that OpenInference instruments.

Arguments: the provider's base URL, the gateway's traces endpoint, the client key.
"""

import json
import sys

from openai import OpenAI
from openinference.instrumentation import using_session
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def main(provider: str, traces: str, key: str) -> None:
    """Ask, use the tool, ask again."""
    tracing = TracerProvider()
    exporter = OTLPSpanExporter(traces, headers={"authorization": f"Bearer {key}"})
    tracing.add_span_processor(BatchSpanProcessor(exporter))
    OpenAIInstrumentor().instrument(tracer_provider=tracing)
    client = OpenAI(base_url=provider, api_key="none")
    messages = [
        {"role": "system", "content": "You add."},
        {"role": "user", "content": "What is 1 + 1?"},
    ]
    with using_session("session-7"):
        for _ in range(2):
            answer = client.chat.completions.create(
                model="m", messages=messages, tools=[TOOL], temperature=0.5, max_tokens=9
            )
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or ():
                made = str(sum(json.loads(call.function.arguments).values()))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": made})
    tracing.shutdown()


main(*sys.argv[1:])
