"""What capture costs: one gateway whose capture is switched off and on again, turn by turn.

Two processes of the same code may differ by a fifth all their lives, because their memory lies
otherwise; so the same process, with the same connections, answers both times. Switched off it
does what ``capture: false`` makes of it: admission sees no spool, calls have no recording.
"""

import asyncio
import statistics
from pathlib import Path
from typing import NamedTuple

from benchmarks.gateway_traffic import Channel, Variant, connect
from benchmarks.gateway_variants import Upstream, start_headrace, wait_for

CONNECTIONS = 32
REQUESTS = 320
"""In each turn."""
SWITCHED = """
import asyncio, json, sys
from pathlib import Path
from proxy.mitm import fastpath
from proxy.config import GatewayConfig
from proxy.gateway import short_pauses
from proxy.worker import Gateway
async def main():
    config = GatewayConfig.model_validate_json(Path(sys.argv[1]).read_text())
    gateway = Gateway(config, spool_key=b"s" * 32, fingerprint_key=b"f" * 32)
    addresses = await gateway.start()
    services, stop = gateway._gate.services, asyncio.Event()
    recording, spool = services.recording, gateway._spool
    def switch():
        word = sys.stdin.readline().strip()
        if not word:
            stop.set()
        on = word == "on"
        services.recording = recording if on else None
        services.admission._spool = spool if on else None
        print(word, flush=True)
    asyncio.get_running_loop().add_reader(0, switch)
    with short_pauses(enabled=True):
        print(json.dumps(addresses.base_url[1]), flush=True)
        await stop.wait()
    await gateway.close()
with asyncio.Runner(loop_factory=fastpath.new_event_loop(True)) as runner:
    runner.run(main())
"""


class Overhead(NamedTuple):
    """What capture adds to the CPU of a request."""

    share: float
    microseconds: float


async def overhead(variant: Variant, rounds: int) -> Overhead:
    """Return what capture adds in one gateway: the medians of the rounds."""
    requests = variant.requests()
    channels = [await connect(variant) for _ in range(CONNECTIONS)]
    found: list[Overhead] = []
    words = ["off", "on"]
    for number in range(-2, rounds):
        spent = {}
        for word in words:
            _switch(variant, word)
            await _calls(channels, requests, CONNECTIONS)
            before = variant.used()
            await _calls(channels, requests, REQUESTS)
            spent[word] = variant.used() - before
        words.reverse()
        if number >= 0:
            more = spent["on"] - spent["off"]
            found.append(Overhead(more / spent["off"], 1e6 * more / REQUESTS))
    for channel in channels:
        channel.close()
    return Overhead(*map(statistics.median, zip(*found, strict=True)))


def _switch(variant: Variant, word: str) -> None:
    """Switch capture, and wait until it is."""
    process = variant.process
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()
    if process.stdout.readline().strip() != word.encode():
        raise RuntimeError("the gateway's capture cannot be switched")


async def _calls(channels: list[Channel], requests: list[bytes], count: int) -> None:
    left = count

    async def work(channel: Channel) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await channel.call(requests[left % len(requests)])

    await asyncio.gather(*map(work, channels))


async def overheads(
    home: Path, upstream: Upstream, *, processes: int, rounds: int
) -> list[Overhead]:
    """Return what capture costs in each of some fresh gateways."""
    found = []
    for number in range(processes):
        variant = start_headrace(
            "switched", home / f"switched-{number}", upstream, script=SWITCHED, listener="plain"
        )
        process = variant.process
        assert process is not None
        try:
            if not wait_for(variant):
                raise RuntimeError("the gateway to be switched does not start")
            found.append(await overhead(variant, rounds))
        finally:
            process.terminate()
            process.wait(15)
    return found
