"""Random and hostile configurations and command lines, each typed in a folder with files of the
user's.

lost       a file of the user's was changed or removed
leaked     something was executed without consent: a module imported, a function called, a program
           started
hung       it took longer than three minutes
wrong      a refusal that is not one clear line, or that left something behind; success with numbers
           that are not finite
traceback  exit code 70, or a traceback
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import string
from collections.abc import Callable, Iterator
from pathlib import Path

from drills._command import TRAP, Done, call, contents, prepare
from faults import Outcome

from decibo.cli import registry
from decibo.cli.config import RunOptions
from decibo.runs.folder import to_toml

Tables = dict[str, object]
Words = list[object]

COMMANDS = ("run", "run", "run", "check", "compare", "sweep")
CODE = (
    "subprocess:getoutput", "os:system", "builtins:exec", "builtins:eval", "shutil:rmtree", "runpy:run_path",
    "trap:make", "trap.inner:make", "package.trap:make", "trap:none", "antigravity:fly", "pip:main", "decibo:solve",
    "importlib:import_module", "code:interact", "webbrowser:open", "ctypes:CDLL", "pydoc:locate", "timeit:timeit",
)  # fmt: skip
SHELL = {
    "cmd": "touch trapped",
    "command": "touch trapped",
    "path": "own",
    "args": ["touch", "trapped"],
}
TEXTS = (
    "", " ", "none", "x" * 5000, "\x1b]0;title\x07", "\x1b[2J", "a\nb", "../../etc/passwd", "$(touch trapped)",
    "`touch trapped`", "; touch trapped", "quadratic\x00", "\u202egnp", "ring'", 'ring"', "{name}", "%s%n", "é" * 40,
)  # fmt: skip
NUMBERS = (
    -1, 0, 1, 2, 3, 7, 10**12, 2**63, 10**30, 10**400, -0.0, 0.1, 0.5, 1.0, 1.5, 1e-300, 1e300, -1e300,
    5e-324, 1.8e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
ALLOWED = (1e-300, 1e-8, 1e-3, 0.3, 0.9, 2.0, 10.0, 1e3, 1e8, 1e30, 1e155, 1e300)
FLOATS = (*ALLOWED, *(number for number in NUMBERS if isinstance(number, float)))
REAL = (
    ("method", "alpha"), ("method", "gamma"), ("method", "lam"), ("method", "beta"), ("problem", "heterogeneity"),
    ("problem", "condition"), ("problem", "bend"), ("network", "rho"), ("network", "failing"), ("network", "sleeping"),
)  # fmt: skip
WHOLE = (
    ("problem", "seed"), ("problem", "n"), ("problem", "agents"), ("network", "agents"), ("run", "steps"),
    ("run", "every"), ("run", "seed"), ("run", "keep"), ("run", "checkpoint_every"),
)  # fmt: skip
GOOD: dict[str, Tables] = {
    "problem": {"name": "quadratic", "seed": 1, "n": 2, "r": 2},
    "network": {"name": "ring", "agents": 4},
    "method": {"name": "ahead_exact", "alpha": 0.05, "gamma": 0.1},
    "run": {"steps": 20, "every": 10, "measures": ["outer", "consensus_x"]},
    "compare": {"methods": ["ahead_exact", "ahead[alpha=0.05,gamma=0.1,lam=20]"]},
    "sweep": {"alpha": [0.05, 0.1]},
}
PRECIOUS = {
    "own/config.toml": b"# mine\nproblem = 'quadratic'\n",
    "own/history.csv": b"my,history\n1,2\n",
    "own/run.json": b'{"kind": "mine"}',
    "own/sweep.csv": b"mine",
    "own/report.html": b"<p>mine",
    "notes/thesis.tex": b"precious",
    "trap.py": TRAP.encode(),
    "package/__init__.py": TRAP.encode(),
    "package/trap.py": TRAP.encode(),
    "jinja2.py": TRAP.encode(),
    "config.toml": b"# mine, too\nproblem = 'quadratic'\nnetwork = { name = 'ring', agents = 4 }\n",
}


def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """One outcome for each command line."""
    prepare(folder)
    makers = (
        _mutated,
        _mutated,
        _extreme,
        _extreme,
        _code,
        _code,
        _garbage,
        _words,
        _targets,
        _special,
    )
    for number in range(count):
        drawn = random.Random(f"{seed}-{number}")
        maker = makers[number % len(makers)]
        place = folder / f"case{number}"
        yield _tried(maker, drawn, place, f"{number} {maker.__name__[1:]}")
        shutil.rmtree(place, ignore_errors=True)


def _tried(
    maker: Callable[[random.Random, Path], Words], drawn: random.Random, place: Path, name: str
) -> Outcome:
    for path, content in PRECIOUS.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    words = maker(drawn, place)
    before = contents(place)
    done = call(words, place)
    after = contents(place)
    lost = any(after.get(path) != before[path] for path in before)
    left = sorted(set(after) - set(before))
    reasons = [
        f"lost {[path for path in before if after.get(path) != before[path]]}" if lost else "",
        f"executed {done.executed}" if done.executed else "",
        "" if done.clear else "not clear",
        f"left {left[:3]}" if done.code == 2 and left else "",
        "not finite" if _is_not_finite(done) else "",
    ]
    wrong = not done.clear or bool(done.code == 2 and left) or _is_not_finite(done)
    bad = lost or done.executed or wrong or done.hung or done.broken
    detail = (
        f"{' '.join(map(repr, words))[:300]} -> {done.code} {done.err[:300]!r}"
        f" {', '.join(filter(None, reasons))}"
    )
    return Outcome(
        name,
        lost,
        bool(done.executed),
        done.hung,
        wrong,
        done.broken,
        detail if bad else "",
        round(done.seconds, 2),
    )


def _is_not_finite(done: Done) -> bool:
    """Whether a run that is called a success reports numbers that are not finite."""
    if done.code != 0 or not done.out.startswith("{"):
        return False
    said = json.loads(done.out)
    runs = said.get("runs", [said])
    return any(None in run["last"].values() for run in runs if "last" in run)


# What is typed


def _mutated(drawn: random.Random, place: Path) -> Words:
    """A good configuration with one to three entries replaced."""
    tables = {name: dict(table) for name, table in GOOD.items()}
    for _ in range(drawn.choice((1, 1, 2, 3))):
        table = drawn.choice(list(tables))
        if drawn.random() < 0.1:
            tables[table] = _value(drawn)  # type: ignore[assignment]
        elif isinstance(tables[table], dict):
            _change(drawn, table, tables[table])
    return _command(drawn, place, tables)


def _extreme(drawn: random.Random, place: Path) -> Words:
    """Entries of the right type with extreme values, many of which are allowed."""
    tables = {name: dict(GOOD[name]) for name in ("problem", "network", "method", "run")}
    command = drawn.choice(COMMANDS)
    tables["problem"]["name"] = drawn.choice(("quadratic", "quadratic", "minimax_quadratic"))
    if drawn.random() < 0.3:
        name = drawn.choice(
            (
                "ahead",
                "ahead",
                "sldbo",
                "sparkle_ed",
                drawn.choice(list(registry.methods().factories)),
            )
        )
        options = registry.options_of(registry.methods().factories[name])
        tables["method"] = {
            "name": name,
            **{key: 0.05 for key, option in options.items() if option.required},
        }
    for _ in range(drawn.choice((1, 1, 2))):
        table, key = drawn.choice(
            [place for place in REAL if place[0] != "method" or place[1] in tables["method"]]
        )
        tables[table][key] = drawn.choice((drawn.choice(FLOATS), drawn.choice(ALLOWED)))
    if drawn.random() < 0.2:
        table, key = drawn.choice(WHOLE)
        tables[table][key] = drawn.choice((-1, 0, 1, 2, 3, 4, 10**12, 2**63, 10**30))
    if drawn.random() < 0.2:
        tables["network"]["name"] = drawn.choice(list(registry.networks().factories))
    if command == "compare":
        tables["compare"] = {
            "methods": ["ahead_exact", "ahead[lam=20]"],
            "alpha": drawn.choice((0.1, *FLOATS)),
        }
    if command == "sweep":
        tables["sweep"] = {"alpha": [0.05, drawn.choice(FLOATS)]}
    return _command(drawn, place, tables, command)


def _change(drawn: random.Random, table: str, entries: Tables) -> None:
    known = {
        "problem": registry.options_of(registry.problems().factories["quadratic"]),
        "network": dict.fromkeys(
            ["agents", "weights", "rho", "failing", "sleeping", "rows", "seed"]
        ),
        "method": registry.options_of(registry.methods().factories["ahead_exact"]),
        "run": registry.options_of(RunOptions),
        "compare": dict.fromkeys(["methods", "alpha", "lam"]),
        "sweep": dict.fromkeys(["alpha", "gamma", "lam", "seeds"]),
    }[table]
    key = drawn.choice([*known, "name", _text(drawn)])
    value = _value(drawn)
    huge = key in ("steps", "seeds", "n", "r") and isinstance(value, int) and 7 < value < 2**63
    entries[key] = 3 if huge else value  # what is allowed but takes a day is no case


def _code(drawn: random.Random, place: Path) -> Words:
    """Code where a name may be."""
    name = drawn.choice(CODE)
    options = {key: value for key, value in SHELL.items() if drawn.random() < 0.5}
    tables = {key: dict(table) for key, table in GOOD.items()}
    where = drawn.choice(
        ("problem", "network", "method", "measures", "until", "methods", "data", "schedule")
    )
    named = {"name": name, **options}
    if where in tables:
        tables[where] = named
    elif where == "measures":
        tables["run"]["measures"] = [name]
    elif where == "until":
        tables["run"]["until"] = {name: 1.0}
    elif where == "methods":
        inside = ",".join(f"{key}={json.dumps(value)}" for key, value in options.items())
        tables["compare"]["methods"] = [f"{name}[{inside}]"]
    elif where == "data":
        tables["problem"] = {"name": "hyper_cleaning", "data": named}
    else:
        tables["method"]["lam"] = named
    words = _command(drawn, place, tables)
    if drawn.random() < 0.3:
        words += [
            "--trust",
            drawn.choice(("another", "subprocess", "os", "decibo", "package.other")),
        ]
        words = [word if word != "package.other" else "other" for word in words]
    if drawn.random() < 0.3:
        stored = place / "got"
        (stored / "checkpoint").mkdir(parents=True)
        shutil.copy(place / "bad.toml", stored / "config.toml")
        words = drawn.choice((["resume", "got"], ["report", "got"], ["check", "got/config.toml"]))
    return words


def _garbage(drawn: random.Random, place: Path) -> Words:
    """A file that is not TOML, or hardly."""
    good = to_toml(GOOD).encode()
    k = drawn.randrange(len(good))
    content = drawn.choice(
        (
            lambda: drawn.randbytes(drawn.randrange(1, 200)),
            lambda: good[:k],
            lambda: good[:k] + drawn.randbytes(3) + good[k:],
            lambda: good + good,
            lambda: b"problem = " + b"[" * drawn.choice((10, 500, 50_000)),
            lambda: b"problem" + b".a" * drawn.choice((5, 50, 3000)) + b" = 1",
            lambda: b'problem = "' + b"q" * drawn.choice((100, 100_000, 3_000_000)) + b'"',
            lambda: b"problem = " + b"9" * drawn.choice((20, 5000)),
            lambda: b"[run]\nsteps = 0x" + b"f" * 5000,
            lambda: good.replace(
                b"20", drawn.choice((b"1e999", b"-nan", b"1979-05-27", b"'''", b"0b11"))
            ),
        )
    )()
    (place / "bad.toml").write_bytes(content)
    return [drawn.choice(COMMANDS), "bad.toml", "--out", "new"]


def _words(drawn: random.Random, place: Path) -> Words:
    """A good file, and options that are not."""
    (place / "bad.toml").write_text(to_toml(GOOD))
    command = drawn.choice(COMMANDS)
    words: Words = [command, "bad.toml"]
    for _ in range(drawn.choice((1, 1, 2))):
        key = drawn.choice((
            "method.alpha", "method.lam", "method.gamma", "network.agents", "network.failing", "problem.condition",
            "problem", "method", "network.name", "run.dtype", "run.until.outer", "run.start.scale", "compare.alpha",
            "sweep.alpha", "a.b", "method" + ".a" * drawn.choice((3, 9, 3000)), _text(drawn),
        ))  # fmt: skip
        value = drawn.choice(
            (_text(drawn), json.dumps(_value(drawn), default=str), drawn.choice(CODE))
        )
        words += ["--set", f"{key}={value}".replace("\x00", "")]
    if command == "compare":
        words += [
            "-m",
            drawn.choice(
                (f"ahead[{_text(drawn)}]", _text(drawn), "ahead_exact[lam=1e300]", "trap:make[]")
            ),
        ]
    if command == "sweep":
        words += [
            "-g",
            drawn.choice(
                (f"alpha={_text(drawn)}", "alpha=0.1,1e300", "lam=0,-1", "alpha=[[[[1]]]]")
            ),
        ]
    if drawn.random() < 0.2:
        words = [
            drawn.choice((*words, "--json", "list", "report")) for _ in range(drawn.randrange(5))
        ]
    return [*words] if command == "check" else [*words, "--out", "new"]


def _targets(drawn: random.Random, place: Path) -> Words:
    """A good run, to be written where files of the user's are."""
    (place / "bad.toml").write_text(to_toml(GOOD))
    (place / "full").symlink_to("/dev/full")
    (place / "loop").symlink_to("loop")
    target = drawn.choice(
        (
            ".",
            "own",
            "notes",
            "own/config.toml",
            "notes/thesis.tex",
            "package",
            "/proc/decibo/run",
            "full",
            "loop",
            "\x01",
        )
    )
    command = drawn.choice(("run", "compare", "sweep", "report"))
    if command == "report":
        return ["report", drawn.choice(("own", ".", "notes")), "--out", f"{target}"]
    extra = ["--checkpoint"] if command == "run" and drawn.random() < 0.5 else []
    return [command, drawn.choice(("bad.toml", "config.toml")), "--out", target, *extra]


def _special(drawn: random.Random, place: Path) -> Words:
    """Something that is not a file where one should be, and runs that are unusual but allowed."""
    os.mkfifo(place / "pipe")
    (place / "zero").symlink_to("/dev/zero")
    (place / "loop").symlink_to("loop")
    (place / "one.toml").write_text(to_toml(GOOD | {"network": {"name": "ring", "agents": 1}}))
    if drawn.random() < 0.5:
        path = drawn.choice(
            ("pipe", "zero", "loop", "own", "nowhere", "/dev/zero", "/proc/self/mem", "", "x" * 300)
        )
        return [drawn.choice((*COMMANDS, "resume", "report")), path]
    rate = f"network.{drawn.choice(('failing', 'sleeping'))}=0.1"
    return drawn.choice(
        (
            ["run", "one.toml", "--out", "new", "--json", "--set", rate],
            ["run", "one.toml", "--out", "new", "--json", "--checkpoint"],
            [
                "check",
                "one.toml",
                "--set",
                f"method=ahead[alpha=0.1,gamma=0.1,lam={_number(drawn)}]",
            ],
            ["check", "one.toml", "--radius", str(_number(drawn))],
            [
                "run",
                "one.toml",
                "--out",
                "new",
                "--json",
                "--set",
                f"method.alpha={_number(drawn)}",
            ],
        )
    )


def _command(drawn: random.Random, place: Path, tables: Tables, command: str = "") -> Words:
    """The tables in a file, and a command on it."""
    (place / "bad.toml").write_text(to_toml(tables))
    command = command or drawn.choice(COMMANDS)
    out = [] if command == "check" else ["--out", "new"]
    extra = drawn.choice(([], [], ["--json"], ["--checkpoint"] if command == "run" else []))
    return [command, "bad.toml", *out, *extra]


def _number(drawn: random.Random) -> object:
    number = drawn.choice(NUMBERS)
    return number if isinstance(number, float) or abs(number) < 10**40 else 10**40


def _text(drawn: random.Random) -> str:
    plain = "".join(drawn.choices(string.ascii_lowercase + "_", k=drawn.randrange(1, 12)))
    wild = "".join(chr(drawn.randrange(1, 0xD7FF)) for _ in range(drawn.randrange(1, 12)))
    return drawn.choice((plain, plain, wild, drawn.choice(TEXTS)))


def _value(drawn: random.Random) -> object:
    """Anything that TOML can hold."""
    nested: object = 1
    for _ in range(drawn.choice((2, 12, 60))):
        nested = {"a": nested} if drawn.random() < 0.5 else [nested]
    return drawn.choice(
        (
            drawn.choice(NUMBERS[:9]),
            drawn.choice(NUMBERS),
            drawn.random(),
            _text(drawn),
            True,
            [],
            {},
            [1, "a"],
            nested,
        )
    )
