"""The command-line interface: from a table to a policy, and the paper's experiments."""

from capi.cli import describe, fit, evaluate, predict, reproduce, bench  # noqa: F401, I001  in the order of the help
from capi.cli.app import app, main

__all__ = ["app", "main"]
