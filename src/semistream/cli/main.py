"""`semistream`: the command itself.

Commands import what they need when they run: Spark and Numba take seconds to load, and whoever asks for help should
not wait for them. A mistake of the user's is a sentence and exit code 2; a traceback would mean that the mistake is
ours.
"""

from __future__ import annotations

import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semistream.cli.advise import advise
from semistream.cli.algorithms import algorithms
from semistream.cli.bench import bench
from semistream.cli.calibrate import calibrate
from semistream.cli.demo import demo
from semistream.cli.index import index
from semistream.cli.lab import lab
from semistream.cli.plan import plan
from semistream.cli.tune import tune
from semistream.errors import SemistreamError

EXIT_MISTAKE = 2
EXIT_INTERRUPTED = 130
"""What a shell reports for a command that ended by Ctrl-C."""


EXIT_TERMINATED = 128 + signal.SIGTERM
"""The same for one that was asked to end."""


class PlainErrors(TyperGroup):
    """Runs a command and turns what the user can cause into words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except SemistreamError as error:
            from semistream.cli.output import print_error

            print_error(error)
            raise typer.Exit(EXIT_MISTAKE) from None
        except KeyboardInterrupt:
            typer.echo("stopped.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    cls=PlainErrors,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: it keeps the line breaks of examples, and needs no library that takes time to load.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("index")(index)
app.command("demo")(demo)
app.command("algorithms")(algorithms)
app.command("plan")(plan)
app.command("tune")(tune)
app.command("advise")(advise)
app.command("calibrate")(calibrate)
app.add_typer(lab, name="lab")
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"semistream {version('semistream')}")
        raise typer.Exit()


@app.callback()
def semistream(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Enrich a live Spark stream with master data that is too large for memory, inside a memory budget you set.

    \b
    Example:
      semistream demo
      semistream index products.parquet --key product_id --out relations/products
    """  # noqa: D301 - typer keeps the lines behind this mark as they are


def main() -> None:
    """Run the command line."""
    # A terminal without UTF-8 shows a question mark for what it lacks, rather than an error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # Whoever is asked to end ends the processes it has started as well, and removes what it has strewn about.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    app()


if __name__ == "__main__":
    main()
