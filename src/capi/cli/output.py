"""What every command has: ``--quiet``, ``--verbose`` and ``--json``."""

from __future__ import annotations

import inspect
import io
import json
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import wraps
from time import perf_counter
from typing import Annotated, Any

import typer

from capi._utils.threads import n_threads
from capi._utils.versions import versions
from capi.errors import CapiError, InvalidInputError

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results only; messages appear if the command fails.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Also print versions, times, and the tracebacks of errors.")]
OPTIONS = {"quiet": Quiet, "verbose": Verbose}


def with_output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with two more options: ``--quiet`` and ``--verbose``."""

    @wraps(command)
    def run(*args: Any, quiet: bool = False, verbose: bool = False, **kwargs: Any) -> Any:
        if quiet and verbose:
            raise InvalidInputError("--quiet and --verbose exclude each other. Choose one.")
        return (_quietly if quiet else _verbosely if verbose else _plainly)(lambda: command(*args, **kwargs))

    signature = inspect.signature(command, eval_str=True)  # the modules' annotations are text
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in OPTIONS.items()
    ]
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in run.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return run


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object on standard output; values that JSON lacks, such as paths, become text."""
    typer.echo(json.dumps(record, default=str))


def _plainly(run: Callable[[], Any]) -> Any:
    return run()


def _quietly(run: Callable[[], Any]) -> Any:
    """Run a command and hold back what it writes to standard error, unless it fails."""
    held = io.StringIO()
    try:
        with redirect_stderr(held):
            return run()
    except BaseException as error:
        if not isinstance(error, typer.Exit) or error.exit_code:
            sys.stderr.write(held.getvalue())
        raise


def _verbosely(run: Callable[[], Any]) -> Any:
    started = perf_counter()
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    typer.echo(f"versions  {used}; {n_threads(-1)} threads", err=True)
    try:
        return run()
    except CapiError:
        traceback.print_exc()
        raise
    finally:
        typer.echo(f"time      {perf_counter() - started:.1f} s", err=True)
