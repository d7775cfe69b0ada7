"""Extends MkDocs: pages generated from code and from the README, links, and the navigation.

Links that leave the site point to the repository if its name is known.
"""

import os
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))
import reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BLOB = "https://github.com/{}/blob/main/"
NOTEBOOK = "examples/races.ipynb"
_LINK = re.compile(r"(?<!\!)\[([^\]\n]*)\]\(([^)\s:]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the repository from the environment, and expands `FOLDER/*` in the navigation."""
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        config.repo_url = f"https://github.com/{repository}"
        config.repo_name = repository
    config.nav = [_filled(item) for item in config.nav or []]
    return config


def _filled(item: Any) -> Any:
    if isinstance(item, dict):
        return {title: _filled(below) for title, below in item.items()}
    if isinstance(item, list):
        return [entry for below in item for entry in _listed(_filled(below))]
    return item


def _listed(item: Any) -> list[Any]:
    if isinstance(item, str) and item.endswith("/*"):
        return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob(f"{item}.md"))
    return [item]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages."""
    made = {"index.md": _home(), "changelog.md": (ROOT / "CHANGELOG.md").read_text("utf-8")}
    made |= {NOTEBOOK.replace(".ipynb", ".md"): _notebook(DOCS / NOTEBOOK)}
    for name, text in {**made, **reference.pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def _home() -> str:
    """Returns the front page: the README, with cards below its picture."""
    # `on_page_markdown` rewrites links, but not images.
    text = (ROOT / "README.md").read_text("utf-8").replace("](docs/screenshots/", "](screenshots/")
    # The picture is cropped, so that the cards are on the first screen.
    picture = re.search(r"^!\[.*\)$", text, re.MULTILINE)
    if picture is None:
        raise ValueError("README.md has no picture; the front page needs one above its cards")
    head = f"{text[: picture.end()]}{{ .first-screen }}\n\n"
    hidden = "---\nhide:\n  - navigation\n  - toc\n---\n\n"
    cards = (ROOT / "scripts/site/home.md").read_text("utf-8")
    return hidden + head + cards + text[picture.end() :]


def _notebook(path: Path) -> str:
    """Returns a notebook as Markdown: its texts, its code, and the stored outputs."""
    title, *cells = nbformat.read(path, as_version=4).cells
    said = f"*This page is a notebook: [{path.name}]({path.name}).*"
    return "\n\n".join([title.source, said, *(part for cell in cells for part in _parts(cell))])


def _parts(cell: Any) -> list[str]:
    if cell.cell_type == "markdown":
        return [cell.source]
    return [f"```python\n{cell.source}\n```", *(_output(output.data) for output in cell.outputs)]


def _output(data: Any) -> str:
    """Returns a stored output; HTML in one line, since Markdown ends it at an empty line."""
    if html := data.get("text/html"):
        return f'<div class="output">{"".join(line.strip() for line in html.splitlines())}</div>'
    return f"```text\n{data['text/plain']}\n```"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links, which are written for GitHub, for the site."""
    name = page.file.src_uri
    page.meta.setdefault("search", {"boost": _boost(name)})
    source = _source(name)
    pages = {("README.md", ""): "index.md", ("CHANGELOG.md", ""): "changelog.md"}

    def rewritten(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, _, anchor = target.partition("#")
        # Anchors in generated pages, and in the same document.
        if not path and source == f"docs/{name}":
            return link[0]
        whole = (
            posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
        )
        shown = pages.get((whole, anchor)) or pages.get((whole, ""))
        if whole.startswith("docs/"):
            page_there = files.get_file_from_path(whole.removeprefix("docs/"))
            if page_there is not None and not page_there.inclusion.is_excluded():
                shown = whole.removeprefix("docs/") + (f"#{anchor}" if anchor else "")
        if shown:
            return f"[{text}]({get_relative_url(shown, name) if '/' in name else shown})"
        if config.repo_url and whole.startswith("../../"):
            return f"[{text}]({config.repo_url}/{whole.removeprefix('../../')})"
        if not (ROOT / whole).exists() and not whole.startswith("../../"):
            # MkDocs reports the problem.
            return link[0]
        if config.repo_url:
            return (
                f"[{text}]({BLOB.format(config.repo_name)}{whole}{'#' + anchor if anchor else ''})"
            )
        return text

    return "".join(
        part if part.startswith("```") else _LINK.sub(rewritten, part)
        for part in re.split(r"(^```.*?^```)", markdown, flags=re.DOTALL | re.MULTILINE)
    )


def _boost(name: str) -> float:
    """Returns the weight of a page in the search: guides before design notes."""
    folder = name.partition("/")[0]
    return {"getting-started": 4.0, "guides": 3.0, "migration": 2.0, "design": 0.2}.get(folder, 1.0)


def _source(name: str) -> str:
    """Returns the path of a page's source document, relative to the checkout."""
    return {"index.md": "README.md", "changelog.md": "CHANGELOG.md"}.get(name, f"docs/{name}")
