"""The deployment files name only settings, commands and ports that exist."""

import re
import tomllib
from pathlib import Path

import yaml

from headrace.app.setting_sources import environment_variable, explain_settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OTHERS = {"HEADRACE_HOME", "HEADRACE_CONFIG", "HEADRACE_MASTER_KEY"}


def files() -> list[Path]:
    return [path for path in DEPLOY.rglob("*") if path.is_file()]


def test_every_variable_is_a_setting() -> None:
    known = {environment_variable(setting.name) for setting in explain_settings()} | OTHERS
    for path in files():
        named = set(re.findall(r"\bHEADRACE_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert named <= known, path.name


def test_every_document_is_valid_yaml() -> None:
    for path in files():
        if path.suffix == ".yaml":
            assert list(yaml.safe_load_all(path.read_text(encoding="utf-8"))), path.name


def test_ports_are_those_of_the_defaults() -> None:
    settings = {setting.name: setting.value for setting in explain_settings()}
    known = {settings[f"gateway.{name}"] for name in ("port", "forward_port", "admin_port")}
    assert settings["gateway.transparent_port"] is None  # off by default; 8483 is what we suggest
    known |= {
        8483,
        settings["sql_server.port"],
        settings["sql_server.http_port"],
        settings["serve.port"],
    }
    for path in files():
        for port in re.findall(r"\b84\d\d\b|\b80\d\d\b", path.read_text(encoding="utf-8")):
            assert int(port) in known, path.name


def test_the_images_hold_every_package_of_the_wheel() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    lines = (DEPLOY / "Containerfile").read_text(encoding="utf-8").splitlines()
    assert [
        line for line in (f"COPY {name} {name}" for name in packages) if line not in lines
    ] == []
