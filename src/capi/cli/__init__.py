"""The command-line interface: from a table to a policy, and the paper's experiments."""

try:
    from capi.cli import init, describe, fit, evaluate, compare, diagnose, certify, predict, reproduce, bench, warm_up  # noqa: F401, I001  in the order of the help
    from capi.cli.app import app, main
except KeyboardInterrupt:  # before `main` answers signals
    raise SystemExit(130) from None

__all__ = ["app", "main"]
