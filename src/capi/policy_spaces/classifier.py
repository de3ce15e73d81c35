r"""Policies that are somebody's classifier.

A row with regrets r becomes one example for each action a, with the weight :math:`\max_b r(b) - r(a)` [1]_: the better the
action, the more its example weighs, and the worst has none. A classifier h that errs on all of a row's examples but that of
h(x) has the weighted 0/1 loss

.. math::
    \sum_a \bigl[\max_b r(b) - r(a)\bigr]\, 1\{h(x) \ne a\} = \text{constant} + r(h(x)),

so the classifier with the least weighted 0/1 loss has the least gap-weighted loss, exactly, in any set of classifiers, for
any number of actions. With two actions it is the greedy action as the label and the gap as its weight: the paper's
weighted classification. What a learner makes of it that minimises something else is its own affair; one that estimates the
shares of the labels estimates :math:`\max_b r(b) - r(a)` but for a factor, whose maximiser is the best action.

With masks only allowed actions have examples. A state plays the best-ranked action that it allows, so its loss is at most
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

from capi._utils.parameters import Constraints, check_parameters
from capi._utils.row_ops import row_max
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states
from capi.errors import InvalidInputError
from capi.policies import Deterministic, check_masks_given, first_allowed, permitted
from capi.policy_spaces._problem import ImprovementProblem, ImprovementSolver, Stakes
from capi.types import Policy, QFunction


@dataclass(frozen=True, eq=False)
class ClassifierPolicy(Deterministic):
    """What a classifier predicts; where that is not allowed, the allowed action that it ranks highest."""

    model: Any  # fitted to actions; None: the first of the classes everywhere
    classes: Ints  # (c,) the actions that it knows, ascending
    n_actions: int
    n_features: int
    masked: bool = False

    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the prediction, or the allowed action that ranks highest where it is not allowed (n,)."""
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
        """Return how the classifier rates each action, minus infinity for those that it never saw; (n, d) -> (n, A)."""
        x = as_states(states, n_features=self.n_features)
        table = np.full((len(x), self.n_actions), -np.inf)
        table[:, self.classes] = 0.0 if self.model is None else _rated(self.model, x, len(self.classes))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return a summary: which classifier it is, and the actions that it may take."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        return {
            "classifier": None if self.model is None else repr(self.model),
            "actions": [labels[a] for a in self.classes],
        }

    def rules(self) -> str:
        """Return a summary: a classifier's own rules are its own affair."""
        labels = self.schema.action_labels if self.schema else tuple(range(self.n_actions))
        if self.model is None:
            return f"always {labels[self.classes[0]]}"
        return f"what {self.model!r} predicts, one of: {', '.join(str(labels[a]) for a in self.classes)}"


def _check_estimator(value: Any, name: str) -> None:
    needed = ("fit", "predict", "get_params")
    if isinstance(value, type) or not all(hasattr(value, method) for method in needed):
        hint = f" Did you mean {value.__name__}()?" if isinstance(value, type) else ""
        raise InvalidInputError(f"{name} must be a scikit-learn classifier; got {value!r}.{hint}")
    _weight_name(value)


@dataclass(frozen=True, eq=False)
class Classifier(ImprovementSolver[ClassifierPolicy]):
    """Policies of any scikit-learn classifier, learned by a reduction to weighted classification.

    Each state is one example for each action, weighted by how much less it loses than the worst one there (the module's
    text has the formula): the classifier with the least weighted 0/1 loss has the least gap-weighted loss, for any number of
    actions. With two actions, labels are the greedy actions and weights the gaps. Rows without weight or gap are left out;
    where only one action has examples, it is played everywhere.

    Weights are scaled to a mean of one over the states with a gap, so that the scale of values and weights does not change
    what a regularised classifier learns.

    Parameters
    ----------
    estimator : scikit-learn classifier
        Its ``fit`` must take ``sample_weight``; of a pipeline, that of the last step. It is copied before it is fitted, and
        every ``random_state`` in it is set from ``rng``. Missing values are its business. With masks of allowed actions it
        must have ``decision_function`` or ``predict_proba``, to rank them.

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
        """Return the policy of the classifier that was fitted to the weighted actions."""
        stakes = problem.stakes
        rows, actions, gains = examples(stakes)
        classes = np.unique(actions) if len(actions) else np.zeros(1, dtype=np.int64)
        model = None
        if len(classes) > 1:
            model = self._fitted(stakes.states[rows], actions, gains, rng)
            if problem.masked:
                _rated(model, stakes.states[:1], len(classes))  # refuse what cannot rank now, not when it acts
        return ClassifierPolicy(model, classes, problem.n_actions, problem.n_features, problem.masked)

    def _fitted(self, states: Floats, actions: Ints, weights: Floats, rng: np.random.Generator | None) -> Any:
        model, generator = clone(self.estimator), np.random.default_rng(0) if rng is None else rng
        random = sorted(name for name in model.get_params() if name.split("__")[-1] == "random_state")
        model.set_params(**{name: int(generator.integers(2**31)) for name in random})
        return model.fit(states, actions, **{_weight_name(model): weights})


def examples(stakes: Stakes) -> tuple[Ints, Ints, Floats]:
    """Return what a classifier learns from: rows of what is at stake, their actions and weights (e,), all weights positive."""
    known = np.where(np.isinf(stakes.lost), 0.0, stakes.lost)
    gains = np.where(np.isinf(stakes.lost), 0.0, row_max(known)[:, None] - known)  # (m, A)
    rows, actions = np.nonzero(gains)
    return rows, actions, gains[rows, actions] * len(gains)


def _weight_name(estimator: Any) -> str:
    """Return under which name ``fit`` takes the weights of rows, or refuse an estimator that takes none."""
    prefix, last = "", estimator
    while isinstance(last, Pipeline):
        name, last = last.steps[-1]
        prefix += f"{name}__"
    if not has_fit_parameter(last, "sample_weight"):
        raise InvalidInputError(
            f"estimator must take sample_weight in fit, or the last step of a pipeline must; {last!r} does not, so it cannot "
            "tell states that matter from others. Choose another classifier."
        )
    return f"{prefix}sample_weight"


def _rated(model: Any, states: Floats, n_classes: int) -> Floats:
    """Return how a fitted classifier rates its classes; (n, d) -> (n, c)."""
    pairwise = any(value == "ovo" for value in model.get_params().values() if isinstance(value, str))
    if hasattr(model, "decision_function") and (n_classes == 2 or not pairwise):  # SVC's scores may be those of pairs
        scores = np.asarray(model.decision_function(states), dtype=np.float64)
        scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
        if scores.shape == (len(states), n_classes):
            return scores
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(states), dtype=np.float64)
    raise InvalidInputError(
        f"with masks of allowed actions the estimator must rank them, by decision_function or predict_proba; {model!r} "
        "has neither. Choose another classifier, or leave allowed out."
    )
