"""A fleet of agents that work through shop tasks at the same time, and the verifier behind them.

``python -m examples.practice.fleet --client openai-chat --sessions 50 --tools-url URL``. Addresses,
keys and proxies come from the SDKs' and httpx' own environment variables. The last line of
standard output is one JSON object; nothing planted is written anywhere.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from examples.practice.agent import BrokenAnswerError, Outcome, solve, tool_session
from examples.practice.clients import CLIENTS, DESK_TOKENS, Hook, Style, converse, make_sdk
from examples.practice.house_rules import correction_text
from examples.practice.planted_values import generator
from examples.practice.tasks import SPLITS, Task, make_task
from examples.practice.verifier import decided_rightly, post_rewards, reward, succeeded


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fleet does."""

    client: str
    tools_url: str | None
    """Of the MCP server; None: the agent is a desk without tools, which decides who gets the trade price."""
    sessions: int
    seed: int
    split: str = "train"
    start: int = 0
    """First task of the split."""
    attempts: int = 1
    """Sessions on each task."""
    nameless: bool = False
    """Send the order alone, without any personal data around it."""
    concurrency: int = 8
    stream_share: float = 0.5
    model: str = "practice"
    temperature: float | None = 0.7
    base_url: str | None = None
    """None: from the SDK's environment variable; the same holds for the key."""
    api_key: str | None = field(default=None, repr=False)
    seeded: bool = False
    """Ask chat completions with seeds, so that the same model answers alike each time."""
    direct: bool = False
    """Pass by whatever proxy the environment names."""
    corrects: bool = False
    """A customer who got a wrong answer says once what the house rule is, and the agent goes on."""
    lost_answers: float = 0.0
    """Share of the model's answers that a bad line loses between gateway and agent."""
    feedback_url: str | None = None
    feedback_key: str | None = field(default=None, repr=False)
    rewards_per_post: int = 16
    names_sessions: bool = False
    """Clients say in a header which conversation a call is of: only such are drawn for a canary."""
    tools_key: str | None = field(default=None, repr=False)
    """Sent to the MCP server as a bearer token."""
    progress: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One session that has ended."""

    task: Task
    attempt: int
    outcome: Outcome
    success: bool
    """What the verifier says."""


@dataclass(slots=True)
class Report:
    """What a fleet did."""

    sessions: list[Session] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    """HTTP requests that left, by kind: ``model`` and ``tool``; the SDKs' retries are among them."""
    retries: int = 0
    """Requests that an SDK sent again by itself."""
    rewards: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the counts."""
        outcomes = [session.outcome for session in self.sessions]
        return {
            "sessions": len(self.sessions),
            "successes": sum(session.success for session in self.sessions),
            "steps": sum(outcome.steps for outcome in outcomes),
            "requests": dict(self.requests),
            "requests_sent": self.requests.total(),
            "sdk_retries": self.retries,
            "asked_again": sum(outcome.asked_again for outcome in outcomes),
            "problems": dict(Counter(o.problem for o in outcomes if o.problem)),
            "rewards": self.rewards,
            "seconds": round(self.seconds, 2),
        }


async def run_fleet(plan: Plan) -> Report:
    """Run every session of a plan."""
    report = Report()
    begun = time.monotonic()
    sdk = make_sdk(
        plan.client,
        _counter(report, "model"),
        on_response=_bad_line(plan),
        base_url=plan.base_url,
        api_key=plan.api_key,
        direct=plan.direct,
    )
    tool_client = httpx.AsyncClient(
        headers={"authorization": f"Bearer {plan.tools_key}"} if plan.tools_key else None,
        event_hooks={"request": [_counter(report, "tool")]},
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        timeout=httpx.Timeout(120, connect=20),
        trust_env=not plan.direct,
    )
    async with sdk, tool_client:
        await _Fleet(plan, report, sdk, tool_client).run()
    report.seconds = time.monotonic() - begun
    return report


def _counter(report: Report, kind: str) -> Hook:
    """Return a hook that counts requests of one kind once their head is on the wire.

    Counting earlier would count requests that were cancelled before anything was sent. A CONNECT
    to a proxy is no request of the agent.
    """

    async def count(request: Any) -> None:
        repeated = request.headers.get("x-stainless-retry-count", "0") != "0"
        tunnel = False

        async def trace(event: str, details: dict[str, Any]) -> None:
            nonlocal tunnel
            if event.endswith("send_request_headers.started"):
                tunnel = details["request"].method == b"CONNECT"
            elif event.endswith("send_request_headers.complete") and not tunnel:
                report.requests[kind] += 1
                report.retries += repeated

        request.extensions["trace"] = trace

    return count


def _bad_line(plan: Plan) -> Hook:
    """Return a hook that loses whole answers, as a line does that breaks behind the gateway.

    The SDK then repeats its request by itself: the gateway has seen both. Which answers are lost
    depends on seed and request; what the SDK repeats gets through.
    """

    async def lose(response: httpx.Response) -> None:
        request = response.request
        if request.headers.get("x-stainless-retry-count", "0") != "0":
            return
        if generator(plan.seed, "line", request.content.hex()).random() < plan.lost_answers:
            await response.aread()
            raise httpx.ReadError("the line broke before the agent had read the answer")

    return lose


class _Fleet:
    """A plan under way."""

    def __init__(
        self,
        plan: Plan,
        report: Report,
        sdk: Any,
        tool_client: httpx.AsyncClient,
    ) -> None:
        self._plan = plan
        self._report = report
        self._tool_client = tool_client
        self._sdk = sdk
        self._rewards: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Run all sessions, so many at a time."""
        waiting = iter(range(self._plan.sessions))

        async def work() -> None:
            for number in waiting:
                await self._session(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._plan.concurrency, self._plan.sessions)):
                group.create_task(work())
        await self._post()

    async def _session(self, number: int) -> None:
        plan = self._plan
        index, attempt = divmod(number, plan.attempts)
        task = make_task(plan.seed, plan.split, plan.start + index)
        draw = generator(plan.seed, "style", task.task_id, attempt)
        style = Style(plan.model, draw.random() < plan.stream_share, plan.temperature)
        if plan.tools_url is None:  # the SDKs take no stream that ends at the most tokens
            style = replace(style, stream=False, max_tokens=DESK_TOKENS)
        if plan.seeded:
            style = replace(style, seed=draw.randrange(2**31))
        if plan.names_sessions:
            style = replace(style, session=f"{task.task_id}-{attempt}")
        outcome = await self._solve(task, style)
        right = self._right(task, outcome)
        self._report.sessions.append(Session(task, attempt, outcome, right))
        if plan.feedback_url and outcome.response_id:
            self._rewards.append(reward(outcome.response_id, right=right))
            if len(self._rewards) >= plan.rewards_per_post:
                await self._post()
        if plan.progress and len(self._report.sessions) % 10 == 0:
            done = len(self._report.sessions)
            print(f"{plan.client}: {done} of {plan.sessions} sessions", file=sys.stderr)

    async def _solve(self, task: Task, style: Style) -> Outcome:
        outcome = Outcome()
        try:
            async with AsyncExitStack() as stack:
                session, tools = None, []
                if self._plan.tools_url is not None:
                    opening = tool_session(self._plan.tools_url, self._tool_client)
                    session = await stack.enter_async_context(opening)
                    tools = (await session.list_tools()).tools
                prompt = task.order if self._plan.nameless else task.prompt
                talk = converse(self._plan.client, self._sdk, style, prompt, tools)
                await solve(talk, session, outcome)
                if self._plan.corrects and not self._right(task, outcome):
                    talk.add_words(_correction(self._plan.seed, task))
                    outcome.answer = None
                    await solve(talk, session, outcome)
        except* _failures() as group:
            outcome.problem = _kind(group)
        return outcome

    def _right(self, task: Task, outcome: Outcome) -> bool:
        verify = decided_rightly if self._plan.tools_url is None else succeeded
        return verify(task.task_id, outcome.answer)

    async def _post(self) -> None:
        """Post what has been verified so far; not through the agents' proxy or counts."""
        rewards, self._rewards = self._rewards, []
        if rewards and self._plan.feedback_url and self._plan.feedback_key:
            async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                self._report.rewards += await post_rewards(
                    client, self._plan.feedback_url, self._plan.feedback_key, rewards
                )


def _correction(seed: int, task: Task) -> str:
    draw = generator(seed, "correction", task.task_id)
    return correction_text(draw, task.account, task.price_list)


def _failures() -> tuple[type[Exception], ...]:
    """Return what ends one session without ending the fleet."""
    import anthropic
    import openai
    from mcp.shared.exceptions import McpError

    return (
        openai.OpenAIError,
        anthropic.AnthropicError,
        McpError,
        httpx.HTTPError,
        BrokenAnswerError,
    )


def _kind(group: BaseExceptionGroup[Exception]) -> str:
    """Return the type of the first error in a group; never its text."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


def main() -> None:
    """Run a fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument(
        "--tools-url", help="the MCP server: http://…/mcp; without: a desk that decides"
    )
    parser.add_argument("--tools-key-env", help="variable with a bearer token for it")
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--start", type=int, default=0, help="first task of the split")
    parser.add_argument("--attempts", type=int, default=1, help="sessions on each task")
    parser.add_argument("--nameless", action="store_true", help="orders without personal data")
    parser.add_argument("--stream-share", type=float, default=0.5)
    parser.add_argument("--model", default="practice")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument(
        "--lost-answers", type=float, default=0.0, help="share of answers that the line loses"
    )
    parser.add_argument("--provider-defaults", action="store_true", help="send no temperature")
    parser.add_argument("--base-url", help="instead of the SDK's environment variable")
    parser.add_argument("--feedback-url", help="gateway that the verifier posts rewards to")
    parser.add_argument("--feedback-key-env", default="HEADRACE_KEY")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args()
    plan = Plan(
        client=options.client,
        tools_url=options.tools_url,
        sessions=options.sessions,
        seed=options.seed,
        split=options.split,
        start=options.start,
        attempts=options.attempts,
        nameless=options.nameless,
        concurrency=options.concurrency,
        stream_share=options.stream_share,
        model=options.model,
        temperature=None if options.provider_defaults else options.temperature,
        base_url=options.base_url,
        lost_answers=options.lost_answers,
        feedback_url=options.feedback_url,
        feedback_key=os.environ.get(options.feedback_key_env),
        tools_key=os.environ.get(options.tools_key_env) if options.tools_key_env else None,
        progress=options.progress,
    )
    if plan.feedback_url and not plan.feedback_key:
        parser.error(f"--feedback-url needs a key in {options.feedback_key_env}")
    print(json.dumps({"client": plan.client, **asyncio.run(run_fleet(plan)).to_json()}))


if __name__ == "__main__":
    main()
