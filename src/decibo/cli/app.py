"""The command line: every command with its options and its help. The work is done in the file of
that name.

decibo demo
decibo run mine.py --steps 500
decibo compare mine.py -m ahead_exact -m 'ahead[alpha=0.05, gamma=0.1, lam=20]'
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    print(
        "decibo: the command line needs typer and rich. pip install 'decibo[cli]'", file=sys.stderr
    )
    sys.exit(2)

from decibo.cli.errors import MEANING, Exit, one_line, report_error, without_numbers
from decibo.parallel.failure_detection import end, is_watched
from decibo.parallel.signals import GracefulStop

CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANING.items())
ABOUT = f"""Decentralised bilevel optimisation: agents solve a two-level problem together.

\b
First steps:
  decibo demo                      four hospitals learn one model
  decibo init                      write mine.py, a file to begin with
  decibo run mine.py               solve what it describes
  decibo compare mine.py           run the methods that it lists
  decibo list methods              what there is by name

\b
Exit codes:
{CODES}

--debug shows the traceback of an error. --json, on every command, prints
only JSON on standard output.
"""

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help=ABOUT,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _version(requested: bool) -> None:
    if requested:
        from decibo.cli.doctor import version_line

        print(version_line())
        raise typer.Exit()


@app.callback()
def _commands(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    pass


def _methods(incomplete: str) -> list[str]:
    """For the completion of a shell."""
    from decibo.cli.list import names_of_methods

    return [name for name in names_of_methods() if name.startswith(incomplete)]


SPEC = typer.Option(
    "--method", "-m", metavar="METHOD", help="name[setting=value, ...]", autocompletion=_methods
)
File = Annotated[
    Path, typer.Argument(metavar="FILE.py", help="What to run; see docs/command-line.md.")
]
Method = Annotated[str | None, SPEC]
Methods = Annotated[list[str] | None, SPEC]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="The number of steps.")]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="N", help="Repeat with this many seeds, or with a list: 0,3,7."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Where to write; default out/NAME."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep runs that are complete already, and go on.")
]
Trusted = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="MODULE", help="Run code of this module, if the job names it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print only JSON.")]


def work_of(
    place: str, joined: bool = False, compiles: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., int]]:
    """What a command does: a function somewhere in decibo.cli, with the same arguments, imported
    when the command is called. Options and help are here, since JAX takes a second to import.

    joined    before it touches a device, the processes join each other, if a launcher started
              several
    compiles  the cache of compiled programs is set up, as for all that are joined
    """

    def carried_out(command: Callable[..., Any]) -> Callable[..., int]:
        @wraps(command)
        def call(**options: Any) -> int:
            if joined:
                from decibo.parallel.processes import init_distributed

                init_distributed()
            if joined or compiles:
                from decibo.cli import cache

                cache.enable()
            module, _, name = place.partition(".")
            return getattr(import_module(f"decibo.cli.{module}"), name)(**options)

        return call

    return carried_out


@app.command()
@work_of("demo.demo", joined=True)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write.")] = Path(
        "out/demo"
    ),
    as_json: Json = False,
):
    """Let four hospitals learn one model, alone and together.

    It uses embedded data and ends with two tables and the path of a page to open.
    """


@app.command()
@work_of("init.init")
def init(
    path: Annotated[Path, typer.Argument(metavar="FILE.py", help="Its name.")] = Path("mine.py"),
    as_json: Json = False,
):
    """Write a file to begin with, which runs as it is.

    \b
    Example:
      decibo init mine.py
    """


@app.command()
@work_of("run.run", joined=True)
def run(
    path: File,
    method: Method = None,
    steps: Steps = None,
    seeds: Seeds = None,
    out: Out = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="Write checkpoints, for decibo resume.")
    ] = False,
    resumed: Resume = False,
    as_json: Json = False,
):
    """Run a Python file and solve the problem that it defines.

    \b
    Examples:
      decibo run mine.py
      decibo run mine.py --steps 500 -m 'ahead_exact[lam=20]'
      decibo run mine.py --out out/first --checkpoint
      decibo run mine.py --seeds 5
    """


@app.command()
@work_of("run.resume", joined=True)
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder with checkpoints.")],
    steps: Annotated[
        int | None, typer.Option(help="Continue up to this many steps in all.")
    ] = None,
    as_json: Json = False,
):
    """Continue a run from its last checkpoint.

    It runs the copy of the file that is stored there.

    \b
    Example:
      decibo resume out/mine
    """


@app.command()
@work_of("compare.compare", joined=True)
def compare(
    path: File,
    methods: Methods = None,
    steps: Steps = None,
    seeds: Seeds = None,
    tune: Annotated[
        int | None,
        typer.Option("--tune", metavar="N", help="First try N settings of every method."),
    ] = None,
    out: Out = None,
    resumed: Resume = False,
    as_json: Json = False,
):
    """Run several methods on the same problem and network.

    Without -m, the methods are those of `methods` in the file.
    With --seeds, each of them runs once for each seed of data, network and
    method; the table shows mean and standard deviation.
    With --tune, the step sizes of every method are tuned first: each gets the
    same number of tries, on seeds that are not those of the comparison.

    \b
    Examples:
      decibo compare mine.py -m ahead_exact \\
          -m 'ahead[alpha=0.05, gamma=0.1, lam=20]'
      decibo compare mine.py --seeds 5
      decibo compare mine.py --tune 30 --seeds 5
    """


@app.command()
@work_of("sweep.sweep", joined=True)
def sweep(
    path: File,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", "-g", metavar="SETTING=VALUES", help="alpha=0.05,0.1,0.2"),
    ] = None,
    method: Method = None,
    steps: Steps = None,
    seeds: Seeds = None,
    out: Out = None,
    as_json: Json = False,
):
    """Run one method with many settings at once.

    Without -g, the lists are those of `grid` in the file.

    \b
    Example:
      decibo sweep mine.py -g alpha=0.02,0.05,0.1 -g gamma=0.05,0.1
    """


@app.command()
@work_of("run.check", joined=True)
def check(path: File, method: Method = None, as_json: Json = False):
    """Check the objectives, and show what the theory guarantees.

    \b
    Example:
      decibo check mine.py -m 'ahead_exact[alpha=0.01, gamma=0.1]'
    """


@app.command()
@work_of("report.report")
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run folders, or folders of them.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option("--latex", metavar="FILE", help="Also write a LaTeX table; - prints it."),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also write figures as PNG and PDF.")
    ] = False,
    measure: Annotated[
        str | None, typer.Option(help="The measure of the figures and the LaTeX table.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="WxH", help="Inches of a panel: 3.3x2.4.")
    ] = None,
    font: Annotated[
        float | None, typer.Option(metavar="PT", help="Points of the text in figures.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Logarithmic horizontal axes.")] = False,
    order: Annotated[
        str | None, typer.Option(metavar="LABELS", help="Which runs come first: ahead_exact,ahead.")
    ] = None,
    as_json: Json = False,
):
    """Write one page about runs, for any browser.

    Runs that differ in their seed only are one line with a band, and one row
    with mean and standard deviation.

    \b
    Examples:
      decibo report out/mine-compare
      decibo report out/first out/second --figures --latex table.tex
      decibo report out/mine-compare --figures --size 3.3x2.4 --font 8 --log
    """


@app.command()
@work_of("predict.predict")
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL.json", help="What save() wrote.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV or parquet file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT.csv", help="Where to write.")
    ] = None,
    silo: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Whose personal model predicts which row.")
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option("--missing", metavar="WORD", help="A word for a missing value."),
    ] = None,
    as_json: Json = False,
):
    """Predict the rows of a table by a saved model.

    \b
    Example:
      decibo predict models/heart.json patients.csv -o predicted.csv
    """


@app.command("list")
@work_of("list.listing")
def listing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="methods, problems, networks, measures",
            autocompletion=lambda: ["methods", "problems", "networks", "measures"],
        ),
    ],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="All about this one.")] = None,
    as_json: Json = False,
):
    """List methods, problems, networks or measures.

    \b
    Examples:
      decibo list methods
      decibo list methods ahead_exact
    """


@app.command()
@work_of("doctor.doctor")
def doctor(as_json: Json = False):
    """Show versions, devices, MPI, data and extras."""


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def launch(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="run FILE.py, or python SCRIPT.py.")
    ],
    processes: Annotated[int, typer.Option("--processes", "-n", help="Number of processes.")] = 2,
    restarts: Annotated[int, typer.Option(help="How often to restart after a failure.")] = 0,
    heartbeat: Annotated[
        float, typer.Option(help="Seconds until a silent process counts as lost.")
    ] = 30.0,
    host: Annotated[str, typer.Option(help="The address at which they meet.")] = "127.0.0.1",
) -> int:
    """Start several processes that solve together.

    \b
    Examples:
      decibo launch -n 4 -- run mine.py
      decibo launch -n 4 --restarts 3 -- run mine.py --checkpoint
      decibo launch -n 2 -- python my_script.py
    """
    from decibo.parallel.launch import launch

    code = launch(command, processes, restarts=restarts, heartbeat=heartbeat, host=host)
    return Exit.INTERRUPTED if code == Exit.INTERRUPTED else code


HomeFolder = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="The site's own folder; default ~/.decibo/site."),
]
JobFile = Annotated[
    Path, typer.Argument(metavar="JOB.toml", help="The job; see docs/how-to/sites.md.")
]
Synthetic = Annotated[
    bool,
    typer.Option(
        "--synthetic", help="Use the data that the job's problem has, not this site's own."
    ),
]

SamePrograms = Annotated[
    bool,
    typer.Option(
        "--same-programs",
        help="You know that sites with other versions of decibo or JAX compute the same.",
    ),
]

site = typer.Typer(help="This machine as a site: key, card, checks.", no_args_is_help=True)
app.add_typer(site, name="site")


@site.command("init")
@work_of("site.init")
def init_site(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What other sites call it.")],
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="HOST:PORT", help="Where others can call it, if they can."
        ),
    ] = None,
    home: HomeFolder = None,
    as_json: Json = False,
):
    """Make a key for this site, which never leaves it, and its card.

    \b
    Example:
      decibo site init --name north --address north.example.org:7400
    """


@site.command()
@work_of("site.card")
def card(home: HomeFolder = None, as_json: Json = False):
    """Show the card of this site: what goes into job files."""


@site.command("check")
@work_of("site.check")
def check_site(
    path: JobFile,
    home: HomeFolder = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the neighbours.")] = 5.0,
    synthetic: Synthetic = False,
    trusted: Trusted = None,
    same_programs: SamePrograms = False,
    as_json: Json = False,
):
    """Show what would leave this site, how often and to whom.

    Also asks the neighbours whether they run the same job.
    """


@site.command("status")
@work_of("site.status")
def status_of_site(home: HomeFolder = None, as_json: Json = False):
    """Show where the runs of this site are.

    Their step, for whom they wait, and how long they will take.
    """


@app.command()
@work_of("join.join", compiles=True)
def join(
    path: JobFile,
    home: HomeFolder = None,
    synthetic: Synthetic = False,
    trusted: Trusted = None,
    same_programs: SamePrograms = False,
    as_json: Json = False,
):
    """Take part in a job as the site of this machine.

    After a crash the same command goes on from the last checkpoint.
    """


@app.command()
@work_of("join.relay")
def relay(
    path: JobFile,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")],
    home: HomeFolder = None,
):
    """Connect sites of a job that can only call out.

    It copies what it cannot read: the sites' own encryption goes through.
    """


@app.command()
@work_of("join.rehearse", compiles=True)
def rehearse(
    path: JobFile, home: HomeFolder = None, trusted: Trusted = None, as_json: Json = False
):
    """Try a job on this machine: each site a process.

    The data is that of the job's problem; the result is compared with solve.
    With an estimator it is this site's own table, dealt out to all sites.
    """


def main(
    argv: Sequence[str] | None = None, commands: typer.Typer = app, name: str = "decibo"
) -> None:
    """The entry point, of the studies too: returns after success, and otherwise exits with one of
    the codes in errors.MEANING."""
    code = call(sys.argv[1:] if argv is None else argv, commands, name)
    if code:
        sys.exit(code)


def call(argv: Sequence[str], commands: typer.Typer = app, name: str = "decibo") -> int:
    """Carry out one command line; whatever goes wrong becomes a message and an exit code."""
    # the rest belongs to the command it starts
    own = argv[: argv.index("launch")] if "launch" in argv else argv
    words = [word for word in own if word != "--debug"] + list(argv[len(own) :]) or ["--help"]

    def failed(error: BaseException) -> int:
        code = int(report_error(error, "--debug" in own, "--json" in own))
        if is_watched():  # the others would wait for this process
            end(code)
        return code

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = _Notes()
        try:
            with GracefulStop(patience=0):  # SIGTERM ends a command as Ctrl-C does
                code = commands(words, prog_name=name, standalone_mode=False)
            # what typer makes of KeyboardInterrupt
            if code == Exit.INTERRUPTED and code is not Exit.INTERRUPTED:
                return failed(KeyboardInterrupt())
            return int(code) if isinstance(code, int) else Exit.RAN
        except SystemExit as stop:  # how typer ends when the reader of its output is gone
            if isinstance(stop.__context__, OSError):
                return Exit.RAN
            raise
        except typer.Abort:
            return failed(KeyboardInterrupt())
        except (Exception, KeyboardInterrupt) as error:
            return failed(error)


class _Notes(set[str]):
    """Warnings as notes, one of each kind for a command: several seeds differ in numbers only."""

    def __call__(self, message: Warning | str, *_: object, **__: object) -> None:
        text = one_line(str(message))
        if without_numbers(text) not in self:
            print(f"decibo: note: {text}", file=sys.stderr)
        self.add(without_numbers(text))
