r"""Policies from any scikit-learn classifier.

A row with regrets r becomes one example per action a, with the weight :math:`\max_b r(b) - r(a)` [1]_: the better the
action, the larger the weight of its example; the worst action has none. A classifier h is wrong on all examples of a row
except that of h(x), so its weighted 0/1 loss is

.. math::
    \sum_a \bigl[\max_b r(b) - r(a)\bigr]\, 1\{h(x) \ne a\} = \text{constant} + r(h(x)),

and the classifier with the least weighted 0/1 loss has exactly the least gap-weighted loss, in any set of classifiers and
for any number of actions. With two actions, the label is the greedy action and the weight is the gap: the paper's weighted
classification. A learner that minimises another loss has no such guarantee; one that estimates the shares of the labels
estimates :math:`\max_b r(b) - r(a)` up to a factor, whose maximiser is the best action.

With masks, only allowed actions have examples. Each state takes its highest-ranked allowed action, so its loss is at most
that of the reduction, which counts a prediction that is not allowed as the worst action.

.. [1] N. Abe, B. Zadrozny, J. Langford, "An iterative method for multi-class cost-sensitive learning", KDD 2004 (the expansion
   of the data space).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from capi._utils.own_filters import own_filters
from capi._utils.parameters import Constraints, check_parameters
from capi._utils.row_ops import row_max
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states
from capi.errors import InvalidInputError
from capi.policies import Deterministic, check_masks_given, first_allowed, permitted
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, Stakes
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class ClassifierPolicy(Deterministic):
    """The prediction of a classifier; where it is not allowed, the allowed action that the classifier ranks highest."""

    model: Any  # fitted to actions; None: the first class everywhere
    classes: Ints  # (c,) the actions with examples, ascending
    n_actions: int
    n_features: int
    masked: bool = False

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the prediction, or the highest-ranked allowed action where the prediction is not allowed (n,)."""
        check_masks_given(self.masked, allowed)
        x = as_states(states, n_features=self.n_features)
        if self.model is None:
            return permitted(np.full(len(x), self.classes[0]), allowed, self.n_actions)
        predicted = np.asarray(self.model.predict(x)).astype(np.int64)
        mask = as_allowed(allowed, "allowed", (len(x), self.n_actions))
        barred = np.zeros(len(x), dtype=bool) if mask is None else ~mask[np.arange(len(x)), predicted]
        if mask is not None and barred.any():
            ranking = np.argsort(-self.scores(x[barred]), axis=1, kind="stable")
            predicted[barred] = first_allowed(ranking, mask[barred])
        return predicted

    def scores(self, states: Floats) -> Floats:
        """Return the classifier's score of each action, minus infinity for actions without examples; (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.n_features)
        table = np.full((len(x), self.n_actions), -np.inf)
        table[:, self.classes] = 0.0 if self.model is None else _rated(self.model, x, len(self.classes))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return a summary: the classifier, and the actions that it can predict."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        return {
            "classifier": None if self.model is None else repr(self.model),
            "actions": [labels[a] for a in self.classes],
        }

    def rules(self) -> str:
        """Return a summary; the rules inside the classifier are not printed."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        if self.model is None:
            return f"always {labels[self.classes[0]]}"
        return f"the prediction of {self.model!r}, one of: {', '.join(str(labels[a]) for a in self.classes)}"


def _check_estimator(value: Any, name: str) -> None:
    needed = ("fit", "predict", "get_params")
    if isinstance(value, type) or not all(hasattr(value, method) for method in needed):
        hint = f" Did you mean {value.__name__}()?" if isinstance(value, type) else ""
        raise InvalidInputError(f"{name} must be a scikit-learn classifier; got {value!r}.{hint}")
    _weight_name(value)


@dataclass(frozen=True, eq=False)
class Classifier(ImprovementSolver[ClassifierPolicy]):
    """Policies of any scikit-learn classifier, learned by a reduction to weighted classification.

    Each state gives one example per action, weighted by how much less the action loses than the worst one in that state
    (the module docstring has the formula). The classifier with the least weighted 0/1 loss then has the least gap-weighted
    loss, for any number of actions. With two actions, the labels are the greedy actions and the weights are the gaps. Rows
    without weight or gap are left out; if only one action has examples, the policy takes it everywhere.

    Weights are scaled to average one over the states with a gap, so the scale of the values and weights does not change
    what a regularised classifier learns.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Its ``fit`` must accept ``sample_weight``; in a pipeline, that of the last step. It is cloned before it is fitted,
        and every ``random_state`` in it is set from ``rng``. Missing values are passed on to it. With masks of allowed
        actions it must have ``decision_function`` or ``predict_proba``, to rank the actions.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> states, values = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0, 0.0], [0.0, 0.2], [0.0, 5.0]])
    >>> policy = Classifier(DecisionTreeClassifier(max_depth=1)).improve(states, values)
    >>> policy.act(np.array([[0.2], [1.8]]))
    array([0, 1])
    """

    estimator: Any

    _constraints: ClassVar[Constraints] = {"estimator": _check_estimator}

    def __post_init__(self) -> None:
        check_parameters(self)

    def solve(
        self,
        problem: ImprovementProblem,
        *,
        q: QFunction | None = None,  # noqa: ARG002  the sample decides alone
        previous: Policy | None = None,  # noqa: ARG002
        rng: np.random.Generator | None = None,
    ) -> ClassifierPolicy:
        """Return the policy of the classifier fitted to the weighted actions."""
        stakes = problem.stakes
        rows, actions, gains = examples(stakes)
        classes = np.unique(actions) if len(actions) else np.zeros(1, dtype=np.int64)
        model = None
        if len(classes) > 1:
            model = self._fitted(stakes.states[rows], actions, gains, rng)
            if problem.masked:
                _rated(model, stakes.states[:1], len(classes))  # raise now, not when the policy acts
        return ClassifierPolicy(model, classes, problem.n_actions, problem.n_features, problem.masked)

    def _fitted(self, states: Floats, actions: Ints, weights: Floats, rng: np.random.Generator | None) -> Any:
        model, generator = clone(self.estimator), np.random.default_rng(0) if rng is None else rng
        random = sorted(name for name in model.get_params() if name.split("__")[-1] == "random_state")
        model.set_params(**{name: int(generator.integers(2**31)) for name in random})
        with own_filters():
            return model.fit(states, actions, **{_weight_name(model): weights})


def examples(stakes: Stakes) -> tuple[Ints, Ints, Floats]:
    """Return the training examples: rows of ``stakes``, actions and weights (e,), all weights positive."""
    known = np.where(np.isinf(stakes.lost), 0.0, stakes.lost)
    gains = np.where(np.isinf(stakes.lost), 0.0, row_max(known)[:, None] - known)  # (m, A)
    rows, actions = np.nonzero(gains)
    return rows, actions, gains[rows, actions] * len(gains)


def _weight_name(estimator: Any) -> str:
    """Return the name of the ``fit`` parameter for row weights, or refuse an estimator without one."""
    prefix, last = "", estimator
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        prefix += f"{name}__"
    if not has_fit_parameter(last, "sample_weight"):
        raise InvalidInputError(
            f"estimator must accept sample_weight in fit (in a pipeline, the last step must); {last!r} does not, so it "
            "cannot give more weight to states that matter more. Choose another classifier."
        )
    return f"{prefix}sample_weight"


def _rated(model: Any, states: Floats, n_classes: int) -> Floats:
    """Return a fitted classifier's scores of its classes; (n, d) -> (n, c)."""
    pairwise = any(value == "ovo" for value in model.get_params().values() if isinstance(value, str))
    if hasattr(model, "decision_function") and (n_classes == 2 or not pairwise):  # SVC's scores may be of pairs
        scores = np.asarray(model.decision_function(states), dtype=np.float64)
        scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
        if scores.shape == (len(states), n_classes):
            return scores
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(states), dtype=np.float64)
    raise InvalidInputError(
        f"with masks of allowed actions the estimator must rank them, with decision_function or predict_proba; {model!r} "
        "has neither. Choose another classifier, or omit allowed."
    )
