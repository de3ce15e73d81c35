"""What capi raises and warns with.

Exception
└── CapiError                  anything capi refuses to do; catch this one
    ├── InvalidInput           an argument, a row or a file breaks a rule (also a ValueError)
    ├── NotFitted              asked for a result before ``fit`` (also an AttributeError)
    └── SimulationFailed       a simulator raised, or returned what it must not
"""


class CapiError(Exception):
    """Base of every error that capi raises on purpose."""


class InvalidInput(CapiError, ValueError):
    """An argument breaks a rule; the message names it, the first culprit and the remedy."""


class NotFitted(CapiError, AttributeError):
    """A learned attribute was asked for before ``fit``."""


class SimulationFailed(CapiError, RuntimeError):
    """A simulator raised an error or broke the contract of a `Domain`; the message says at which step."""
