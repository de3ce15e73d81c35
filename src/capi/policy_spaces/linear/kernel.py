"""Policies whose scores are spanned by a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from capi._utils.parameters import Constraints, at_least, check_parameters, checked_by, optional
from capi._utils.validation import Floats, as_int, as_positive
from capi.features.dictionary import DEFAULT_KERNEL, KernelDictionary
from capi.features.kernels import Kernel, check_kernel
from capi.features.scaling import Scale, check_scale
from capi.features.tables import fitted_features
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver
from capi.policy_spaces.linear._surrogates import ConvexLoss, Surrogate
from capi.policy_spaces.linear.linear import LinearPolicy, kept_features, learned_weights
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class DictionaryAndConstant:
    """The whitened features of a kernel dictionary, and a constant one."""

    dictionary: KernelDictionary

    def __call__(self, states: Floats) -> Floats:
        """Return the features; (n, d) -> (n, m + 1)."""
        return np.hstack([self.dictionary.transform(states), np.ones((len(states), 1))])


@dataclass(frozen=True, eq=False)
class KernelPolicy(LinearPolicy):
    """The allowed action with the largest score; scores are spanned by a kernel and a constant. See `KernelPolicies`."""

    @property
    def dictionary(self) -> KernelDictionary:
        """The states that span the scores."""
        return self.features.transform.dictionary  # type: ignore[attr-defined]  # it is a DictionaryAndConstant

    def rules(self, digits: int = 3) -> str:
        """Return a summary: the kernel, the number of states that span the scores, and each action's constant and norm."""
        as_int(digits, "digits", minimum=1)
        lines = [
            f"  {action['action']}: constant {action['constant']:.{digits}g}, norm {action['norm']:.{digits}g}"
            for action in self.to_dict()["scores"]
        ]
        n, kernel = len(self.dictionary.centres_), self.dictionary.kernel
        head = (
            f"the action with the largest score, the first among equals; scores are spanned by {kernel!r} at {n} state"
        )
        return "\n".join([f"{head}{'' if n == 1 else 's'} and a constant:", *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return ``kernel`` as text, ``centres``, the scaled states that span the scores, and ``scores``.

        ``scores`` has one dictionary per action with its ``action``, ``constant``, ``norm`` in the space of the kernel, and
        ``weights`` of the kernel at each centre.
        """
        found = self.dictionary
        # f = w.z with z = L^-1 k_D, so the weights of the kernel at the centres are L^-T w.
        spans = np.linalg.solve(found.factor_.T, self.weights[:, :-1].T).T  # (A, m)
        scores = [
            {"action": label, "constant": float(w[-1]), "norm": float(np.linalg.norm(w[:-1])), "weights": span.tolist()}
            for label, w, span in zip(self._labels(), self.weights, spans, strict=True)
        ]
        return {"kernel": repr(found.kernel), "centres": found.centres_.tolist(), "scores": scores}


@dataclass(frozen=True, eq=False)
class KernelPolicies(ImprovementSolver[KernelPolicy]):
    r"""Policies :math:`\pi(x) = \arg\max_a f_a(x) + c_a` with functions f of a reproducing kernel Hilbert space.

    The surrogates are those of `Linear`; the penalty is the strength times :math:`\sum_a \|f_a\|_{\mathcal H}^2 / (A - 1)`, and
    the constants are not penalised. By the representer theorem [1]_ the minimiser is spanned by the kernel at the states of
    the sample. The span of a dictionary of these states (`capi.features.dictionary.KernelDictionary`, a Nystroem
    approximation whose states are chosen so that no state is far from their span) is nearly the same. Its whitened features
    turn the norm into a Euclidean one, so the solver of `Linear` applies. The dictionary is learned once, from all states
    with weight, and reused in later iterations.

    Parameters
    ----------
    kernel : function of states (n, d) and (m, d)
        Similarity of two states, such as ``capi.features.kernels.Gaussian``; it is applied to scaled states.
    strength : float
        Strength of the penalty, relative to the mean loss.
    surrogate : "logistic", "hinge" or "exponential"
        Convex loss of a margin, see `Linear`.
    threshold : float, optional
        A state joins the dictionary if its squared distance to the span of the others exceeds this value. None adds every
        state that is not in that span up to rounding: the exact problem, for up to a few thousand states.
    max_size : int, optional
        Maximum number of states in the dictionary; None: no limit. Ignored by the exact problem.
    scale : "range", "deviation", array of shape (2, d) or None
        Scaling of the states, learned from the sample.
    polish : bool
        Whether to lower the gap-weighted loss itself by line searches, see `Linear`. The default is False, because a rich
        space fits the sample closely enough without it, and each feature costs a line search.
    max_iterations : int
        Maximum number of iterations of the solver for the surrogate.

    References
    ----------
    .. [1] B. Schoelkopf, R. Herbrich, A. J. Smola, "A generalized representer theorem", COLT 2001.

    Examples
    --------
    >>> states = np.linspace(0, 1, 40)[:, None]
    >>> inside = (states[:, 0] > 0.3) & (states[:, 0] < 0.7)
    >>> policy = KernelPolicies().improve(states, np.column_stack([~inside, inside]))
    >>> policy.act(np.array([[0.1], [0.5], [0.9]]))
    array([0, 1, 0])
    """

    kernel: Kernel = DEFAULT_KERNEL
    strength: float = 1e-3
    surrogate: Surrogate = "logistic"
    threshold: float | None = 1e-3
    max_size: int | None = 500
    scale: Scale = "range"
    polish: bool = False
    max_iterations: int = 500

    takes_missing: ClassVar[bool] = False
    _constraints: ClassVar[Constraints] = {
        "kernel": checked_by(check_kernel),
        "scale": checked_by(check_scale),
        "threshold": optional(as_positive),
        "max_size": optional(at_least(1)),
        **{name: ConvexLoss._constraints[name] for name in ("surrogate", "strength", "max_iterations")},
    }

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,
        rng: np.random.Generator | None = None,
    ) -> KernelPolicy:
        """Return the policy that minimises the surrogate; the dictionary of a ``previous`` policy of this space is reused."""
        problem.complete_states()
        features, old = kept_features(previous, self, problem.n_features)
        if features is None:
            found = DictionaryAndConstant(self._dictionary().fit(problem.counted_states))
            features = fitted_features(found, problem.states)
        learned = learned_weights(features, problem, self._convex(), old, rng, polish=self.polish)
        return KernelPolicy(learned, features, self, problem.masked)

    def _dictionary(self) -> KernelDictionary:
        if self.threshold is None:
            return KernelDictionary(self.kernel, threshold=np.finfo(float).tiny, max_size=None, scale=self.scale)
        return KernelDictionary(self.kernel, threshold=self.threshold, max_size=self.max_size, scale=self.scale)

    def _convex(self) -> ConvexLoss:
        return ConvexLoss(self.surrogate, "l2", self.strength, self.max_iterations)
