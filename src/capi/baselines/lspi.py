"""Least-squares policy iteration, as a setting of the CAPI loop."""

from __future__ import annotations

from capi._utils.randomness import RandomState
from capi.errors import InvalidInputError
from capi.evaluators.bellman_residual import BellmanResidual
from capi.evaluators.lstd import LSTDQ
from capi.learning.iteration import Keep, Loop
from capi.learning.learner import Learner
from capi.policy_spaces import Unrestricted


class LSPI(Learner):
    """Least-squares policy iteration (Lagoudakis and Parr 2003): the greedy policy of LSTD-Q, until it no longer changes.

    LSPI is CAPI with `LSTDQ` and the space of all policies; it adds only its own stopping rule.

    Parameters
    ----------
    evaluator : LSTDQ or BellmanResidual
        Features and ridge.
    discount : float in [0, 1)
        Discount factor.
    n_iterations : int
        Maximum number of rounds.
    patience : int, optional
        Stop after this many consecutive rounds without a changed decision in the states of the batch; None never stops early.
    random_state : int, Generator or None
        The same int gives the same policy.
    keep : "last", "best", or function of an `Iteration`
        Which policy to keep, as in `CAPI`.

    Examples
    --------
    >>> from capi.features.bases import Polynomial
    >>> from capi.testing import random_batch
    >>> learner = LSPI(LSTDQ(Polynomial(1)), discount=0.5).fit(random_batch())
    >>> learner.history_[-1]["changed"]
    0.0
    """

    def __init__(
        self,
        evaluator: LSTDQ | BellmanResidual,
        discount: float,
        n_iterations: int = 20,
        *,
        patience: int | None = 1,
        random_state: RandomState = None,
        keep: Keep = "last",
    ) -> None:
        self.evaluator = evaluator
        self.discount = discount
        self.n_iterations = n_iterations
        self.patience = patience
        self.random_state = random_state
        self.keep = keep

    def loop(self) -> Loop:
        """Return the settings of the loop: one solved linear system per round, all policies."""
        if not isinstance(self.evaluator, LSTDQ | BellmanResidual):
            raise InvalidInputError(f"evaluator must be an LSTDQ or a BellmanResidual; got {self.evaluator!r}.")
        return Loop(
            self.evaluator,
            Unrestricted(),
            self.discount,
            self.n_iterations,
            patience=self.patience,
            random_state=self.random_state,
            keep=self.keep,
        )
