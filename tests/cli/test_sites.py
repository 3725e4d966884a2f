"""decibo site, join and relay, in this process."""

import json
import os
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from decibo.cli.join import free_port
from decibo.cli.script import computing_in
from decibo.data import read_table
from decibo.run.lock import hold
from decibo.silo.estimator_job import fit_job, preview
from decibo.silo.identity import Identity
from decibo.silo.joint_fit import mailbox_of
from decibo.sklearn import load

JOB = """
problem = "{problem}"
[method]
name = "ahead_exact"
alpha = 0.05
gamma = 0.1
[run]
steps = 20
patience = 0.3
"""


@pytest.fixture
def job(here, decibo_call):
    """A job of three sites, of which this machine has all the folders."""
    cards = []
    for name in ("north", "east", "west"):
        done = decibo_call(
            "site", "init", "--name", name, "--address", f"127.0.0.1:{free_port()}", "--home", name
        )
        assert done.code == 0, done.err
        cards.append(done.out)
    path = here / "job.toml"
    path.write_text(JOB.format(problem="quadratic") + "".join(cards))
    return path


def test_init_makes_a_key_that_only_its_user_can_read_and_card_shows_the_card_again(
    here, decibo_call
):
    made = decibo_call("site", "init", "--name", "north", "--home", "n")
    assert '[[site]]\nname = "north"\ncertificate = """\n-----BEGIN CERTIFICATE-----' in made.out
    assert "PRIVATE" not in made.out + made.err
    assert stat.S_IMODE(os.stat("n/north.key").st_mode) == 0o600
    assert stat.S_IMODE(os.stat("n").st_mode) == 0o700
    assert decibo_call("site", "card", "--home", "n").out == made.out
    again = decibo_call("site", "init", "--name", "north", "--home", "n")
    assert (again.code, again.out) == (2, "")
    assert "its key is not replaced" in again.err


def test_check_says_what_would_leave_to_whom_and_that_nobody_answers(job, decibo_call):
    done = decibo_call("site", "check", job, "--home", "north", "--synthetic", "--wait", "0.1")
    assert done.code == 71
    words = " ".join(done.out.split())
    assert (
        "Messages from here to each of east and west: In every step, one of 11 numbers; 1.76 kB in"
        " all 20" in words
    )
    assert "does not answer" in words
    assert "what they read says something about the data" in words
    found = decibo_call(
        "site", "check", job, "--home", "north", "--synthetic", "--wait", "0", "--json"
    ).json
    assert found["in_every_step"] == [{"times": 1, "numbers": 11}]
    assert found["bytes_to_each_neighbour"] == 20 * 11 * 8


FIT = '[network]\nname = "complete"\n[estimator]\nname = "SiloTrust"\nlabel = "sick"\n'
TABLE = "age,{ward},sick\n61,a,yes\n,b,no\n47,a,yes\n"


def test_check_of_a_job_with_an_estimator_says_what_all_would_read_and_who_has_another_table(
    job, here, decibo_call
):
    sites = job.read_text().partition("[[site]]")
    job.write_text(FIT + sites[1] + sites[2])
    for name, column in (("north", "ward"), ("east", "ward"), ("west", "room")):
        (here / name / "ours.csv").write_text(TABLE.format(ward=column))
        with (here / name / "site.toml").open("a") as file:
            file.write('table = "ours.csv"\n')
    lines = []
    others = [preview(job, Identity.at(here / name), lines.append) for name in ("east", "west")]
    mailboxes = [mailbox_of(consortium, terms) for consortium, terms, _ in others]
    try:
        for mailbox in mailboxes:
            mailbox.start()
        done = decibo_call("site", "check", job, "--home", "north", "--wait", "20")
    finally:
        for mailbox in mailboxes:
            mailbox.close()
    assert done.code == 71
    words = " ".join(done.out.split())
    assert "runs the same job" in words
    assert "columns: age, room there, age, ward here" in words
    assert (
        "All sites read the names of the columns, age, ward; that age has gaps; the categories of"
        " ward (a, b); " in words
    )
    assert "the classes no and yes." in words
    assert "neighbours may read what this site adds" in words
    assert "goes from here to each of east and west" in words
    (here / "job.toml").write_text(job.read_text() + "\n[run]\nsecure_sums = true\n")
    alone = decibo_call("site", "check", job, "--home", "north", "--wait", "0")
    assert "no site reads what this one adds" in " ".join(alone.out.split())
    found = decibo_call("site", "check", job, "--home", "north", "--wait", "0", "--json").json
    assert found["columns"] == {"age": "gaps", "ward": "text"}
    assert (found["categories"], found["classes"], found["steps"]) == (
        {"ward": ["a", "b"]},
        ["no", "yes"],
        2000,
    )


def test_join_needs_data_and_a_card_that_is_its_own(job, here, decibo_call):
    assert (
        "does not say what loads this site's data"
        in decibo_call("join", job, "--home", "north").err
    )
    decibo_call("site", "init", "--name", "north", "--home", "another")
    done = decibo_call("join", job, "--home", "another", "--synthetic")
    assert done.code == 2
    assert "The job has another certificate of north" in done.err
    os.chmod("north/north.key", 0o644)
    assert (
        "Others can read the key" in decibo_call("join", job, "--home", "north", "--synthetic").err
    )


def test_join_ends_with_the_names_of_those_it_waited_for(job, decibo_call):
    done = decibo_call("join", job, "--home", "north", "--synthetic")
    assert done.code == 71
    assert "north has waited 0.3 seconds for east and west in step 1" in done.err


def test_status_says_where_the_runs_of_a_site_are(job, here, decibo_call):
    none = decibo_call("site", "status", "--home", "north")
    assert (none.code, "north has taken part in no run" in none.out) == (0, True)
    decibo_call("join", job, "--home", "north", "--synthetic")
    (file,) = (here / "north" / "runs").glob("*/status.json")
    (here / "north" / "runs" / "notes.txt").touch()
    words = " ".join(decibo_call("site", "status", "--home", "north").out.split())
    assert file.parent.name in words
    assert "lost 0 of 20 waiting for east and west" in words

    # while the process that holds the folder runs, and when it is gone
    run = json.loads(file.read_text())
    running = {"status": "running", "step": 5, "waiting_for": [], "seconds_left": 180}
    file.write_text(json.dumps(run | running | {"at": time.time() + 99}))  # the clock went back
    with hold(file.parent, own=True):
        words = " ".join(decibo_call("site", "status", "--home", "north").out.split())
        assert "running 5 of 20 3 min to step 20 1 s ago" in words
        lock = (file.parent / ".lock").read_text().splitlines()
    others = [lock[0], lock[1], str(int(lock[2]) - 1)]  # whose number this process has got
    dead = subprocess.Popen(["true"])
    dead.wait()
    for lines in (others, [str(dead.pid), *lock[1:]], []):
        (file.parent / ".lock").write_text("\n".join(lines))
        (found,) = decibo_call("site", "status", "--home", "north", "--json").json["runs"]
        assert (found["status"], found["seconds_left"]) == ("killed", None)
    (file.parent / ".lock").write_text("\n".join([lock[0], "elsewhere", lock[2]]))
    (found,) = decibo_call("site", "status", "--home", "north", "--json").json["runs"]
    assert found["status"] == "running"
    file.write_text("{")
    done = decibo_call("site", "status", "--home", "north")
    assert (done.code, "cannot be read as the status of a run" in done.err) == (2, True)


@pytest.fixture
def fit(job, here):
    """The same with an estimator, and a table at each site."""
    random = np.random.default_rng(0)
    for name in ("north", "east", "west"):
        age = random.normal(60, 9, 20)
        words = np.where(age + random.normal(0, 9, 20) > 60, "yes", "no")
        ages = ["" if k == 3 else f"{each:.1f}" for k, each in enumerate(age)]
        rows = zip(ages, random.choice(["a", "b"], 20), words, strict=True)
        lines = "".join(f"{','.join(row)}\n" for row in rows)
        (here / name / "ours.csv").write_text(f"age,ward,sick\n{lines}")
        with (here / name / "site.toml").open("a") as file:
            file.write('table = "ours.csv"\n')
    estimator = '[estimator]\nname = "SiloLogisticRegression"\nlabel = "sick"\n'
    more = "random_state = 0\nsteps = 30\n[run]\npatience = 0.3\n"
    cards = "".join(job.read_text().partition("[[site]]")[1:])
    job.write_text(f'[network]\nname = "complete"\n{estimator}{more}{cards}')
    return job


def test_status_of_a_fit_that_waits_for_others_to_begin(fit, decibo_call):
    assert decibo_call("join", fit, "--home", "north").code == 71
    words = " ".join(decibo_call("site", "status", "--home", "north").out.split())
    assert "lost not begun waiting for east and west" in words


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_ends_with_how_well_the_model_does_on_own_rows(fit, here, decibo_call):
    fit.write_text(fit.read_text().replace("0.3", "60"))
    others = ("east", "west")
    work = lambda name: fit_job(fit, Identity.at(here / name), log=lambda line: None)
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(work, name) for name in others]
        done = decibo_call("join", fit, "--home", "north", "--json").json
        assert all(each.result()[2]["rows"] == 20 for each in found)
    own = read_table(here / "north" / "ours.csv", label="sick")
    right = np.mean(load(done["model"]).predict(own.X) == own.y)
    assert (done["rows"], done["columns"], done["accuracy"]) == (20, 2, right)
    words = " ".join(decibo_call("join", fit, "--home", "north").out.split())
    assert "was complete already" in words
    assert "accuracy on this site's own 20 rows of 2 columns" in words
    assert f"has learned: {right:.3f}" in words


@pytest.mark.slow
def test_a_rehearsal_of_an_estimator_is_the_fit_of_one_process(fit, decibo_call):
    fit.write_text(fit.read_text().replace("0.3", "60"))
    done = decibo_call("rehearse", fit, "--home", "north", "--json")
    assert done.code == 0, done.err
    assert list(done.json["sites"]) == ["north", "east", "west"]
    assert 0 < max(done.json["sites"].values()) < 1e-7  # sums are made in another order
    assert not list(fit.parent.glob(".rehearsal*"))


@pytest.mark.slow
def test_a_rehearsal_is_the_simulation(job, decibo_call):
    job.write_text(job.read_text().replace("0.3", "60"))
    with computing_in("float32"):  # as a command begins; the job decides
        done = decibo_call("rehearse", job)
    assert "float" not in done.err
    assert "All 3 sites have done 20 steps, each in a process of its own." in done.out
    lines = [line.split() for line in done.out.splitlines()[2:5]]
    assert [name for name, _ in lines] == ["north", "east", "west"]
    assert max(float(apart) for _, apart in lines) < 1e-12


def test_functions_that_a_job_or_a_site_names_run_only_with_consent(job, here, decibo_call):
    (here / "ours.py").write_text(
        "import decibo\nprint('imported')\n"
        "def make() -> decibo.Problem:\n    return decibo.problems.quadratic(agents=3)\n"
        "def load():\n    raise KeyError('no table')\n"
    )
    job.write_text(job.read_text().replace('"quadratic"', '"ours:make"'))
    done = decibo_call("join", job, "--home", "north", "--synthetic")
    assert (done.code, "imported" in done.out) == (2, False)
    assert "add --trust ours" in done.err
    with open("north/site.toml", "a") as file:
        file.write('data = "ours:load"\n')
    done = decibo_call("join", job, "--home", "north", "--trust", "ours")
    assert done.code == 3
    assert "load in ours.py raised KeyError" in done.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('problem = "quadratic"', 'problem = "quadratc"', "Did you mean 'quadratic'?"),
        ("steps = 20", "steps = 0", "steps must be a positive integer"),
        ("steps = 20", "stps = 20", "Did you mean 'steps'?"),
        ("steps = 20", 'mode = "fre"', "Did you mean 'free'?"),
        ("steps = 20", 'mode = "free"', "needs all agents in lockstep"),
        ("steps = 20", "rest = 1e-9", 'rest is for mode = "free"'),
        ("alpha = 0.05", 'alpha = "x"', "alpha"),
        ("alpha = 0.05", "masks = -1.0\nalpha = 0.05", "The scale of x must be"),
        (
            "[method]",
            '[network]\nlinks = [["north", "south"]]\n[method]',
            "The sites are north, east, west.",
        ),
        ("-----BEGIN", "-----BEGUN", "must be PEM"),
        ('name = "east"', 'name = "north"', "two of north, north, west share one"),
        ("127.0.0.1:", "127.0.0.1/", "must read host:port"),
    ],
)
def test_mistakes_in_a_job_are_one_line(job, decibo_call, old, new, words):
    job.write_text(job.read_text().replace(old, new, 1))
    done = decibo_call("site", "check", job, "--home", "north", "--synthetic", "--wait", "0")
    assert done.code == 2, done.err
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_relay_is_named_in_the_job(job, decibo_call):
    done = decibo_call("relay", job, "--listen", f"127.0.0.1:{free_port()}", "--home", "north")
    assert done.code == 2
    assert "has no [relay]" in done.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[method]", "a" + ".a" * 200_000 + " = 1\n[method]", "has a key of more than 11 parts"),
        ("[method]", "[a" + ". a" * 20_000 + "]\n[method]", "has a key of more than 11 parts"),
        ("[method]", "x = {b" + ' . "b"' * 20_000 + " = 1}\n[method]", "more than 11 parts"),
        (
            "[method]",
            '[network]\nname = "ring"\nagents = 1000000000\n[method]',
            "has 1,000,000,000",
        ),
        ("[method]", '[network]\nname = "complete"\nagents = 50000\n[method]', "has 50,000 agents"),
        (
            "[method]",
            '[network]\nname = "grid"\nrows = 100000\ncolumns = 100000\n[method]',
            "has 10,000,000,000 agents, but the job has 3 sites",
        ),
        ("[method]", '[network]\nname = "hypercube"\nk = 60\n[method]', "but the job has 3 sites"),
        ('"quadratic"', '{name = "quadratic", agents = 10000000}', "has 10,000,000 agents"),
        ('"quadratic"', '{name = "quadratic", n = 100000000}', "needs more memory than there is"),
    ],
    ids=["dots", "header", "inline", "ring", "complete", "grid", "hypercube", "agents", "memory"],
)
def test_what_would_take_for_ever_or_all_memory_is_refused_before_it_is_made(
    job, decibo_call, old, new, words
):
    """Dots alone took half an hour."""
    job.write_text(job.read_text().replace(old, new, 1))
    began = time.process_time()
    done = decibo_call("site", "check", job, "--home", "north", "--synthetic", "--wait", "0")
    assert done.code == 2, done.err
    assert words in done.err
    assert time.process_time() - began < 20


def test_dots_in_texts_and_comments_are_nobody_elses_business(job, decibo_call):
    dots = "a" + ".a" * 50
    relay = f"[relay]\naddress = \"{dots}:7\"\ncertificate = '''{dots}'''\n"
    job.write_text(f"# {dots}\n# it's \"{dots}\n" + job.read_text() + relay)
    done = decibo_call("site", "check", job, "--home", "north", "--synthetic", "--wait", "0")
    assert "parts" not in done.err
    assert "The certificate of relay must be PEM" in done.err
