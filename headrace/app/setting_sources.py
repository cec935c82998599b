"""Sources of settings: flags over environment (``HEADRACE_…``) over ``headrace.yaml`` over defaults.

Each value knows where it came from. A setting ``lake.path`` has the environment variable
``HEADRACE_LAKE_PATH``; lists and mappings in one are written as in YAML.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from headrace.app.home import Home
from headrace.app.settings import DEFAULT_HOME, Settings
from trajectory.documents.source import SourceDocument, parse_documents, read_documents
from trajectory.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SettingSource:
    """One setting, its value, and where it came from."""

    name: str
    value: Any
    source: str
    """``flag`` | ``env NAME`` | the settings file | ``default``"""


def load_settings(*, home: Path | None = None) -> Settings:
    """Return the settings of this run.

    Args:
        home: the ``--home`` flag, if it was given.

    Raises:
        ConfigurationError: a file or value is wrong; the text names it and what is valid.
    """
    return _load(home)[0]


def explain_settings(*, home: Path | None = None) -> list[SettingSource]:
    """Return every setting with its value and source, for ``headrace config show``."""
    settings, sources = _load(home)
    dumped = settings.model_dump(mode="json")
    return [
        SettingSource(name, _get(dumped, name.split(".")), sources.get(name, "default"))
        for name in _leaf_names(Settings)
    ]


def _load(home: Path | None) -> tuple[Settings, dict[str, str]]:
    sources: dict[str, str] = {}
    root = home or Path(os.environ.get("HEADRACE_HOME") or DEFAULT_HOME)
    if home is not None:
        sources["home"] = "flag"
    elif os.environ.get("HEADRACE_HOME"):
        sources["home"] = "env HEADRACE_HOME"
    file = _settings_file(root)
    source = _read_file(file) if file else None
    raw = source.value if source else {}
    for name in _leaf_names(Settings):
        if file and name != "home" and _get(raw, name.split(".")) is not None:
            sources[name] = str(file)
        variable = environment_variable(name)
        text = os.environ.get(variable)
        if text is not None and name != "home":
            _set(raw, name.split("."), _read_variable(variable, text))
            sources[name] = f"env {variable}"
    raw["home"] = str(root.absolute())
    try:
        settings = Settings.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(_describe(error, source, sources)) from None
    if not settings.lake.path:
        lake = settings.lake.model_copy(update={"path": str(settings.home / "lake")})
        settings = settings.model_copy(update={"lake": lake})
    if "policy" in settings.policy.four_eyes:
        in_force = str(Home(settings.home).policy_in_force)
        policy = settings.policy.model_copy(update={"bundle": in_force})
        settings = settings.model_copy(update={"policy": policy})
        sources["policy.bundle"] = "policy.four_eyes"
    return settings, sources


def environment_variable(name: str) -> str:
    """Return the environment variable of a setting, ``lake.path`` → ``HEADRACE_LAKE_PATH``."""
    return "HEADRACE_" + name.replace(".", "_").upper()


_RENAMED = {"door": "sql_server"}
"""Settings of earlier versions, and what they are called now."""
_OTHER_VARIABLES = frozenset(
    {
        "HEADRACE_HOME",
        "HEADRACE_CONFIG",
        "HEADRACE_MASTER_KEY",
        "HEADRACE_KEY",
        "HEADRACE_TORCH",
        "HEADRACE_PROCESS",
    }
)


def unknown_variables() -> dict[str, str | None]:
    """Return the ``HEADRACE_…`` variables that are no setting, each with the nearest that is one.

    They are no error: container platforms inject variables named after a service of theirs.
    """
    known = {environment_variable(name) for name in _leaf_names(Settings)} | _OTHER_VARIABLES
    unknown = sorted(n for n in os.environ if n.startswith("HEADRACE_") and n not in known)
    nearest = {name: difflib.get_close_matches(_as_now(name), known, n=1) for name in unknown}
    return {name: (found[0] if found else None) for name, found in nearest.items()}


def _as_now(variable: str) -> str:
    """Return what a variable is called now, where its section was renamed."""
    for old, new in _RENAMED.items():
        before = environment_variable(old) + "_"
        if variable.startswith(before):
            return environment_variable(new) + "_" + variable.removeprefix(before)
    return variable


def _settings_file(root: Path) -> Path | None:
    named = os.environ.get("HEADRACE_CONFIG")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ConfigurationError(f"HEADRACE_CONFIG names {path}, which is not a file.")
        return path
    path = Home(root).settings_file
    return path if path.is_file() else None


def _read_file(path: Path) -> SourceDocument | None:
    documents = read_documents(path)
    if not documents:
        return None
    if not isinstance(documents[0].value, dict):
        raise ConfigurationError(documents[0].error((), "settings must be a mapping of sections"))
    return documents[0]


def _read_variable(name: str, text: str) -> Any:
    documents = parse_documents(text, name)
    return documents[0].value if documents else ""


def _leaf_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _leaf_names(annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _get(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _set(value: dict[str, Any], path: list[str], leaf: Any) -> None:
    for name in path[:-1]:
        inner = value.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        value = inner
    value[path[-1]] = leaf


def _describe(
    error: ValidationError, source: SourceDocument | None, sources: Mapping[str, str]
) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in problem["loc"])
        where = sources.get(name)
        if source and where in (None, source.file):
            where = f"{source.file}:{source.line_of(problem['loc'])}"
        text = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            text = _unknown(problem["loc"])
        lines.append(f"{where or 'settings'}: {name}: {text}")
    return "\n".join(lines)


def _unknown(place: tuple[int | str, ...]) -> str:
    """Say that there is no such setting, and what stands at its place that looks like it."""
    if (now := _RENAMED.get(".".join(map(str, place)))) is not None:
        return f"there is no such setting any more; write {now}"
    model: Any = Settings
    for part in place[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    near = difflib.get_close_matches(str(place[-1]), model.model_fields, n=1)
    if near:
        return f"there is no such setting; did you mean {near[0]}?"
    return f"no such setting. Valid: {', '.join(model.model_fields)}"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the section that an annotation names, also within a list or a choice."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(inner) for inner in get_args(annotation))
    return next((model for model in found if model is not None), None)
