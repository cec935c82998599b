"""The gateway's settings: what is wrong is said before anything listens."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.config import CredentialSource, GatewayConfig, Upstream
from trajectory.errors import ConfigurationError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"routes": [{"name": "a", "upstream": "ftp://x"}]}, "http://"),
        ({"routes": [{"name": "a", "upstream": "https://u:p@x"}]}, "no query, fragment or user"),
        ({"routes": [{"name": "A b", "upstream": "https://x"}]}, "pattern"),
        ({"routes": [{"name": "a", "prefix": "x", "upstream": "https://x"}]}, "one slash"),
        ({"routes": [{"name": "a", "prefix": "/headrace/x", "upstream": "https://x"}]}, "belong"),
        ({"routes": [{"name": "a", "upstream": "https://x"}] * 2}, "two routes have the name"),
        ({"intercept_hosts": ["a/b"]}, "not host"),
        ({"ports": 1}, "ports"),
        (
            {"routes": [{"name": "a", "upstream": "https://x", "credential": {}}]},
            "exactly one of: env, file",
        ),
        (
            {"routes": [{"name": "a", "upstream": [{"url": "https://x", "weight": 0}]}]},
            "weight is above 0",
        ),
        ({"spool": {"alarm_at": 0.95}}, "alarm_at must not lie above shed_at"),
        (
            {"workers": 3, "forward_port": 8488},
            r"gateway\.forward_port and gateway\.admin_port \(worker 2\) are both 8488",
        ),
        ({"port": 8485}, r"gateway\.port and gateway\.forward_port are both 8485"),
        ({"host": "0.0.0.0", "port": 8486}, r"gateway\.port and gateway\.admin_port"),  # noqa: S104
        ({"workers": 3, "admin_port": 65534}, "beyond 65535"),
        ({"transparent_port": 8483}, "needs transparent_key"),
        ({"forward_key": {"env": "KEY"}, "forward_host": "10.1.2.3"}, "let everybody in"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GatewayConfig.model_validate(settings)


def test_one_port_on_two_addresses_is_no_clash() -> None:
    apart = {"host": "10.0.0.1", "port": 8485, "admin_port": None, "workers": 3}
    assert GatewayConfig.model_validate(apart).port == 8485
    anywhere = {"port": 0, "forward_port": 0, "admin_port": 0}
    assert GatewayConfig.model_validate(anywhere).places == ()


def test_a_prefix_is_the_name_by_default() -> None:
    config = GatewayConfig.model_validate(
        {"routes": [{"name": "openai", "upstream": "https://api.openai.com/base/"}]}
    )
    assert config.routes[0].prefix == "/openai"
    target = Upstream.parse(config.routes[0].choices[0].url)
    assert target == Upstream("https", "api.openai.com", 443, "/base")
    assert target.authority == "api.openai.com"
    assert GatewayConfig.model_validate_json(config.model_dump_json()) == config


def test_credentials_come_from_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_KEY", " sk-1\n")
    assert CredentialSource(env="SOME_KEY").header_value() == "Bearer sk-1"
    assert CredentialSource(env="SOME_KEY", header="x-api-key").header_value() == "sk-1"
    (tmp_path / "key").write_text("sk-2\n")
    assert CredentialSource(file=tmp_path / "key", scheme="Key").header_value() == "Key sk-2"
    with pytest.raises(ConfigurationError, match="OTHER_KEY is empty"):
        CredentialSource(env="OTHER_KEY").header_value()
    with pytest.raises(ConfigurationError, match="cannot read file"):
        CredentialSource(file=tmp_path / "none").header_value()
