"""What an experiment consists of: settings, one function from a setting and a seed to a record, and functions of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from capi._utils.suggestions import did_you_mean
from capi.errors import InvalidInputError
from capi.experiments import NAMES
from capi.experiments.setting import Setting, Size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from capi.experiments.comparison import Difference, Verdict

SIZES: tuple[Size, ...] = ("quick", "full")
Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]
VERDICTS_OF_PARTS: Mapping[bool | None, Verdict] = {True: "holds", False: "fails", None: "open"}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, paraphrased, and whether the numbers support it."""

    statement: str
    where: str  # in the paper
    holds: bool | None  # None if the records cannot decide it
    numbers: dict[str, Any]
    differences: Mapping[str, Difference] = field(default_factory=dict)  # of paired seeds, by part of the claim
    missing: tuple[str, ...] = ()  # parts without a run
    units: tuple[bool | None, ...] | None = (
        None  # verdicts on what the claim is about, if several differences make up one of them
    )

    @property
    def parts(self) -> tuple[Verdict, ...]:
        """Return the verdict on each part of the claim; a claim without parts is one."""
        each = (*(part.supports for part in self.differences.values()), *(None for _ in self.missing))
        found = (each or (self.holds,)) if self.units is None else self.units
        return tuple(VERDICTS_OF_PARTS[one] for one in found)

    @property
    def verdict(self) -> Verdict:
        """Return whether the claim holds, holds in some of its parts, fails, or is open."""
        if self.holds:
            return "holds"
        if "holds" in self.parts:
            return "holds in part"
        return "open" if self.holds is None else "fails"


class Experiment(Protocol):
    """The interface that the three files of an experiment's folder provide together.

    The functions of records accept any non-empty subset of the records: runs may be unfinished or may have failed.
    """

    COLUMNS: Sequence[str]
    SEEDS: Mapping[Size, int]  # number of seeds by size

    def settings(self, size: Size) -> Sequence[Setting]:
        """Return the settings to run: a few minutes of work, or everything that the paper ran."""

    def run(self, values: Mapping[str, Any], seed: int, n_jobs: int) -> Record:
        """Return the results of a setting with a seed; they do not depend on the number of threads, timings aside."""

    def table(self, records: Sequence[Record]) -> list[Row]:
        """Return the numbers of the figures, one row per point."""

    def summary(self, rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
        """Return the title, headings and lines of a table for the terminal."""

    def figures(self, rows: Sequence[Row]) -> dict[str, Figure]:
        """Return the figures by file name."""

    def claims(self, records: Sequence[Record]) -> dict[str, Claim]:
        """Return the paper's claims with what the records say about them."""


def load_experiment(name: str) -> Experiment:
    """Return the experiment called ``name``."""
    if name not in NAMES:
        raise InvalidInputError(
            f"the experiment must be one of {', '.join(NAMES)}; got {name!r}.{did_you_mean(name, NAMES)}"
        )
    experiment: Any = import_module(package_of(name))
    return experiment


def package_of(name: str) -> str:
    """Return the package of the experiment called ``name``."""
    return f"capi.experiments.{name.replace('-', '_')}"
