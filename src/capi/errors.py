"""What capi raises and warns with.

Exception
└── CapiError                  anything capi refuses to do; catch this one
    ├── InvalidInput           an argument, a row or a file breaks a rule (also a ValueError)
    ├── NotFitted              asked for a result before ``fit`` (also an AttributeError)
    ├── SimulationFailed       a simulator raised, or returned what it must not
    └── Diverged               numbers grew or moved without end where they should settle (also an ArithmeticError)

UserWarning
├── DictionarySaturated        a kernel dictionary is full, and some states are not represented as closely as asked
└── PathEnded                  LARS-TD could not follow its solutions down to the penalty that was asked for
"""


class CapiError(Exception):
    """Base of every error that capi raises on purpose."""


class InvalidInput(CapiError, ValueError):
    """An argument breaks a rule; the message names it, the first culprit and the remedy."""


class NotFitted(CapiError, AttributeError):
    """A learned attribute was asked for before ``fit``."""


class SimulationFailed(CapiError, RuntimeError):
    """A simulator raised an error or broke the contract of a `Domain`; the message says at which step."""


class Diverged(CapiError, ArithmeticError):
    """An iteration that should settle did not; the message says where it stood and what to change."""


class DictionarySaturated(UserWarning):
    """A kernel dictionary is full while states are left that it does not represent as closely as asked."""


class PathEnded(UserWarning):
    """LARS-TD's path turned back; what is returned is the solution for the smallest penalty that it reached."""


class EvidenceWarning(UserWarning):
    """An estimate of a policy's worth should be read with care, or not be trusted at all; the message says why."""
