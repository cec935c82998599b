"""The Codex command line from npm, as it is: its sub-agents begin on their own and are waited for."""

import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.interop.agents.floor import Floor, compare, floor
from tests.interop.agents.scripts import TEAM, TEAMWORK, teamwork

SESSIONS = 6

pytestmark = pytest.mark.slow

SETTINGS = """
model = "gpt-5"
model_provider = "gateway"
model_auto_compact_token_limit = 200000

[model_providers.gateway]
name = "gateway"
base_url = "{address}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[features]
multi_agent = true
"""


def session(programs: Path, run: Floor, home: Path, prompt: str) -> None:
    """Run one session in a home of its own."""
    settings = home / ".codex"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(SETTINGS.format(address=run.base_url), encoding="utf-8")
    work = home / "work"
    work.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CODEX_HOME": str(settings),
        "OPENAI_API_KEY": run.gateway.key,
    }
    command = [programs / "codex", "exec", "--skip-git-repo-check"]
    done = subprocess.run(
        [*command, "--dangerously-bypass-approvals-and-sandbox", prompt],
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert done.stdout.strip() == "Nothing is to be bought.", (done.stdout, done.stderr)


def test_codex(programs: Path, tmp_path: Path) -> None:
    with floor(tmp_path / "gateway", teamwork) as run:
        with ThreadPoolExecutor(SESSIONS) as pool:

            def errand(number: int) -> None:
                session(programs, run, tmp_path / f"home-{number}", TEAMWORK.format(number))

            list(pool.map(errand, range(SESSIONS)))
        run.assemble()
        run.calls = [call for call in run.calls if call.exchange.request.path.endswith("responses")]
        compare(run, sessions=SESSIONS)
        kinds = Counter(link.kind for link in run.links)
        assert kinds["subagent_call"] == SESSIONS * len(TEAM)
        assert kinds["compaction"] == SESSIONS
        assert {item.key_source for item in run.placed} == {"client:session-id"}
