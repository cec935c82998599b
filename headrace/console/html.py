"""Pages as HTML: templates that escape whatever they show, and show what redaction wrote as such."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from governance.redact.own_marks import own_marks
from governance.redact.reversible import SEALED
from headrace.app.output import cell, printable
from headrace.console.assets import SCRIPTS, address, integrity
from headrace.services.lake_report import ago, size


@cache
def _marks() -> re.Pattern[str]:
    return re.compile(f"{own_marks({}).pattern}|{re.sub(r'\((?!\?)', '(?:', SEALED.pattern)}")


def marked(text: Any) -> Markup:
    """Return a text for a page: each mark of redaction stands out, and nothing turns its direction."""
    shown = printable(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))
    parts: list[Markup] = []
    at = 0
    for found in _marks().finditer(shown):
        parts.append(escape(shown[at : found.start()]))
        mark = Markup('<mark title="redacted">{}</mark>')
        parts.append(mark.format(found[0]))
        at = found.end()
    parts.append(escape(shown[at:]))
    return Markup("").join(parts)


def shown(value: Any) -> str:
    """Return a value as the text of a table's cell."""
    return printable(cell(value))


def moment(value: str | None) -> str:
    """Return a time of the data for the eye."""
    return "–" if value is None else f"{value[:10]} {value[11:19]}"


def pretty(value: Any) -> str:
    """Return JSON with a line for each field; a text that is none as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
        except RecursionError:
            return "too deep to be shown"
    return json.dumps(value, ensure_ascii=False, indent=1)


@pass_context
def link(context: Context, path: str, **changes: Any) -> str:
    """Return the URL of a page, in the data of the tenant that was chosen."""
    chosen = {"tenant": context["chosen_tenant"]} | changes
    return _with(path, chosen)


@pass_context
def again(context: Context, **changes: Any) -> str:
    """Return the URL of this very page with some parameters changed; a null takes one away."""
    return _with(context["here"], {**context["query"], **changes})


@pass_context
def twin(context: Context) -> str:
    """Return the URL of this very page as JSON."""
    return _with(f"{context['here']}.json", context["query"])


def _with(path: str, parameters: Mapping[str, Any]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return quote(path, safe="/") + (f"?{urlencode(given)}" if given else "")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("headrace.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "marked": marked, "shown": shown, "plain": printable, "moment": moment, "pretty": pretty, "size": size,
        "ago": ago,
    }  # fmt: skip
    environment.filters.update(filters)
    environment.globals.update(link=link, again=again, twin=twin)
    environment.globals.update(address=address, integrity=integrity, scripts=SCRIPTS)
    return environment


def render(template: str, **values: Any) -> bytes:
    """Return a page; characters that no text may hold are replaced."""
    return _environment().get_template(template).render(**values).encode("utf-8", "replace")
