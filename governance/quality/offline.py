"""Data Docs of Great Expectations made readable without other hosts: their references are taken out.

Its pages lean on styles and scripts of other hosts, also for the tables of the index. What is left
gets a plain style of its own, the index a list of its pages.
"""

import re
from html import escape
from pathlib import Path

_ELEMENTS = re.compile(
    r"<script\b[^>]*\bsrc\s*=\s*[\"']?(?:https?:)?//[^>]*>\s*</script>"
    r"|<(?:link|img|iframe)\b[^>]*\b(?:href|src)\s*=\s*[\"']?(?:https?:)?//[^>]*>",
    re.IGNORECASE,
)
_IMPORTS = re.compile(r"@import\s+url\([^)]*//[^)]*\)\s*;?", re.IGNORECASE)
_IMAGES = re.compile(r"url\(\s*[\"']?(?:https?:)?//[^)]*\)", re.IGNORECASE)
_FOOTERS = re.compile(r"<footer\b.*?</footer>", re.IGNORECASE | re.DOTALL)
"""They advertise, and nothing else."""
_FILTERS = re.compile(r"<button\b[^>]*>\s*Clear Filters\s*</button>", re.IGNORECASE)
_STYLE = (
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
    "color:#222}table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.3rem .6rem;"
    "text-align:left;vertical-align:top;border-bottom:1px solid #ddd}"
    ".text-success::before{content:'\\2713 met';color:#1b6e20}"
    ".text-danger::before{content:'\\2717 not met';color:#a40000}"
    ".text-warning::before{content:'! not told';color:#8a6d00}</style></head>"
)


def offline(page: str) -> str:
    """Return a page or style without scripts, styles and images of other hosts; links stay."""
    for found in (_ELEMENTS, _IMPORTS):
        page = found.sub("", page)
    return _IMAGES.sub("none", page)


def make_readable(folder: Path) -> None:
    """Rewrite the pages of Data Docs in place, so that they load nothing and can be read."""
    pages = sorted(path for path in folder.rglob("*.html") if path.name != "index.html")
    listed = "".join(
        f'<li><a href="{escape(str(path.relative_to(folder)))}">{escape(_called(path, folder))}</a>'
        for path in reversed(pages)
    )
    for path in (*folder.rglob("*.html"), *folder.rglob("*.css")):
        text = offline(path.read_text(encoding="utf-8"))
        if path.suffix == ".html":
            text = _FOOTERS.sub("", _FILTERS.sub("", text)).replace("</head>", _STYLE, 1)
        if path == folder / "index.html":
            text = text.replace("</body>", f"<ul>{listed}</ul></body>", 1)
        path.write_text(text, encoding="utf-8")


def _called(path: Path, folder: Path) -> str:
    """Return what to call a page in a list."""
    kind, *rest = path.relative_to(folder).parts
    when = f", {rest[-2]}" if len(rest) > 2 else ""
    return f"{'Results' if kind == 'validations' else 'Expectations'} of {rest[0].removesuffix('.html')}{when}"
