"""Hooks of the documentation site: README.md is its front page, and linked repository files come along.

Pages are written to be read in the repository, where ``../deploy/compose.yaml`` is a link to a file.
The site holds a copy of each such file below ``files/``. A link to a file that is not there stays as
it is and fails the strict build.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

_ROOT = Path(__file__).resolve().parent.parent
_README = _ROOT / "README.md"
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the front page and every file outside ``docs/`` that a page links to."""
    files.append(File.generated(config, "index.md", content=_for_site(_README)))
    pages = [
        _README,
        *(Path(page.abs_src_path) for page in files.documentation_pages() if page.abs_src_path),
    ]
    brought: set[Path] = set()
    while pages:
        for source in _outside(pages.pop()):
            if source not in brought:
                brought.add(source)
                if source.suffix == ".md":
                    pages.append(source)
                content = _for_site(source) if source.suffix == ".md" else source.read_bytes()
                files.append(File.generated(config, str(_place(source)), content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point a page's links to repository files at their copies."""
    source = page.file.abs_src_path
    return markdown if source is None else _for_site(Path(source))


def _outside(page: Path) -> Iterator[Path]:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target = _target(page, link)
        if target not in (None, _README) and not target.is_relative_to(_ROOT / "docs"):
            yield target


def _for_site(page: Path) -> str:
    """Return the page's text with links as they are on the site."""

    def link(found: re.Match[str]) -> str:
        target = _target(page, found[1])
        return found[1] if target is None else os.path.relpath(_place(target), _place(page).parent)

    return _LINK.sub(link, page.read_text(encoding="utf-8"))


def _place(file: Path) -> PurePosixPath:
    """Return where a file of the repository stands on the site."""
    if file == _README:
        return PurePosixPath("index.md")
    path = PurePosixPath(file.relative_to(_ROOT))
    return path.relative_to("docs") if path.parts[0] == "docs" else "files" / path


def _target(page: Path, link: str) -> Path | None:
    """Return the linked file; None where the repository has none."""
    path = (page.parent / link).resolve()
    if path.is_dir():
        path = path / "README.md"
    return path if path.is_file() and path.is_relative_to(_ROOT) else None
