"""What the site needs beyond the pages: pages of examples and docstrings, and fences without the
suite's marks.
"""

import ast
import inspect
import re
from enum import Enum
from pathlib import Path
from types import ModuleType

from mkdocs.structure.files import File, Files

import decibo

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
STUDIES = ROOT / "studies"
MARK = re.compile(r"^```(python|text) (?:no-run|about)$", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)([^`]*)` \|", re.MULTILINE)
NAME = r"`?[A-Za-z_]\w*(?:\([^)]*\))?`?"
MEANING = re.compile(rf"^({NAME}(?:, {NAME})*) {{2,}}(\S.*)$")


def on_files(files, config):
    """Add the pages that are made from programs and docstrings."""
    pages = _examples() | {
        f"reference/{path}.md": _namespace(path, module) for path, module in _modules().items()
    }
    generated = [File.generated(config, name, content=text) for name, text in pages.items()]
    return Files([*files, *generated, *_studies(config)])


def on_page_markdown(markdown, page, **_):
    """Links to examples and names lead to their pages; ```python no-run and ```text about are marks
    for the suite.
    """
    markdown = MARK.sub(r"```\1", markdown)
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./studies/([\w/]+\.md)", r"](\1studies/\2", markdown)
    if page.file.src_uri.startswith("studies/"):
        markdown = markdown.replace("](../../docs/", "](../../")
    markdown = re.sub(
        r"\]\(((?:\.\./)*)\.\./examples/([\w/]+)\.py\)", r"](\1examples/\2.md)", markdown
    )
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./examples\)", r"](\1examples/index.md)", markdown)
    return _linked(markdown) if page.file.src_uri == "reference.md" else markdown


# Studies: proofs and results, with their figures; they lie beside the library, not in docs/


def _studies(config):
    paths = [path for kind in ("*/*.md", "results/figures/*.png") for path in STUDIES.glob(kind)]
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


# Docstrings: a page for each namespace, with signatures, what parameters mean, and methods


def _modules():
    """The public namespaces: decibo itself, and those it exports."""
    values = {name: getattr(decibo, name) for name in decibo.__all__}
    modules = {
        f"decibo.{name}": value for name, value in values.items() if isinstance(value, ModuleType)
    }
    return {"decibo": decibo} | modules


def _linked(markdown):
    """The reference with names that lead to their docstrings."""
    parts = re.split(r"^(## decibo[\w.]*)$", markdown, flags=re.MULTILINE)
    linked = parts[:1]
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        path = heading.removeprefix("## ")
        linked += [heading, ROW.sub(lambda match, path=path: _link(match, path), body)]
    return "".join(linked)


def _link(match, path):
    name, rest = match.groups()
    if name not in _modules()[path].__all__:
        return match[0]
    inside = f"{path}.{name}" in _modules()
    target = f"{path}.{name}.md" if inside else f"{path}.md#{name.lower()}"
    return f"| [`{name}`](reference/{target})" + (f"`{rest}` |" if rest else " |")


def _namespace(path, module):
    names = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    entries = [_entry(path, name, getattr(module, name)) for name in names]
    back = "What each of them is for, in a line, is in the [reference](../reference.md)."
    return "\n".join([f"# {path}", "", _text(module), "", back, "", *entries])


def _entry(path, name, value):
    lines = [f"## {name}", ""]
    if callable(value) and not isinstance(value, type(Enum)) and not _plain_error(value):
        lines += ["```python", _signature(f"{path}.{name}", value), "```", ""]
    lines += [
        f"A dictionary of {len(value)} entries, by name."
        if isinstance(value, dict)
        else _text(value),
        "",
    ]
    for member, function in vars(value).items() if isinstance(value, type) else ():
        if inspect.isfunction(function) and not member.startswith("_") and function.__doc__:
            lines += [
                "```python",
                _signature(f".{member}", function),
                "```",
                "",
                _text(function),
                "",
            ]
    return "\n".join(lines)


def _plain_error(value):
    """Whether this is an exception that takes what every exception takes."""
    return (
        isinstance(value, type) and issubclass(value, Exception) and "__init__" not in vars(value)
    )


def _signature(name, value):
    """A call as one would write it, with types; one argument on each line if it is long."""
    signature = inspect.signature(value)
    listed = [
        p for p in signature.parameters.values() if not p.name.startswith("_") and p.name != "self"
    ]
    shown = [_parameter(parameter) for parameter in listed]
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in listed):
        first = [
            n for n, parameter in enumerate(listed) if parameter.kind is parameter.KEYWORD_ONLY
        ][:1]
        for place in first:
            shown.insert(place, "*")
    end = (
        ""
        if isinstance(value, type) or not signature.return_annotation
        else f" -> {_type(signature.return_annotation)}"
    )
    line = f"{name}({', '.join(shown)}){end}"
    return (
        line
        if len(line) <= 100
        else f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){end}"
    )


def _parameter(parameter):
    """`name: type = default`; defaults that are functions or private marks are only hinted at."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    typed = "" if parameter.annotation is parameter.empty else f": {_type(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{stars}{parameter.name}{typed}{re.sub(r'<.*>', '...', default)}"


def _type(annotation):
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _text(value):
    """A docstring as Markdown: `name   meaning` as a table, what is indented as it stands, the rest
    as prose.
    """
    return "\n\n".join(
        _paragraph(part) for part in re.split(r"\n\s*\n", inspect.getdoc(value) or "")
    )


def _paragraph(text):
    lines = text.split("\n")
    if all(line.startswith("    ") for line in lines):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    if MEANING.match(lines[0]):
        return _table(lines)
    return re.sub(r"\n(?=[A-Z]\w+: )", "  \n", _safe(text))


def _table(lines):
    rows = []
    for line in lines:
        match = MEANING.match(line)
        if match is not None:
            rows.append([match[1].replace("`", ""), match[2]])
        else:
            rows[-1][1] += f" {line.strip()}"
    cells = [
        f"| `{name}` | {_safe(meaning).replace('|', chr(92) + '|')} |" for name, meaning in rows
    ]
    return "\n".join(["| name | meaning |", "|---|---|", *cells])


def _safe(text):
    """Prose in which y* and <= mean what they say; pages of the documentation are links."""
    pieces = re.split(r"(`[^`]*`)", text)
    plain = [re.sub(r"([*$<])", r"\\\1", piece).replace("\\<", "&lt;") for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"docs/([\w/-]+\.md)", _document, piece) for piece in plain]
    return "".join(pieces)


def _document(match):
    """A link to a page that a docstring names."""
    return f"[{match[1]}](../{match[1]})" if (ROOT / match[0]).exists() else match[0]
