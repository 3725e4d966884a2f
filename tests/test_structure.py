"""The house: imports go down only, no fragments, and the habits that keep it readable."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import decibo

ROOT = Path(decibo.__file__).parent
# Lower layers first. A module may import from its own layer and from those before it.
LAYERS = (
    ("errors", "capabilities", "validate", "pytree", "files", "formatting", "programs"),
    ("parallel",),
    ("data",),
    ("problem",),
    ("problems", "network"),
    ("measure",),
    ("algorithm",),
    ("theory",),
    ("networks", "methods"),  # faces: what is found by name
    ("run",),
    ("runs", "callbacks"),
    ("report",),
    ("contrib",),  # methods beside the core: they import it, the core never imports them
    ("silo", "sklearn", "integrations"),
    ("names",),
    ("cli", "__main__"),
)
ABOVE = ("cli", "sklearn", "integrations", "__main__")
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


def test_imports_go_down_only():
    offenders = []
    for path in MODULES:
        room = name_of(path).split(".")[0]
        if not room:  # decibo/__init__.py may import every room
            continue
        typing = type_checking_lines(path)
        for line, module in imports_of(path):
            other = module.split(".")[0]
            # only the rooms above everything may import decibo itself
            allowed = HEIGHT[other] <= HEIGHT[room] if other else room in ABOVE
            if line not in typing and not allowed:
                offenders.append(f"{path}:{line}: {room} imports decibo.{module}")
    assert not offenders, "\n".join(offenders)


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


def test_a_module_is_an_idea_and_not_a_fragment():
    modules = [path for path in MODULES if path.name not in ("__init__.py", "__main__.py")]
    assert not [path for path in modules if len(path.read_text().splitlines()) < 40]


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


def test_the_library_leaves_the_process_alone():
    """Only the command line, whose process it is, may configure JAX; no module asks for pytest."""
    never = (
        '"pytest" in sys',
        "object.__new__",
        "register_backend_factory",
        "vars(run",
        "pickle.load",
    )
    offenders = []
    for path in MODULES:
        text = path.read_text()
        words = never if name_of(path).startswith("cli") else (*never, "jax.config.update")
        offenders += [f"{path} uses {word}" for word in words if word in text]
    assert not offenders, "\n".join(offenders)


def exported():
    """(where, name, object) of every name in an `__all__` of the library."""
    for path in MODULES:
        where = name_of(path)
        if "__all__" not in path.read_text():
            continue
        try:
            module = importlib.import_module(f"decibo.{where}".rstrip("."))
        except ImportError:  # an optional dependency is not installed
            continue
        for name in getattr(module, "__all__", ()):
            yield f"decibo.{where}.{name}".replace("..", "."), getattr(module, name)


def test_what_is_exported_explains_itself():
    documented = lambda thing: inspect.isroutine(thing) or inspect.isclass(thing)
    # a dataclass without a docstring has its signature in place of one
    own = lambda thing: thing.__doc__ and not thing.__doc__.startswith(f"{thing.__name__}(")
    assert not sorted({name for name, thing in exported() if documented(thing) and not own(thing)})


TESTS = Path(__file__).parent
# tested beside what they collect
ELSEWHERE = {"problems": "problem", "methods": "algorithm", "networks": "network"}


def test_every_package_has_a_quick_test():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    folders = {ELSEWHERE.get(package, package) for package in packages}
    quick = {
        path.parent.name
        for path in TESTS.glob("*/test_*.py")
        if "pytest.mark.quick" in path.read_text()
    }
    assert not folders - quick


if __name__ == "__main__":
    print(counts())
