"""Builds the documentation's site: guide, notes and the reference, with Sphinx, into docs-out/html.

The pages are copied to docs-out/source first, where the reference is written beside them. Links of
the sources that leave the site become text, those that lead nowhere are errors; afterwards all
links and anchors of the built pages are followed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .entries import Reference
from .render import render
from .signatures import ROOT

#: Files outside docs that are pages too.
PROJECT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)")
PICTURES = (".svg", ".png")


def places(root: Path) -> dict[Path, Path]:
    """Files of the repository that are on the site, and where."""
    docs = root / "docs"
    found = {root / name: Path("project") / name for name in PROJECT if (root / name).exists()}
    for path in sorted(docs.rglob("*")):
        below = path.relative_to(docs)
        if path.suffix in (".md", *PICTURES) and below.parts[0] not in ("reference", "site"):
            notes = len(below.parts) == 1 and path.suffix == ".md"
            found[path] = Path("notes") / below if notes else below
    for path in sorted((root / "examples").glob("*.py")):
        found[path] = Path("examples") / f"{path.stem}.md"
    found[docs / "site" / "index.md"] = Path("index.md")
    found[docs / "site" / "conf.py"] = Path("conf.py")
    return found


def relinked(text: str, path: Path, at: dict[Path, Path], broken: list[str]) -> str:
    """A page with its links adapted to where files are on the site."""
    here = at[path].parent

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / found[2]))
        if not target.exists():
            broken.append(f"{path}: {found[2]} does not exist")
        reference = ROOT / "docs" / "reference"
        if target in at:
            to = at[target]
        elif target.parent == reference and target.suffix == ".md":
            # The site has the reference in the other markup.
            to = Path("reference") / f"{target.stem}.rst"
        else:
            return found[1] if found[1].startswith("`") else f"`{found[1]}`"
        return f"[{found[1]}]({os.path.relpath(to, here)}{found[3] or ''})"

    return LINK.sub(link, text)


def example(path: Path) -> str:
    """The page of an example: its docstring, the pictures of a full run, its source."""
    _, doc, source = path.read_text().split('"""', 2)
    title, _, rest = doc.strip().partition("\n\n")
    pictures = sorted((ROOT / "docs" / "examples").glob(f"{path.stem}*.svg"))
    shown = "\n\n".join(f"![{picture.stem}]({picture.name})" for picture in pictures)
    return (
        f"# {title.rstrip('.')}\n\n{rest}\n\n    python examples/{path.name}\n\n{shown}\n\n"
        f"## Source\n\n```python\n{source.strip()}\n```\n"
    )


def listed(text: str, at: dict[Path, Path]) -> str:
    """The first page with the guide's pages that there are; ``guide/...`` stands for the others."""
    there = sorted(str(to.with_suffix("")) for to in at.values() if to.parts[0] == "guide")
    named = re.findall(r"^guide/[\w-]+$", text, re.M)
    others = [page for page in there if page not in named]
    lines = [line for line in text.split("\n") if line not in named or line in there]
    return "\n".join(lines).replace("guide/...", "\n".join(others))


def write(path: Path, text: str) -> None:
    """Writes a file unless it holds that already: Sphinx reads anew what has changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def stage(source: Path) -> list[str]:
    """Writes the sources of the site; links that lead nowhere."""
    at = places(ROOT)
    broken: list[str] = []
    written = set()
    for path, to in at.items():
        written.add(source / to)
        if path.suffix in PICTURES:
            (source / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, source / to)
        else:
            text = example(path) if path.parent == ROOT / "examples" else path.read_text()
            # The first page and the settings are written for the site.
            own = path.parent == ROOT / "docs" / "site"
            if own:
                text = listed(text, at)
            if path.suffix == ".md":
                text = relinked(text, path, at, broken)
            write(source / to, text)
    for name, text in render(Reference()).items():
        written.add(source / "reference" / f"{name}.rst")
        write(source / "reference" / f"{name}.rst", text)
    for path in source.rglob("*"):
        if path.is_file() and path not in written:
            path.unlink()
    return broken


class _Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps what the tag defines and where it leads."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_links(html: Path) -> list[str]:
    """Links of built pages to files or anchors that are not there."""
    pages: dict[Path, _Page] = {}
    for path in html.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text())
    found: list[str] = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                path
                if not parts.path
                else Path(os.path.normpath(path.parent / unquote(parts.path)))
            )
            anchor = unquote(parts.fragment)
            if not target.exists():
                found.append(f"{path.relative_to(html)}: {link} leads nowhere")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                found.append(f"{path.relative_to(html)}: {link} names no anchor")
    return found


def build(out: Path) -> int:
    """Builds the site below a folder; the exit status."""
    from sphinx.cmd.build import main

    source, html = out / "source", out / "html"
    broken = stage(source)
    status = (
        0
        if broken
        else main(["-q", "-W", "--keep-going", "-j", "auto", "-b", "html", str(source), str(html)])
    )
    broken += [] if status else broken_links(html)
    if broken:
        print("\n".join(broken), file=sys.stderr)
    if status or broken:
        return 1
    print(f"The documentation is at {(html / 'index.html').resolve()}")
    return 0
