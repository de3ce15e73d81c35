"""HIV treatment: which drugs to give when, so that the patient's immune response takes over.

What it is: counts of healthy and infected cells, free virus and immune cells follow six differential equations; every five
days a policy decides which of two kinds of drugs to give. What is hard about it: without a schedule that few policies find,
the patient stays in an unhealthy steady state, and the healthy one is four orders of magnitude more rewarding.

Source: the model of Adams et al. (2004) with the costs of Ernst et al. (2006), as in five public programs. The paper
(Section 5.2) says "as Ernst et al."; it does not say whether the reward is that of the state before or after the five
days: that is an argument.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.late import late
from capi._utils.parameters import Constraints, check_parameters, instance_of, one_of, satisfying
from capi._utils.threads import in_threads, n_threads
from capi._utils.validation import (
    Bools,
    Floats,
    Ints,
    as_discount,
    as_domain_step,
    as_floats,
    as_int,
    as_positive,
    as_share,
    check_choice,
    is_real,
)
from capi.errors import InvalidInputError, SimulationError

if TYPE_CHECKING:
    from capi.domains import _hiv
else:  # the compiler is loaded on the first simulation
    _hiv = late("capi.domains._hiv")

RTI, PI = 0.7, 0.3  # efficacies of the drugs when given
EFFICACIES = np.array([[0.0, 0.0], [RTI, 0.0], [0.0, PI], [RTI, PI]])  # (4, 2) by action
VIRUS_COST, RTI_COST, DEFENCE_REWARD = 0.1, 20_000.0, 1_000.0  # Q, R1 and S of Ernst et al.
TOLERANCE = 1e-7  # relative, per step of the solver
LEAST_SHOWN = 1e-10  # a count of zero is shown as the logarithm of this
LOG_OF_LEAST = -10.0
ROWS_AT_ONCE = 64

STEADY_STATES = {  # without drugs, as quoted in the literature; in the order of the state's columns
    "unhealthy": (163_573.0, 5.0, 11_945.0, 46.0, 63_919.0, 24.0),
    "healthy": (967_839.0, 621.0, 76.0, 6.0, 415.0, 353_108.0),
    "uninfected": (1e6, 3_198.0, 0.0, 0.0, 0.0, 10.0),
}


@dataclass(frozen=True)
class Patient:
    """Parameters of the equations, in cells per ml, virions per ml and days."""

    lambda1: float = 1e4  # production of healthy CD4+ cells
    d1: float = 0.01  # their death rate
    k1: float = 8e-7  # infection rate of CD4+ cells
    lambda2: float = 31.98  # production of healthy macrophages
    d2: float = 0.01  # their death rate
    k2: float = 1e-4  # infection rate of macrophages
    f: float = 0.34  # share of the RTI's efficacy in macrophages
    delta: float = 0.7  # death rate of infected cells
    m1: float = 1e-5  # clearance of infected CD4+ cells by the immune response
    m2: float = 1e-5  # clearance of infected macrophages by it
    n_virions: float = 100.0  # produced per infected cell
    c: float = 13.0  # death rate of free virus
    rho1: float = 1.0  # virions per infection of a CD4+ cell
    rho2: float = 1.0  # virions per infection of a macrophage
    lambda_e: float = 1.0  # production of cytotoxic cells, the immune response
    b_e: float = 0.3  # their largest growth rate through infection
    k_b: float = 100.0  # infected cells at which growth is half of that
    d_e: float = 0.25  # their largest death rate through infection
    k_d: float = 500.0  # infected cells at which death is half of that
    delta_e: float = 0.1  # their natural death rate

    _constraints: ClassVar[Constraints]

    def __post_init__(self) -> None:
        check_parameters(self)


Patient._constraints = dict.fromkeys((parameter.name for parameter in fields(Patient)), as_positive)


def _start_counts(start: Any, name: str = "start") -> Floats:
    """Return a steady state by its name, or the counts (6,) as given."""
    if isinstance(start, str):
        check_choice(start, name, STEADY_STATES)
        return np.array(STEADY_STATES[start])
    counts = as_floats(start, name, ndim=1)
    if counts.shape != (6,) or not (counts >= 0).all():
        raise InvalidInputError(f"{name} must be a name or six non-negative counts; got {start!r}.")
    return counts


@dataclass(frozen=True, eq=False)
class HIV:
    """A patient with HIV as a `Domain`: each step gives no drug, one of two drugs, or both for five days.

    ============  ==============================================================================================
    state         T1, T2 healthy cells, T1*, T2* infected cells, V free virus, E immune cells; log10 by default
    actions       0 none, 1 RTI (efficacy 0.7), 2 PI (0.3), 3 both; held for ``days`` days
    reward        1000 E - 0.1 V - 20000 RTI^2 - ``pi_cost`` PI^2
    start         the unhealthy steady state
    end           never
    ============  ==============================================================================================

    Parameters
    ----------
    reward_on : "state" or "next_state"
        Whether E and V before the step or after it are rewarded.
    pi_cost : float
        2000 as in Ernst et al.; programs based on Adams et al. use 20000.
    observe : "log10" or "counts"
        Content of the state's columns. A count of zero is shown as log10 of 1e-10.
    start : "unhealthy", "healthy", "uninfected" or six counts
    start_spread : float in [0, 1]
        Each count of a start state is multiplied by a number between 1 - spread and 1 + spread.
    patient : Patient
        Parameters of the model; `perturbed` draws other patients.
    discount : float in [0, 1)
    days : float
        How long an action is held.
    n_jobs : int, optional
        Number of threads; -1 uses all cores, None one thread. The result does not depend on it.

    Examples
    --------
    >>> hiv = HIV(observe="counts")
    >>> states = np.repeat([hiv.start_state], 4, axis=0)
    >>> following, rewards, terminated = hiv.step(states, np.arange(4), np.random.default_rng(0))
    >>> rewards.round().tolist()
    [17608.0, 7808.0, 17428.0, 7628.0]
    >>> following[3, 4] < following[0, 4]  # both drugs lower the virus
    np.True_
    """

    reward_on: Literal["state", "next_state"] = "state"
    pi_cost: float = 2_000.0
    observe: Literal["log10", "counts"] = "log10"
    start: Literal["unhealthy", "healthy", "uninfected"] | ArrayLike = "unhealthy"
    start_spread: float = 0.0
    patient: Patient = field(default_factory=Patient)
    discount: float = 0.98
    days: float = 5.0
    n_jobs: int | None = None

    n_actions = 4
    action_labels = ("none", "RTI", "PI", "RTI+PI")

    _constraints: ClassVar[Constraints] = {
        "reward_on": one_of("state", "next_state"),
        "pi_cost": satisfying(lambda cost: is_real(cost) and 0 <= cost < np.inf, "be a non-negative number"),
        "observe": one_of("log10", "counts"),
        "start": _start_counts,
        "start_spread": as_share,
        "patient": instance_of(Patient, "a Patient"),
        "discount": as_discount,
        "days": as_positive,
        "n_jobs": n_threads,
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the six columns."""
        names = ("T1", "T2", "T1*", "T2*", "V", "E")
        return names if self.observe == "counts" else tuple(f"log10 {name}" for name in names)

    @cached_property
    def start_state(self) -> Floats:
        """The start state (6,), as it is observed."""
        return self.observed(_start_counts(self.start))

    def perturbed(self, rng: np.random.Generator, spread: float = 0.1) -> HIV:
        """Return the same problem with another patient: each parameter times a number between 1 - spread and 1 + spread."""
        if not isinstance(rng, np.random.Generator):
            raise InvalidInputError(f"rng must be a numpy Generator; got {rng!r}. Pass np.random.default_rng(seed).")
        if not is_real(spread) or not 0 <= spread < 1:
            raise InvalidInputError(f"spread must be at least 0 and below 1; got {spread!r}.")
        factors = rng.uniform(1 - spread, 1 + spread, size=len(fields(Patient)))
        values = {name: value * u for (name, value), u in zip(asdict(self.patient).items(), factors, strict=True)}
        return replace(self, patient=Patient(**values))

    def initial(self, n: int, rng: np.random.Generator) -> Floats:
        """Return ``n`` start states (n, 6), observed."""
        as_int(n, "n", minimum=1)
        if self.start_spread == 0:
            return np.repeat(self.start_state[None], n, axis=0)
        factors = rng.uniform(1 - self.start_spread, 1 + self.start_spread, size=(n, 6))
        return self.observed(self.counts(self.start_state[None]) * factors)

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Floats, Floats, Bools]:  # noqa: ARG002
        """Give each patient's drugs for ``days`` days; return next states (n, 6), rewards (n,) and terminated (n,), all False."""
        x, a = as_domain_step(states, actions, n_features=6, n_actions=4)
        before = self.counts(x)
        if (before < 0).any():
            i = int(np.argmax((before < 0).any(axis=1)))
            raise InvalidInputError(f"states must be non-negative counts; first culprit states[{i}] = {x[i]}.")
        after = self._after(before, EFFICACIES[a])
        virus, defence = (before if self.reward_on == "state" else after)[:, 4:].T
        drugs = EFFICACIES[a] ** 2 @ [RTI_COST, self.pi_cost]
        rewards = DEFENCE_REWARD * defence - VIRUS_COST * virus - drugs
        return self.observed(after), rewards, np.zeros(len(x), dtype=bool)

    def observed(self, counts: Floats) -> Floats:
        """Return the observation of ``counts`` (n, 6)."""
        if self.observe == "counts":
            return counts
        shown = np.maximum(counts, LEAST_SHOWN, order="C")
        _hiv.logarithms(shown.reshape(-1), shown.reshape(-1))
        return shown

    def counts(self, states: Floats) -> Floats:
        """Return the counts of observed ``states`` (n, 6)."""
        if self.observe == "counts":
            return np.array(states, dtype=np.float64)
        counts = np.array(states, dtype=np.float64, order="C")
        _hiv.powers(10.0, counts.reshape(-1), counts.reshape(-1))
        return np.where(np.asarray(states) <= LOG_OF_LEAST, 0.0, counts)

    def _after(self, counts: Floats, efficacies: Floats) -> Floats:
        """Return the counts (n, 6) after ``days`` days."""
        x, parameters = np.array(counts, order="C"), np.array(list(asdict(self.patient).values()))

        def advance(first: int) -> int:
            rows = slice(first, first + ROWS_AT_ONCE)
            failed = _hiv.advance_all(x[rows], efficacies[rows], float(self.days), parameters, TOLERANCE)
            return first + failed if failed >= 0 else -1

        failed = [i for i in in_threads(advance, range(0, len(x), ROWS_AT_ONCE), n_threads(self.n_jobs)) if i >= 0]
        if failed:
            raise SimulationError(
                f"HIV's equations could not be solved from counts {counts[failed[0]]} (row {failed[0]}): they change faster "
                "than the smallest step can follow. Start from counts that a patient can have."
            )
        return x
