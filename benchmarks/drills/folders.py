"""Run folders from a stranger, given to report, resume, check and run: damaged, forged, or not
files at all.

lost       a file of the user's, or the sound run beside it, was changed or removed
leaked     code was executed without consent, or text of a run became part of a page's HTML
hung       it took longer than three minutes
wrong      a refusal that is not one clear line; a sound run left out of a report, or a broken one
           without a word; a resumed run that ends with other numbers
traceback  exit code 70, or a traceback
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from drills._command import TRAP, call, contents, prepare
from faults import Outcome

from decibo.files import sha256

CONFIG = """
problem = { name = "quadratic", n = 2, r = 2 }
network = { name = "ring", agents = 4 }
method = { alpha = 0.05, gamma = 0.1 }
run = { steps = 40, every = 10, checkpoint_every = 20, measures = ["outer", "stationarity"] }
"""
PAYLOAD = "</script><img src=x onerror=alert(1)>\x1b[2J{{7*7}}"
VALUES = (
    None, True, -1, 0, 1e308, -1e-320, 10**30, float("nan"), float("inf"), "", PAYLOAD, "x" * 20_000, [], [1], [[0, 1]],
    {}, {"a": PAYLOAD}, {PAYLOAD: 1.0}, "trap:make", "../../../etc/passwd", "done", "diverged", [[0, 1, 0.5]] * 3,
)  # fmt: skip
FILES = ("run.json", "history.csv", "config.toml", "solution.npz")
Damage = Callable[[random.Random, Path], str]


def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """One outcome for each folder."""
    prepare(folder)
    (folder / "good.toml").write_text(CONFIG)
    sound = folder / "sound"
    whole = call(["run", "good.toml", "--checkpoint", "--out", "sound", "--json"], folder)
    assert whole.code == 0, whole.err
    expected = json.loads(whole.out)["last"]
    damages: tuple[Damage, ...] = (
        _forged,
        _forged,
        _forged,
        _bytes,
        _bytes,
        _missing,
        _special,
        _history,
        _settings,
    )
    for number in range(count):
        drawn = random.Random(f"{seed}-{number}")
        place = folder / f"case{number}"
        shutil.copytree(sound, place / "runs" / "good")
        shutil.copytree(sound, place / "runs" / "bad")
        (place / "runs" / "bad" / "notes.txt").write_text("mine")
        (place / "trap.py").write_text(TRAP)
        damage = damages[number % len(damages)]
        told = damage(drawn, place / "runs" / "bad")
        yield _tried(drawn, place, f"{number} {damage.__name__[1:]} {told}", expected)
        shutil.rmtree(place, ignore_errors=True)


def _tried(drawn: random.Random, place: Path, name: str, expected: dict) -> Outcome:
    command = drawn.choice(("all", "all", "one", "two", "resume", "check", "run"))
    words = {
        "all": ["report", "runs", "--latex"],
        "one": ["report", "runs/bad", *(["--figures"] if drawn.random() < 0.1 else [])],
        "two": ["report", "runs/bad", "runs/good", "--out", "page.html"],
        "resume": ["resume", "runs/bad", "--json"],
        "check": ["check", "runs/bad/config.toml"],
        "run": ["run", "runs/good/config.toml", "--out", "runs/bad"],
    }[command]
    before = contents(place)
    done = call(words, place)
    after = contents(place)
    kept = [
        path
        for path in before
        if path.startswith("runs/good") or path.endswith("notes.txt") or "/" not in path
    ]
    lost = [path for path in kept if after.get(path) != before[path]]
    pages = [content for path, content in after.items() if path.endswith(".html")]
    raw = any(b"<img src=x" in page for page in pages)
    wrong = "" if done.clear else "not clear"
    if command in ("all", "two"):
        readable = json.loads(
            call(["report", "runs/bad", "--out", "x.html", "--json"], place).out or "{}"
        )
        if done.code != 0:
            wrong = "a sound run was refused"
        elif ("Left out" in done.err) == ("page" in readable):
            wrong = "a broken run was left out without a word, or a sound one with one"
    if command == "resume" and done.code == 0:
        wrong = wrong if json.loads(done.out)["last"] == expected else "resumed to other numbers"
    if command in ("one", "check", "run") and done.code == 2 and _new(before, after):
        wrong = f"left {_new(before, after)[:3]}"
    reasons = [
        f"lost {lost[:3]}" if lost else "",
        done.executed,
        "raw text in a page" if raw else "",
        wrong,
    ]
    bad = any(reasons) or done.hung or done.broken
    detail = (
        f"{' '.join(words)} -> {done.code} {done.err[:400]!r} {'; '.join(filter(None, reasons))}"
        if bad
        else ""
    )
    return Outcome(
        name[:80],
        bool(lost),
        bool(done.executed) or raw,
        done.hung,
        bool(wrong),
        done.broken,
        detail,
        round(done.seconds, 2),
    )


def _new(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    return sorted(set(after) - set(before))


# What a stranger does to a folder


def _forged(drawn: random.Random, run: Path) -> str:
    """Other values in run.json, which has no checksum itself."""
    record = json.loads((run / "run.json").read_text())
    told = []
    for _ in range(drawn.choice((1, 1, 2, 5))):
        owner = record
        key = drawn.choice(list(owner))
        while isinstance(owner[key], dict) and owner[key] and drawn.random() < 0.8:
            owner = owner[key]
            key = drawn.choice(list(owner))
        owner[key] = drawn.choice(VALUES)
        told.append(key)
    (run / "run.json").write_text(json.dumps(record))
    return ", ".join(told)


def _bytes(drawn: random.Random, run: Path) -> str:
    """A file cut short, with a bit flipped, or with other bytes inside; those of checkpoints
    too."""
    paths = [path for path in sorted(run.rglob("*")) if path.is_file() and path.name != "notes.txt"]
    path = drawn.choice([run / drawn.choice(FILES), drawn.choice(paths)])
    content = bytearray(path.read_bytes())
    how = drawn.choice(("cut", "flip", "insert", "empty", "double"))
    k = drawn.randrange(max(len(content), 1))
    if how == "cut":
        content = content[:k]
    elif how == "flip" and content:
        content[k] ^= 1 << drawn.randrange(8)
    elif how == "insert":
        content[k:k] = drawn.randbytes(5)
    else:
        content = content * 2 if how == "double" else bytearray()
    path.write_bytes(bytes(content))
    return f"{path.name} {how}"


def _missing(drawn: random.Random, run: Path) -> str:
    names = drawn.sample([*FILES, "checkpoint"], drawn.choice((1, 2, 3)))
    for name in names:
        shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    return ", ".join(names)


def _special(drawn: random.Random, run: Path) -> str:
    """Something else in the place of a file."""
    name = drawn.choice((*FILES, "checkpoint"))
    path = run / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    how = drawn.choice(("pipe", "zero", "folder", "loop", "passwd", "large"))
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "large":
        with path.open("wb") as file:
            file.truncate(1 << 36)  # sparse
    else:
        path.symlink_to({"zero": "/dev/zero", "loop": name, "passwd": "/etc/passwd"}[how])
    return f"{name} is {how}"


def _history(drawn: random.Random, run: Path) -> str:
    """Another history, with a checksum that fits."""
    rows = (run / "history.csv").read_text().splitlines()
    how = drawn.choice(("cell", "cell", "name", "rows", "columns", "empty", "quotes"))
    if how == "cell":
        k = drawn.randrange(1, len(rows))
        cells = rows[k].split(",")
        value = drawn.choice(
            ("nan", "inf", "-1", "1e999", "9" * 400, "", "True", PAYLOAD, "9223372036854775807")
        )
        cells[drawn.randrange(len(cells))] = value
        rows[k] = ",".join(cells)
    elif how == "name":
        names = rows[0].split(",")
        names[drawn.randrange(len(names))] = drawn.choice(
            (PAYLOAD, "", "step", "outer", "x" * 5000)
        )
        rows[0] = ",".join(names)
    elif how == "rows":
        rows = rows[: drawn.choice((0, 1, 2))]
    elif how == "columns":
        rows = [row.split(",")[drawn.choice((0, 1))] for row in rows]
    else:
        rows = [""] if how == "empty" else [row.replace(",", '",') for row in rows]
    (run / "history.csv").write_text("\n".join(rows) + "\n")
    _fitted(run, "history.csv")
    return how


def _settings(drawn: random.Random, run: Path) -> str:
    """Another configuration, which names code, with a checksum that fits."""
    name = drawn.choice(("trap:make", "subprocess:getoutput", "os:system", "quadratic"))
    options = drawn.choice(
        ("", ', cmd = "touch trapped"', f", seed = {drawn.choice((-1, 10**30))}", ", agents = 7")
    )
    text = CONFIG.replace('"quadratic", n = 2, r = 2', f'"{name}"{options}')
    if drawn.random() < 0.3:
        text = CONFIG.replace('["outer"', f'["{name}"')
    (run / "config.toml").write_text(text)
    _fitted(run, "config.toml")
    return name


def _fitted(run: Path, name: str) -> None:
    record = json.loads((run / "run.json").read_text())
    record["files"][name] = sha256(run / name)
    (run / "run.json").write_text(json.dumps(record))
