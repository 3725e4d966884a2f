"""What the site needs beyond the pages: the examples as pages, and code fences without the suite's marks."""

import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
TITLE = re.compile(r'^"""(.*?)\n', re.DOTALL)


def _source(path):
    """A page that shows a program."""
    code = path.read_text()
    return f"# {path.name}\n\n{TITLE.match(code)[1]}\n\n```python\n{code}```\n"


def on_files(files, config):
    """Add a page for each example, and one that lists them."""
    paths = sorted((ROOT / "examples").glob("*.py"))
    rows = [f"| [{path.name}]({path.stem}.md) | {TITLE.match(path.read_text())[1]} |" for path in paths]
    pages = {f"examples/{path.stem}.md": _source(path) for path in paths}
    pages["examples/index.md"] = "\n".join(["# Examples", "", "| program | what it does |", "|---|---|", *rows, ""])
    generated = [File.generated(config, name, content=text) for name, text in pages.items()]
    return Files([*files, *generated])


def on_page_markdown(markdown, page, **_):
    """Links to examples lead to their pages; ```python no-run and ```text about are marks for the suite."""
    markdown = re.sub(r"^```(python|text) (?:no-run|about)$", r"```\1", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./examples/(\w+)\.py\)", r"](\1examples/\2.md)", markdown)
    return re.sub(r"\]\(((?:\.\./)*)\.\./examples\)", r"](\1examples/index.md)", markdown)
