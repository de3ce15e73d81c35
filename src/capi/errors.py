"""Exceptions and warnings that capi raises.

Exception
└── CapiError                       anything capi refuses to do; catch this one
    ├── InvalidInputError           an argument, a row or a file breaks a rule (also a ValueError)
    ├── NotFittedError              a result was requested before ``fit`` (also scikit-learn's NotFittedError)
    ├── MissingPackageError         an optional package is not installed (also an ImportError)
    ├── SimulationError             a simulator raised, or returned an invalid result (also a RuntimeError)
    └── DivergenceError             numbers that should converge did not (also an ArithmeticError)

UserWarning
├── DictionarySaturatedWarning      a kernel dictionary is full, and some states are represented less closely than requested
├── PathEndedWarning                LARS-TD could not follow its path to the requested penalty
├── KernelCacheWarning              machine code cannot be stored, or a stored file cannot be read
├── CheckpointWarning               the progress of a run cannot be saved; the run continues
├── SettingsWarning                 a setting of a file has no effect
├── UnseenCategoryWarning           rows have categories that a policy was not learned with
└── EvidenceWarning                 an estimate of a policy's value has a caveat

`Caveat` is not raised: it is one of the ``warnings`` of a description or an evaluation, as a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from capi._utils.late import sklearn

Severity = Literal["note", "warning", "severe"]

LEAST_SHOWN = 5  # rows or episodes; reports do not show smaller counts
LARGEST_COUNT = 1e15
NEGLIGIBLE = 0.01  # share of the rows up to which a finding does not make an evaluation unreliable


class CapiError(Exception):
    """Base class of all errors that capi raises deliberately."""


class InvalidInputError(CapiError, ValueError):
    """An argument breaks a rule; the message names it, the first culprit and the remedy."""


class MissingPackageError(CapiError, ImportError):
    """An optional package is not installed; the message says how to install it."""


class NotFittedError(CapiError, ValueError, AttributeError):
    """A learned attribute was requested before ``fit``; raise what `not_fitted` returns."""


def not_fitted(message: str) -> NotFittedError:
    """Return a `NotFittedError` that ``except sklearn.exceptions.NotFittedError`` catches as well."""
    error: NotFittedError = _not_fitted_in_scikit_learn()(message)
    return error


@cache
def _not_fitted_in_scikit_learn() -> type[NotFittedError]:
    """Return the class that is both; importing scikit-learn takes long, so it happens only when the error is raised."""

    class BothError(NotFittedError, sklearn.exceptions.NotFittedError):  # type: ignore[misc]  # scikit-learn ships no types
        def __reduce__(self) -> tuple[Any, ...]:
            return not_fitted, self.args  # errors of parallel workers are pickled, and this class has no address

    BothError.__name__, BothError.__qualname__, BothError.__doc__ = (
        NotFittedError.__name__,
        NotFittedError.__qualname__,
        NotFittedError.__doc__,
    )
    return BothError


class SimulationError(CapiError, RuntimeError):
    """A simulator raised an error or broke the contract of a `Domain`; the message says at which step."""


class ClusterError(CapiError, RuntimeError):
    """A cluster lost its scheduler, or workers die with a task; the message says what to change. Finished work is kept, and runs resume."""


class ClusterWarning(UserWarning):
    """A cluster has no workers; the message says how long results are waited for."""


class DivergenceError(CapiError, ArithmeticError):
    """An iteration that should converge did not; the message says where it stopped and what to change."""


class DictionarySaturatedWarning(UserWarning):
    """A kernel dictionary is full, and it represents some states less closely than requested."""


class PathEndedWarning(UserWarning):
    """LARS-TD's path turned back; the result is the solution for the smallest penalty that it reached."""


class KernelCacheWarning(UserWarning):
    """Machine code cannot be stored or read; it is compiled again, which takes time and changes no result."""


class CheckpointWarning(UserWarning):
    """The progress of a run cannot be saved. The run continues, but an interruption would lose more of it."""


class RareActionWarning(UserWarning):
    """The batch takes some actions so rarely that no policy will choose them."""


class SettingsWarning(UserWarning):
    """A setting of a file has no effect beside the others; the message says which, and why."""


class TableWarning(UserWarning):
    """What is learned from a table will be wrong, for example because a column gives the outcome away; the message says why, and what to do."""


class UnseenCategoryWarning(UserWarning):
    """Rows to decide for have categories that the policy was not learned with; they are treated as missing values."""


class EvidenceWarning(UserWarning):
    """An estimate of a policy's value should be read with caution, or not be trusted at all; the message says why."""


@dataclass(frozen=True)
class Caveat:
    """Something to know before relying on a table or an estimate; its `str` is its text.

    Code that displays caveats decides by the fields what to show, never by the wording of the text.

    Parameters
    ----------
    kind : str
        A stable name for the finding, such as "few-episodes"; ``docs/evidence.md`` lists them. Evaluations written by
        earlier versions have "unknown".
    text : str
        A sentence for people, with all numbers.
    severity : "note", "warning" or "severe"
        "severe": the numbers should not be relied on.
    column : str, optional
        The column that the caveat is about.
    count : int or float, optional
        The number of rows or episodes that the text states, as a number or as a share; if it states several, the one that
        identifies people most easily. None if it states none.
    share : float, optional
        With a count: the count as a share of all rows or episodes that the text is about. Without one: a share of something else,
        such as the value.
    text_without_counts : str, optional
        The text without numbers of rows or episodes, for readers who must not see small ones.
    """

    kind: str
    text: str
    severity: Severity
    column: str | None = None
    count: int | float | None = None
    share: float | None = None
    text_without_counts: str | None = None

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any] | str) -> Caveat:
        """Return the caveat that `to_dict` wrote; a plain string, as in evaluations of earlier versions, gets the kind "unknown"."""
        if isinstance(record, str):
            return cls("unknown", record, "warning")
        if not isinstance(record, Mapping):
            raise InvalidInputError(f"a caveat must be a record or a string; got {record!r}.")
        for name in ("kind", "text"):
            if not isinstance(record.get(name), str):
                raise InvalidInputError(f"the {name!r} of a caveat must be a string; got {record.get(name)!r}.")
        if record.get("severity") not in get_args(Severity):
            raise InvalidInputError(
                f"the 'severity' of a caveat must be one of {', '.join(map(repr, get_args(Severity)))}; got {record.get('severity')!r}."
            )
        for name in ("column", "text_without_counts"):
            if not isinstance(record.get(name), str | None):
                raise InvalidInputError(f"the {name!r} of a caveat must be a string or null; got {record[name]!r}.")
        for name in ("count", "share"):
            value = record.get(name)
            if value is not None and not _is_number(value):
                raise InvalidInputError(
                    f"the {name!r} of a caveat must be a number from 0 to {LARGEST_COUNT:g}, or null; got {value!r}."
                )
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        return cls(**known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT


_RENAMED = {
    "InvalidInput": "InvalidInputError",
    "NotFitted": "NotFittedError",
    "SimulationFailed": "SimulationError",
    "Diverged": "DivergenceError",
    "DictionarySaturated": "DictionarySaturatedWarning",
    "PathEnded": "PathEndedWarning",
}

if not TYPE_CHECKING:  # type checkers would take every name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _RENAMED:
            raise ImportError(f"capi.errors.{name} is now called capi.errors.{_RENAMED[name]}.")
        raise AttributeError(f"module 'capi.errors' has no attribute {name!r}")
