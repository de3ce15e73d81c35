"""The application that commands register with, and its entry point."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from capi._utils.compiling import announced
from capi._utils.versions import environment
from capi.cli.interrupts import answer_signals, end_interrupted, exit_code
from capi.cli.output import with_output_options
from capi.errors import CapiError

Function = TypeVar("Function", bound=Callable[..., Any])

WIDTH = 12  # of names in a list of versions
RENAMED_OPTIONS = {
    "--iterations": "--n-iterations",
    "--seed": "--random-state",
    "--sweeps": "--n-sweeps",
    "--resamples": "--n-resamples",
}


class CommandWithRenamedOptions(TyperCommand):
    """A command that refuses renamed options with an error that gives the new name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse renamed options, then parse the arguments."""
        known = {name for parameter in self.params for name in parameter.opts}
        for argument in args:
            old = argument.partition("=")[0]
            if RENAMED_OPTIONS.get(old) in known:
                ctx.fail(f"{old} is now called {RENAMED_OPTIONS[old]}.")
        return super().parse_args(ctx, args)


class InterruptibleGroup(TyperGroup):
    """The commands; an interrupted one ends with exit code 130 or 143."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _print_note("stopped.")
            raise typer.Exit(exit_code()) from None


class App(typer.Typer):
    """An application all of whose commands have ``--quiet`` and ``--verbose``."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Function], Function]:
        """Register a command; a decorator."""
        register = super().command(name, **settings)

        def decorate(function: Function) -> Function:
            register(with_output_options(function))
            return function

        return decorate


app = App(
    name="capi",
    cls=InterruptibleGroup,
    help="Learn decision policies from a fixed batch of logged decisions.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        found = environment()
        typer.echo(f"capi {found.pop('capi')}")
        typer.echo("\n".join(f"{name:<{WIDTH}}  {version}" for name, version in found.items()))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the versions that a bug report needs, and exit."
        ),
    ] = False,
) -> None:
    """Learn decision policies from a fixed batch of logged decisions."""


def main() -> None:
    """Run the command line; expected errors print one sentence and exit with code 1."""
    try:
        answer_signals()
        warnings.showwarning = _print_warning
        with announced(_print_note):
            app()
    except CapiError as error:
        print_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        end_interrupted()
        sys.exit(exit_code())
    except SystemExit:  # also what typer makes of an interrupt outside a command, with code 130 for all signals
        end_interrupted()
        raise


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as a sentence, without the line of code that issued it."""
    typer.echo(f"{typer.style('warning:', fg='yellow', bold=True)} {message}", err=True)


def _print_note(text: str) -> None:
    typer.echo(text, err=True)


def print_error(error: CapiError) -> None:
    """Print an expected error on standard error."""
    typer.echo(f"{typer.style('error:', fg='red', bold=True)} {error}", err=True)
