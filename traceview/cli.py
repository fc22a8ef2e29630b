"""The command line: a group whose commands are the modules of `traceview.commands`.

A command's module is imported when it is used; its line in the help is the first line of its docstring,
read without importing. So ``traceview --help`` loads nothing but click.

Exit codes: 0 ok, 1 a ``--fail-on`` condition holds (or the question has no answer), 2 usage, 3 no usable
trace, 4 some traces were skipped, 70 a bug in traceview, 130 interrupted.
"""

from __future__ import annotations

import ast
import errno
import importlib
import importlib.util
import pkgutil
import traceback
from importlib.abc import InspectLoader
from typing import Any

import click

from traceview import __version__, commands
from traceview.errors import TraceViewError

USAGE, BUG, INTERRUPTED = 2, 70, 130


class Commands(click.Group):
    """A group that finds its commands in a package, and turns errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        """Names of the public modules of `traceview.commands`."""
        return sorted(
            info.name for info in pkgutil.iter_modules(commands.__path__) if not info.name.startswith("_")
        )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command that module ``cmd_name`` declares under its own name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{commands.__name__}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help_line(name)) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's own signature
        """Runs the command; whatever it raises leaves as a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # click leaves silently
            if ctx.meta.get("debug"):
                traceback.print_exc()
            message, exit_code = _explained(error)
            click.echo(f"Error: {message}", err=True)
            raise click.exceptions.Exit(exit_code) from error


def _explained(error: Exception) -> tuple[str, int]:
    """The message and exit code of an exception."""
    if isinstance(error, TraceViewError):
        from traceview.reports.printable import printable  # noqa: PLC0415 - only failures need it

        return printable(str(error), keep="\n"), error.exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f" '{error.filename}'" if error.filename else ""
        hint = "Hint: check the path, its permissions and the disk."
        return f"cannot use{where}: {error.strerror}.\n{hint}", USAGE
    # not the exception's text: it may quote what stands in a trace
    what = f"this is a bug in traceview: {type(error).__name__} in {_origin(error)}."
    return f"{what}\nHint: --debug shows how it came about.", BUG


def _origin(error: Exception) -> str:
    """Module and line of traceview's own innermost frame."""
    places = [
        (frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    module, line = [place for place in places if place[0].startswith("traceview.")][-1]
    return f"{module}:{line}"


def _help_line(name: str) -> str:
    """The first line of the docstring of ``commands/name.py``."""
    spec = importlib.util.find_spec(f"{commands.__name__}.{name}")
    source = spec.loader.get_source(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
    docstring = ast.get_docstring(ast.parse(source or "")) or ""
    return docstring.partition("\n")[0].rstrip(".")


@click.group(
    name="traceview",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="TRACE is a trace file, a directory of them (one file per rank), or a quoted glob.",
)
@click.version_option(__version__, prog_name="traceview")
def main() -> None:
    """Where a Mixture-of-Experts training step goes, from profiler traces alone."""
    from traceview.commands import _environment  # noqa: PLC0415 - not for --help

    _environment.apply()
