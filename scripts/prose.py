"""Counts turns of phrase that docs/style.md advises against.

    python scripts/prose.py [--lines] [PATH ...]

Reads Markdown without its code blocks, and texts and comments of Python files. A pattern is a
symptom: rewrite the sentence, and do not only swap the word. `tests/unit/test_prose.py` compares
the counts with `[tool.prose]` in pyproject.toml.
"""

import argparse
import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS = 25
PATTERNS = {
    name: re.compile(pattern)
    for name, pattern in {
        "a clause instead of a noun": r"(?:^|[.;:] )(?:What|Who|Whoever|Whatever) (?![^.]*\?)[a-z]",
        "programs that speak": r"\b(?:says?|tells?|(?:is|are|was|were) told)\b",
        "that of, those of": r"\b(?:that|those) of\b",
        "of its own": r"\bof (?:its|their|one's|your|our) own\b",
        "beside": r"\bbesides?\b(?=[ .,;])",
        "goes on": r"\b(?:go|goes|going|went) on\b(?! (?:to|the))",
        "in place of": r"\bin (?:the )?place of\b",
        "anew": r"\banew\b",
        "is due": r"\b(?:is|are|was|were) due\b",
        "came of": r"\b(?:come|comes|came) of\b",
        "is no": r"\b(?:is|are|was|were) (?:no|none)\b(?! (?:longer|more|less|matter))",
        "so many": r"\bso (?:many|much)\b(?! (?:that|as))",
        "nobody": r"\b(?:somebody|nobody|anybody)\b",
        "as it is": r"\bas (?:it is|they are)\b",
        "for certain": r"\bfor certain\b",
        "of which": r"\bof which\b",
    }.items()
}

Text = tuple[int, str]


def texts_of(path: Path) -> Iterator[Text]:
    """Yields the texts of a file for people, each with its line number."""
    source = path.read_text(encoding="utf-8")
    yield from _of_markdown(source) if path.suffix == ".md" else _of_python(source)


def _of_markdown(source: str) -> Iterator[Text]:
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "`code`", line).strip()


def _of_python(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line.strip()
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?:^|\s)# (.+)", line):
            yield number, comment[1]


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yields line number, rule and text of each violation."""
    for number, text in texts_of(path):
        # The rules quote what they are against.
        if path.name == Path(__file__).name or (path.name == "style.md" and text.startswith("|")):
            continue
        for rule, pattern in PATTERNS.items():
            for _ in pattern.finditer(text):
                yield number, rule, text


def long_sentences(path: Path) -> list[str]:
    """Returns the sentences of a Markdown file with more than 25 words, tables left out."""
    blocks: list[str] = [""]
    for _, text in _of_markdown(path.read_text(encoding="utf-8")):
        if not text or text[0] in "#|" or re.match(r"[-*] |\d+\. ", text):
            blocks.append("")
        if text and text[0] not in "#|":
            blocks[-1] += f" {text}"
    sentences = (part for block in blocks for part in re.split(r"(?<=[.!?:;]) +", block))
    return [part for part in sentences if len(part.split()) > MOST_WORDS]


def tracked(paths: Sequence[str]) -> list[Path]:
    """Returns the files under version control that match any of the paths, as git reads them."""
    done = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = (ROOT / name for name in done.stdout.splitlines())
    return [path for path in files if path.suffix in (".md", ".py") and path.exists()]


def main() -> None:
    """Prints the number of violations in files, and with `--lines` each of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders (default: all)")
    parser.add_argument("--lines", action="store_true", help="print each violation")
    options = parser.parse_args()
    found = words = 0
    for path in tracked(options.paths):
        words += sum(len(text.split()) for _, text in texts_of(path))
        for number, rule, text in findings(path):
            found += 1
            if options.lines:
                print(f"{path.relative_to(ROOT)}:{number}: {rule}: {text[:120]}")
        if path.suffix == ".md" and options.lines:
            for sentence in long_sentences(path):
                print(f"{path.relative_to(ROOT)}: over {MOST_WORDS} words:{sentence[:120]}")
    print(f"{found} in {words} words: {1000 * found / max(words, 1):.2f} per 1,000 words")


if __name__ == "__main__":
    main()
