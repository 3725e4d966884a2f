"""What the site needs beyond the pages: pages of examples, the reference by namespace, and fences
without the suite's marks.
"""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

from mkdocs.structure.files import File, Files

import decibo

sys.path.insert(0, str(Path(__file__).parent))
import docstrings

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
STUDIES = ROOT / "studies"
# links of studies to programs and folders, which are not on the site
UNPUBLISHED = re.compile(
    r"(?<!!)\[([^\]]*)\]\((?!http|#)(?![^)]*\.(?:md|csv|json|png)[#)])[^)\s]+\)"
)
MARK = re.compile(r"^```(python|text) (?:no-run|about)$", re.MULTILINE)


def on_files(files, config):
    """Add the pages that are made from programs and docstrings."""
    pages = _examples() | _reference()
    generated = [File.generated(config, name, content=text) for name, text in pages.items()]
    return Files([*files, *generated, *_studies(config)])


def on_page_markdown(markdown, page, **_):
    """Links to examples and studies lead to their pages; ```python no-run and ```text about are marks for the
    suite.
    """
    markdown = MARK.sub(r"```\1", markdown)
    if page.file.src_uri == "reference.md":
        markdown = markdown.replace("REFERENCE\n", _overview())
    markdown = re.sub(
        r"\]\(((?:\.\./)*)\.\./examples/([\w/]+)\.py\)", r"](\1examples/\2.md)", markdown
    )
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./examples\)", r"](\1examples/index.md)", markdown)
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./studies/([\w/]+\.md)", r"](\1studies/\2", markdown)
    if page.file.src_uri.startswith("studies/"):
        markdown = re.sub(r"\]\(((?:\.\./)+)docs/", r"](\1", markdown)
        markdown = UNPUBLISHED.sub(r"\1", markdown)
    return markdown


# Studies: proofs and results, with their figures; they lie beside the library, not in docs/


PUBLISHED = (
    "README.md",
    "*/[!n]*.md",
    "results/*.json",
    "results/*/*.csv",
    "results/figures/*.png",
)


def _studies(config):
    paths = [path for kind in PUBLISHED for path in STUDIES.glob(kind)]
    return [
        File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        for path in sorted(paths)
    ]


# Examples: what a program does, what it prints, and the program itself


def _examples():
    paths = sorted(EXAMPLES.glob("*.py"))
    rows = [f"| [{path.name}]({path.stem}.md) | {_story(path)[0]} |" for path in paths]
    pages = {f"examples/{path.stem}.md": _program(path) for path in paths}
    pages |= {
        f"examples/{path.parent.name}/{path.stem}.md": _program(path)
        for path in EXAMPLES.glob("*/*.py")
    }
    pages["examples/index.md"] = "\n".join(
        ["# Examples", "", "| program | what it does |", "|---|---|", *rows, ""]
    )
    return pages


def _story(path):
    """The title and the text of a program's docstring, without the line that says how to run it."""
    title, _, text = ast.get_docstring(ast.parse(path.read_text())).partition("\n\n")
    return title, text.rpartition("\n\n")[0]


def _program(path):
    title, text = _story(path)
    heading = f"# {title.rstrip('.')}\n\n{text}\n"
    return f"{heading}{_printed(path)}\n## The program\n\n```python\n{path.read_text()}```\n"


def _printed(path):
    """What the program printed, if that is kept; tests/test_examples.py compares and refreshes
    it."""
    output = EXAMPLES / "output" / f"{path.stem}.txt"
    if not output.exists():
        return ""
    return f"\n## What it prints\n\n```console\n$ python examples/{path.name}\n{output.read_text()}```\n"


# Reference: a page for each namespace, on which mkdocstrings puts signatures and docstrings


def namespaces():
    """The public namespaces: decibo itself, and the modules that it exports."""
    values = {name: getattr(decibo, name) for name in decibo.__all__}
    modules = {
        f"decibo.{name}": value for name, value in values.items() if isinstance(value, ModuleType)
    }
    return {"decibo": decibo} | modules


def _reference():
    return {
        f"reference/{path}.md": _namespace(path, module) for path, module in namespaces().items()
    }


def _namespace(path, module):
    """One directive for each public name: `__all__` decides, not where something is written."""
    source = module.__name__  # decibo.consensus is decibo.algorithm.consensus
    table = _catalogue() if path == "decibo.methods" else ""
    entries = [f"::: {source}.{name}\n" for name in _names(module)]
    about = docstrings.markdown(module.__doc__ or "")
    return "\n".join([f"# {path}", "", about, "", table, *entries])


def _names(module):
    return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]


def _overview():
    """The namespaces and their names, each with a link."""
    rows = []
    for path, module in namespaces().items():
        source = module.__name__
        links = [f"[`{name}`](reference/{path}.md#{source}.{name})" for name in _names(module)]
        rows.append(f"## [{path}](reference/{path}.md)\n\n{_first(module)}\n\n{', '.join(links)}\n")
    return "\n".join(rows)


def _catalogue():
    """The methods, and how well the rule of each is known."""
    rows = [
        f"| [`{name}`](#decibo.methods.{name}) | {_first(method)} | {method.provenance} |"
        for name, method in decibo.CATALOG.items()
        if name in decibo.methods.__all__
    ]
    return "\n".join(["| method | what it is | its rule |", "|---|---|---|", *rows, ""])


def _first(value):
    """The first sentence of a docstring, as Markdown."""
    text = docstrings.markdown(value.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return re.match(r".*?(?<!et al)[.](?=\s|$)|.*", text)[0]
