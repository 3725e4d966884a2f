"""What the site needs beyond the pages: the examples as pages, and code fences without the suite's marks."""

import ast
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
MARK = re.compile(r"^```(python|text) (?:no-run|about)$", re.MULTILINE)


def _story(path):
    """The title and the text of a program's docstring, without the line that says how to run it."""
    title, _, text = ast.get_docstring(ast.parse(path.read_text())).partition("\n\n")
    return title, text.rpartition("\n\n")[0]


def _page(path):
    """A page that tells what a program does, and shows what it prints and the program itself."""
    title, text = _story(path)
    heading = f"# {title.rstrip('.')}\n\n{text}\n"
    prints = f"```console\n$ python examples/{path.name}\n{_output(path)}```\n"
    return f"{heading}\n## What it prints\n\n{prints}\n## The program\n\n```python\n{path.read_text()}```\n"


def _output(path):
    """What the program printed; tests/test_examples.py compares and refreshes it."""
    return (EXAMPLES / "output" / f"{path.stem}.txt").read_text()


def on_files(files, config):
    """Add a page for each example, and one that lists them."""
    paths = sorted(EXAMPLES.glob("*.py"))
    rows = [f"| [{path.name}]({path.stem}.md) | {_story(path)[0]} |" for path in paths]
    pages = {f"examples/{path.stem}.md": _page(path) for path in paths}
    pages["examples/index.md"] = "\n".join(["# Examples", "", "| program | what it does |", "|---|---|", *rows, ""])
    generated = [File.generated(config, name, content=text) for name, text in pages.items()]
    return Files([*files, *generated])


def on_page_markdown(markdown, page, **_):
    """Links to examples lead to their pages; ```python no-run and ```text about are marks for the suite."""
    markdown = MARK.sub(r"```\1", markdown)
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./examples/(\w+)\.py\)", r"](\1examples/\2.md)", markdown)
    return re.sub(r"\]\(((?:\.\./)*)\.\./examples\)", r"](\1examples/index.md)", markdown)
