"""Selectors by agent and region."""

import pytest

from governance.passes.admit import agents_of, regions_of
from governance.policy import Facts, Match


@pytest.mark.parametrize(
    ("upstream", "regions"),
    [
        ("https://bedrock-runtime.eu-central-1.amazonaws.com:443", ("eu-central-1",)),
        ("https://europe-west4-aiplatform.googleapis.com:443", ("europe-west4",)),
        ("https://acme.westeurope.inference.example:443", ("westeurope",)),
        ("https://eu.api.openai.com:443", ("eu",)),
        ("https://api.openai.com:443", ()),
        ("https://us-chat.example.com:443", ("us",)),
    ],
)
def test_the_region_of_an_upstream(upstream: str, regions: tuple[str, ...]) -> None:
    assert regions_of((), upstream) == regions


def test_headers_say_agent_and_region() -> None:
    headers = (
        ("user-agent", "claude-cli/1.2.3 (external)"),
        ("x-headrace-agent", "triage"),
        ("x-headrace-region", "EU"),
    )
    assert agents_of(headers) == ("triage", "claude-cli")
    assert regions_of(headers, "https://api.example:443") == ("eu",)
    assert agents_of((("x-headrace-agent", "Jo Frame, jo@corp.io"),)) == ()


@pytest.mark.parametrize(
    ("match", "facts"),
    [
        (Match(tenant="a"), Facts(tenant="a")),
        (Match(app="a*"), Facts(app="ab")),
        (Match(environment="prod"), Facts(environment="prod")),
        (Match(provider="*openai*"), Facts(upstream="https://api.openai.com:443")),
        (Match(route="r"), Facts(route="r")),
        (Match(agent=("x", "claude-*")), Facts(agents=("claude-cli",))),
        (Match(tool="mail"), Facts(tools=("search", "mail"))),
        (Match(data_class="health"), Facts(data_classes=("health",))),
        (Match(region="eu*"), Facts(regions=("eu-central-1",))),
    ],
)
def test_each_selector_selects(match: Match, facts: Facts) -> None:
    assert match.fits(facts)
    assert not match.fits(Facts())
