"""Finite sets of policies on a finite MDP, as tables with one row of actions per policy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from capi._utils.row_ops import row_max
from capi._utils.threads import one_blas_thread
from capi._utils.validation import Floats, Ints, as_distribution, as_floats, as_int, check_actions
from capi.errors import InvalidInputError
from capi.finite.mdp import FiniteMDP


def half_spaces(n_states: int) -> Ints:
    """Return the policy space of the paper's chain walk: one action up to a state, the other one above it.

    Parameters
    ----------
    n_states : int

    Returns
    -------
    array of shape (2 S, S)
        The actions of each policy: action 0 on the states 0 .. p-1 and 1 on the rest, for p = 1 .. S, then the reverse.

    Examples
    --------
    >>> half_spaces(3)
    array([[0, 1, 1],
           [0, 0, 1],
           [0, 0, 0],
           [1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    n = as_int(n_states, "n_states", minimum=1)
    low = np.arange(n)[None, :] > np.arange(n)[:, None]  # (S, S)
    return np.concatenate([low, ~low]).astype(np.int64)


def as_policies(policies: ArrayLike, mdp: FiniteMDP, name: str = "policies") -> Ints:
    """Return deterministic policies as a table of actions (m, S)."""
    numbers = as_floats(policies, name, ndim=2)
    if numbers.shape[1] != mdp.n_states or not len(numbers):
        raise InvalidInputError(
            f"{name} must have one row of actions per policy, (m, {mdp.n_states}) with m at least 1; got shape {numbers.shape}."
        )
    if (numbers != np.floor(numbers)).any():
        raise InvalidInputError(f"{name} must be actions, whole numbers from 0; use one row per deterministic policy.")
    check_actions(numbers.astype(np.int64).ravel(), mdp.n_actions, name)
    return numbers.astype(np.int64)


def check_mdp(mdp: object) -> FiniteMDP:
    """Return ``mdp``, or refuse what is not a finite MDP."""
    if not isinstance(mdp, FiniteMDP):
        raise InvalidInputError(f"mdp must be a FiniteMDP; got a {type(mdp).__name__}.")
    return mdp


def as_state_weights(value: ArrayLike | None, name: str, mdp: FiniteMDP) -> Floats:
    """Return a distribution over states (S,); by default that of the MDP's start."""
    return mdp.start if value is None else as_distribution(value, name, mdp.n_states)


def regrets_of_all(mdp: FiniteMDP, policies: Ints) -> Floats:
    """Return the regrets of all actions in the values of each policy (m, S, A)."""
    found = np.empty((len(policies), mdp.n_states, mdp.n_actions))
    with (
        one_blas_thread()
    ):  # on systems of a few hundred states other threads only wait, which beside other work takes far longer
        for i, actions in enumerate(policies):
            q = mdp.action_values(actions)
            found[i] = row_max(q)[:, None] - q
    return found
