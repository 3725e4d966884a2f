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

from decibo.cli import cache
from decibo.cli.check import check
from decibo.cli.compare import compare
from decibo.cli.demo import demo
from decibo.cli.doctor import doctor, version_line
from decibo.cli.errors import MEANING, Exit, one_line, report_error
from decibo.cli.init import init
from decibo.cli.list import listing
from decibo.cli.options import Json, Trusted
from decibo.cli.report import report
from decibo.cli.run import resume, run
from decibo.cli.solving import interruptible
from decibo.cli.sweep import sweep
from decibo.parallel.failure_detection import end, is_watched
from decibo.parallel.launch import launch as launch_processes
from decibo.parallel.processes import init_distributed

CODES = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANING.items())
ABOUT = f"""Decentralised bilevel optimisation: agents solve a two-level problem together.

\b
First steps:
  decibo demo                      four hospitals learn one model
  decibo init                      write mine.py, a file to begin with
  decibo run mine.py               solve what it describes
  decibo compare mine.py           run the methods that it lists
  decibo list methods              methods and their settings

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


def _prepared(command: Callable[..., int]) -> Callable[..., int]:
    """Before anything touches a device: join the other processes, if a launcher started several;
    set up the cache."""

    @wraps(command)
    def call(*arguments: Any, **options: Any) -> int:
        init_distributed()
        cache.enable()
        return command(*arguments, **options)

    return call


app.command()(_prepared(demo))
app.command()(init)
for solving in (run, resume, compare, sweep, check):
    app.command()(_prepared(solving))
app.command()(report)
app.command("list")(listing)
app.command()(doctor)


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
    code = launch_processes(command, processes, restarts=restarts, heartbeat=heartbeat, host=host)
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

site = typer.Typer(help="This machine as a site: key, card, checks.", no_args_is_help=True)
app.add_typer(site, name="site")


@site.command("init")
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
) -> int:
    """Make a key for this site, which never leaves it, and its card.

    \b
    Example:
      decibo site init --name north --address north.example.org:7400
    """
    from decibo.cli.site import init as make_site

    return make_site(name, address, home, as_json)


@site.command()
def card(home: HomeFolder = None, as_json: Json = False) -> int:
    """Show the card of this site: what goes into job files."""
    from decibo.cli.site import card as show_card

    return show_card(home, as_json)


@site.command("check")
def check_site(
    job: JobFile,
    home: HomeFolder = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the neighbours.")] = 5.0,
    synthetic: Synthetic = False,
    trusted: Trusted = None,
    as_json: Json = False,
) -> int:
    """Show what would leave this site, how often and to whom.

    Also asks the neighbours whether they run the same job.
    """
    from decibo.cli.site import check as check_job

    return check_job(job, home, wait, synthetic, trusted or (), as_json)


@app.command()
def join(
    job: JobFile,
    home: HomeFolder = None,
    synthetic: Synthetic = False,
    trusted: Trusted = None,
    as_json: Json = False,
) -> int:
    """Take part in a job as the site of this machine.

    After a crash the same command goes on from the last checkpoint.
    """
    from decibo.cli.join import join as take_part

    cache.enable()
    return take_part(job, home, synthetic, trusted or (), as_json)


@app.command()
def relay(
    job: JobFile,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")],
    home: HomeFolder = None,
) -> int:
    """Connect sites of a job that can only call out.

    It copies what it cannot read: the sites' own encryption goes through.
    """
    from decibo.cli.join import relay as run_relay

    return run_relay(job, listen, home)


@app.command()
def rehearse(job: JobFile, trusted: Trusted = None, as_json: Json = False) -> int:
    """Try a job on this machine: each site a process.

    The data is that of the job's problem; the result is compared with solve.
    """
    from decibo.cli.join import rehearse as try_job

    cache.enable()
    return try_job(job, trusted or (), as_json)


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
            with interruptible():
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
    """Warnings as notes, each once for a command."""

    def __call__(self, message: Warning | str, *_: object, **__: object) -> None:
        text = one_line(str(message))
        if text not in self:
            print(f"decibo: note: {text}", file=sys.stderr)
        self.add(text)
