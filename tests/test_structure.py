"""The house: imports go down only, no fragments, and the habits that keep it readable."""

import ast
import re
from pathlib import Path

import pytest

import decibo

ROOT = Path(decibo.__file__).parent
# Lower layers first. A module may import from its own layer and from those before it.
LAYERS = (
    ("errors", "validate", "pytree", "files", "formatting"),
    ("parallel",),
    ("data",),
    ("problem",),
    ("problems", "network"),
    ("measure",),
    ("algorithm",),
    ("theory",),
    ("networks", "methods"),  # faces: what is found by name
    ("run",),
    ("runs",),
    ("report",),
    ("silo", "sklearn", "integrations"),
    ("cli", "__main__"),
)
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
MODULES = sorted(path for path in ROOT.rglob("*.py") if "templates" not in path.parts)


def name_of(path):
    """The dotted name of a module inside decibo."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


NAMES = {name_of(path) for path in MODULES}


def imports_of(path):
    """(line, module inside decibo) of every import, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert not isinstance(node, ast.ImportFrom), f"{path}: a relative import"
            continue
        for name in names:
            if name.split(".")[0] == "decibo":
                inside = name.removeprefix("decibo").lstrip(".")
                yield node.lineno, inside if inside in NAMES else inside.rpartition(".")[0]


def type_checking_lines(path):
    """The lines of `if TYPE_CHECKING:` blocks."""
    lines = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            lines |= set(range(node.lineno, node.end_lineno + 1))
    return lines


def test_every_room_has_its_layer():
    rooms = {name.split(".")[0] for name in NAMES if name}
    assert rooms == set(HEIGHT)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down_only(path):
    here = name_of(path)
    if not here:  # the front door may use every room
        return
    room = here.split(".")[0]
    typing = type_checking_lines(path)
    for line, module in imports_of(path):
        if line in typing:
            continue
        other = module.split(".")[0]
        if not other:  # decibo itself: only the rooms above everything may use the front door
            assert room in ("cli", "sklearn", "integrations", "__main__"), (
                f"{path}:{line} imports decibo itself"
            )
        else:
            assert HEIGHT[other] <= HEIGHT[room], (
                f"{path}:{line}: {room} imports {other}, which is above it"
            )


def test_no_cycles_between_modules():
    graph = {name_of(path): {module for _, module in imports_of(path)} for path in MODULES}
    graph.pop("")
    done, path = set(), []

    def visit(name):
        if name in done or name not in graph:
            return
        assert name not in path, (
            f"an import cycle: {' -> '.join([*path[path.index(name) :], name])}"
        )
        path.append(name)
        for other in sorted(graph[name]):
            if other != name:
                visit(other)
        path.pop()
        done.add(name)

    for name in sorted(graph):
        visit(name)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_an_idea_and_not_a_fragment(path):
    if path.name not in ("__init__.py", "__main__.py"):
        assert len(path.read_text().splitlines()) >= 40


def parallel_assignments(tree):
    """`a, b = c, d`, which should be two lines unless it swaps."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    yield node


def counts():
    """Lines, modules, uses of Any and parallel assignments of the whole library."""
    texts = [path.read_text() for path in MODULES]
    trees = [ast.parse(text) for text in texts]
    uses = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    return {
        "modules": len(texts),
        "lines": sum(len(text.splitlines()) for text in texts),
        "Any": uses,
        "parallel assignments": sum(len(list(parallel_assignments(tree))) for tree in trees),
    }


def test_the_habits_hold():
    numbers = counts()
    assert 1000 * numbers["modules"] / numbers["lines"] < 7
    assert 1000 * numbers["Any"] / numbers["lines"] < 20
    assert numbers["parallel assignments"] < 60


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_the_library_leaves_the_process_alone(path):
    """Only the command line, whose process it is, may configure JAX; nobody asks for pytest."""
    text = path.read_text()
    if not name_of(path).startswith("cli"):
        assert "jax.config.update" not in text
    for word in (
        '"pytest" in sys',
        "object.__new__",
        "register_backend_factory",
        "vars(run",
        "pickle.load",
    ):
        assert word not in text, f"{path} uses {word}"


if __name__ == "__main__":
    print(counts())
