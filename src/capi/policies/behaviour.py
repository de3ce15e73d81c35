"""What was done, as a policy: the probabilities of the logged actions, estimated from a batch.

`cloned` learns them from all episodes; `cross_fitted` gives each row the probabilities that episodes of other folds suggest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from capi._utils.late import late, sklearn
from capi._utils.own_filters import own_filters
from capi._utils.randomness import RandomState, as_generator, shuffled_folds
from capi._utils.row_ops import chosen_entries
from capi._utils.threads import n_threads
from capi._utils.validation import Bools, Floats, Ints, as_allowed, as_states
from capi.data.transitions import Transitions
from capi.errors import LEAST_SHOWN, InvalidInputError
from capi.policies.base import Described
from capi.policies.decisions import in_blocks, one_hot
from capi.trees.projections import Projections

if TYPE_CHECKING:
    from capi.trees import forest as forests
    from capi.trees import ranks, readable_cuts
    from capi.trees.forest import Forest
else:  # they need the compiler
    forests, ranks, readable_cuts = (late(f"capi.trees.{name}") for name in ("forest", "ranks", "readable_cuts"))

N_TREES = 60
LEAF_SIZES = (5, 15, 50, 150, 500)  # rows; the size with the best likelihood on held-out episodes is used
FEW_TREES, MANY_ROWS = 15, 200_000  # fewer trees are enough for more rows
SHARPNESSES = (1.0, 1.25, 1.6, 2.0, 3.0, 4.0)  # powers of the frequencies; chosen with the leaf size
N_FOLDS, FEW_ROWS = (
    5,
    20_000,
)  # folds of the episodes that are held out one by one; with more rows one of them is enough
ENOUGH_ROWS = 50_000  # rows that are enough to choose the leaf size
MIXED_IN = 0.01  # share of the uniform distribution, which keeps all probabilities positive
PROJECTIONS = 30  # combinations of columns that the trees may cut
SMALL_LEAF = 20  # rows in a leaf of a single, readable tree


@dataclass(frozen=True, eq=False)
class _Drawn(Described, ABC):
    """A policy that draws its actions with the frequencies of a model of the log."""

    n_actions: int
    n_features: int

    @abstractmethod
    def _frequencies(self, states: Floats) -> Floats:
        """Return how often the log takes each action in ``states`` (n, d) -> (n, A)."""

    @in_blocks
    def act(self, states: Floats, allowed: Bools | None = None) -> Ints:
        """Return the most frequent (allowed) action, the lowest among equals (n,)."""
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states: Floats, allowed: Bools | None = None) -> Floats:
        """Return the frequencies of the (allowed) actions; even ones where the log takes none of them (n, A)."""
        x = as_states(states, n_features=self.n_features)
        return mixed(self._frequencies(x), as_allowed(allowed, "allowed", (len(x), self.n_actions)), 0.0)


@dataclass(frozen=True, eq=False)
class ClonedBehaviour(_Drawn):
    """What was done, as a policy that draws its actions with the frequencies that they have in the leaves of trees."""

    forest: Forest = field(repr=False)
    sharpness: float = 1.0  # power of the frequencies: averages of many leaves are too even

    def _frequencies(self, states: Floats) -> Floats:
        found = self.forest.mean_values(states)
        return found if self.sharpness == 1 else np.power(found, self.sharpness)

    def rules(self) -> str:
        """Return a sentence on what the policy does."""
        trees = len(self.forest.trees)
        how = "a tree" if trees == 1 else f"{trees} trees"
        return f"What was done: draws each action with the frequency that it has in similar states of the log ({how})."


@dataclass(frozen=True, eq=False)
class ClassifiedBehaviour(_Drawn):
    """What was done, as a policy that draws its actions with the probabilities of a classifier of another library."""

    classifier: Any

    def _frequencies(self, states: Floats) -> Floats:
        return predicted(self.classifier, states, self.n_actions)


def cloned(
    batch: Transitions,
    *,
    classifier: Any = None,
    max_depth: int | None = None,
    projections: int = PROJECTIONS,
    calibrated: bool = True,
    quick: bool = False,
    random_state: RandomState = 0,
    n_jobs: int | None = None,
) -> ClonedBehaviour | ClassifiedBehaviour:
    """Return what was done in ``batch`` as a policy.

    Parameters
    ----------
    batch : Transitions
    classifier : scikit-learn classifier, optional
        Estimates the probabilities; by default trees whose leaf size has the best likelihood on held-out episodes.
    max_depth : int, optional
        A single tree of this depth instead of many deep ones, so that rules can show it.
    projections : int
        Number of random combinations of columns that the trees may cut beside the columns; a single tree cuts columns only.
    calibrated : bool
        Take the frequencies of many trees to the power that has the best likelihood on held-out episodes. Averages over similar states make
        a policy look more random than it is, and a clone that draws from them is worse.
    quick : bool
        Fewer trees, whose leaf size is chosen on one fold of the episodes: a tenth of the time, for a rough clone.
    random_state : int, Generator or None
    n_jobs : int, optional
        Number of threads; the result does not depend on it.

    Examples
    --------
    >>> from capi.testing import random_batch
    >>> batch = random_batch()
    >>> cloned(batch).probabilities(batch.states[:2]).sum(axis=1)
    array([1., 1.])
    """
    rng, everything, threads = as_generator(random_state), np.arange(len(batch)), n_threads(n_jobs)
    if classifier is not None:
        model = fitted_classifier(classifier, batch, everything, rng)
        return ClassifiedBehaviour(batch.n_actions, batch.n_features, model, schema=batch.schema)
    sharpness = 1.0
    if max_depth is not None:
        forest = _small_tree(batch, max_depth, rng)
    else:
        combined = Projections.drawn(batch.states, projections, rng)
        powers = SHARPNESSES if calibrated else (1.0,)
        size, sharpness = _best_settings(batch, rng, threads, combined, powers, quick=quick)
        n_trees = FEW_TREES if quick else None
        forest = grown(batch, everything, size, rng, threads, combined, n_trees=n_trees, blurred=True)
    return ClonedBehaviour(batch.n_actions, batch.n_features, forest, sharpness, schema=batch.schema)


def cross_fitted(
    batch: Transitions,
    fold_of_row: Ints,
    classifier: Any,
    rng: np.random.Generator,
    n_jobs: int | None,
    projections: Projections | None = None,
    *,
    following: bool = False,
) -> tuple[Floats, Floats | None]:
    """Return the probabilities (n, A) of the actions in each state from models that have not seen the row's fold.

    ``fold_of_row`` (n,) numbers the folds from 0. ``classifier`` is a scikit-learn classifier; None uses trees. With ``following`` the second
    result is the probabilities in the next states, from the same models.
    """
    found = np.empty((len(batch), batch.n_actions))
    after = np.empty_like(found) if following else None
    threads = n_threads(n_jobs)
    for k, model in enumerate(fold_models(batch, fold_of_row, classifier, rng, threads, projections)):
        fold = np.flatnonzero(fold_of_row == k)
        found[fold] = model.frequencies(batch.states[fold], threads)
        if after is not None:
            after[fold] = model.frequencies(batch.next_states[fold], threads)
    return mixed(found, batch.allowed), None if after is None else mixed(after, batch.next_masks())


@dataclass(frozen=True, eq=False)
class FoldModel:
    """A model of the logged actions that has not seen one of the folds: trees, or a classifier of another library."""

    forest: Forest | None
    classifier: Any
    n_actions: int

    def frequencies(self, states: Floats, n_jobs: int = 1) -> Floats:
        """Return the frequencies of the actions in similar states (n, A)."""
        if self.forest is None:
            return predicted(self.classifier, states, self.n_actions)
        return self.forest.mean_values(states, n_jobs)

    def bare(self) -> FoldModel:
        """Return the model without the rows that it was learned from."""
        return self if self.forest is None else FoldModel(self.forest.bare(), None, self.n_actions)


def fold_models(
    batch: Transitions,
    fold_of_row: Ints,
    classifier: Any,
    rng: np.random.Generator,
    n_jobs: int,
    projections: Projections | None = None,
) -> Iterator[FoldModel]:
    """Yield, for each fold, a model of the logged actions in all other folds; parameters as in `cross_fitted`."""
    folds = [(np.flatnonzero(fold_of_row != k), np.flatnonzero(fold_of_row == k)) for k in range(fold_of_row.max() + 1)]
    size = None if classifier is not None else leaf_size(batch, *folds[0], rng, n_jobs, projections)
    for rest, _ in folds:
        if size is None:
            yield FoldModel(None, fitted_classifier(classifier, batch, rest, rng), batch.n_actions)
        else:
            yield FoldModel(grown(batch, rest, size, rng, n_jobs, projections), None, batch.n_actions)


def leaf_size(
    batch: Transitions,
    rest: Ints,
    fold: Ints,
    rng: np.random.Generator,
    n_jobs: int,
    projections: Projections | None = None,
) -> int:
    """Return the leaf size whose trees, grown on ``rest``, give the actions of ``fold`` the highest likelihood; large logs are subsampled."""
    found = _likelihoods(batch, rest, fold, rng, n_jobs, projections)
    return max(found, key=lambda setting: found[setting])[0]


def _best_settings(
    batch: Transitions,
    rng: np.random.Generator,
    n_jobs: int,
    projections: Projections | None,
    sharpnesses: Sequence[float],
    *,
    quick: bool = False,
) -> tuple[int, float]:
    """Return the leaf size and the power of the frequencies with the highest likelihood on held-out episodes, for trees that are given away."""
    n_folds = min(N_FOLDS, batch.n_episodes)
    if n_folds < 2:
        return LEAF_SIZES[0], 1.0
    fold_of_row = np.repeat(shuffled_folds(batch.n_episodes, n_folds, rng), batch.episode_lengths)
    found = []
    n_trees = FEW_TREES if quick else None
    for k in range(1 if quick or len(batch) > FEW_ROWS else n_folds):
        rest, fold = np.flatnonzero(fold_of_row != k), np.flatnonzero(fold_of_row == k)
        found.append(
            _likelihoods(batch, rest, fold, rng, n_jobs, projections, sharpnesses, n_trees=n_trees, blurred=True)
        )
    of_all = [setting for setting in found[0] if all(setting in other for other in found)]
    return max(of_all, key=lambda setting: sum(one[setting] for one in found))


def _likelihoods(
    batch: Transitions,
    rest: Ints,
    fold: Ints,
    rng: np.random.Generator,
    n_jobs: int,
    projections: Projections | None,
    sharpnesses: Sequence[float] = (1.0,),
    *,
    n_trees: int | None = None,
    blurred: bool = False,
) -> dict[tuple[int, float], float]:
    """Return the summed log-likelihood of the actions of ``fold`` for each leaf size and power, by trees grown on ``rest``."""
    rest, fold = (rows[:: 1 + len(rows) // ENOUGH_ROWS] for rows in (rest, fold))
    mask = None if batch.allowed is None else batch.allowed[fold]
    found = {}
    for size in LEAF_SIZES:
        if size > LEAF_SIZES[0] and 4 * size > len(rest):
            continue
        forest = grown(batch, rest, size, rng, n_jobs, projections, n_trees=n_trees, blurred=blurred)
        frequencies = forest.mean_values(batch.states[fold], n_jobs)
        for power in sharpnesses:
            taken = chosen_entries(mixed(np.power(frequencies, power), mask), batch.actions[fold])
            found[size, power] = float(np.log(taken).sum())
    return found


def grown(
    batch: Transitions,
    rows: Ints,
    leaf_size: int,
    rng: np.random.Generator,
    n_jobs: int,
    projections: Projections | None = None,
    *,
    n_trees: int | None = None,
    blurred: bool = False,
) -> Forest:
    """Return trees whose leaves have the frequencies of the actions of ``rows``; rows of weight 0 are ignored, unless all are.

    By default there are fewer trees for many rows. ``blurred`` hides numbers of rows below five, so that the trees can be given away.
    """
    rows = _that_count(batch, rows)
    inputs = ranks.encode(batch.states[rows], n_jobs, projections=projections)
    growth = forests.Growth(
        n_trees=n_trees or (N_TREES if len(rows) <= MANY_ROWS else FEW_TREES),
        n_candidates=inputs.n_features,
        min_samples_split=2 * leaf_size,
        min_samples_leaf=leaf_size,
    )
    outputs = one_hot(batch.actions[rows], batch.n_actions)
    weights = _weights(batch, rows)
    forest = forests.grow(inputs, outputs, growth, rng, weights=weights, n_jobs=n_jobs)
    return _blurred(forest, batch.actions[rows]) if blurred else forest


def _blurred(forest: Forest, actions: Ints) -> Forest:
    """Return the trees without what fewer than five rows would give away.

    An action that one to four rows of a leaf take counts as if one row took it, or four if no action of the leaf is more frequent.
    """
    trees = []
    for tree in forest.trees:
        counts = np.zeros(tree.sums.shape)
        np.add.at(counts, (tree.leaf_of_row, actions), 1.0)
        few = (counts > 0) & (counts < LEAST_SHOWN)
        mean_weight = tree.weights / np.maximum(counts.sum(axis=1), 1.0)
        first = np.arange(tree.sums.shape[-1]) == tree.sums.argmax(axis=1)[:, None]
        shown = np.where(first, LEAST_SHOWN - 1.0, 1.0)
        sums = np.where(few, shown * mean_weight[:, None], tree.sums)
        sums /= sums.sum(axis=1, keepdims=True)  # shares: of weighted rows nothing else is told
        ones, none = np.ones(len(sums)), np.zeros(0, dtype=np.int32)
        trees.append(forests.Tree(tree.nodes, tree.above, sums, ones, np.maximum(tree.counts, LEAST_SHOWN), none))
    return forests.Forest(trees, forest.projections)


def _small_tree(batch: Transitions, max_depth: int, rng: np.random.Generator) -> Forest:
    """Return one tree with the best cuts."""
    rows = _that_count(batch, np.arange(len(batch)))
    leaf = max(LEAF_SIZES[0], min(SMALL_LEAF, len(rows) // 50))  # files do not give smaller ones
    growth = forests.Growth(max_depth=max_depth, min_samples_split=2 * leaf, min_samples_leaf=leaf, best_cuts=True)
    outputs = one_hot(batch.actions[rows], batch.n_actions)
    found = forests.grow(ranks.encode(batch.states[rows], 1), outputs, growth, rng, weights=_weights(batch, rows))
    private = _blurred(found, batch.actions[rows])
    return forests.Forest([readable_cuts.with_readable_cuts(private.trees[0])])


def _that_count(batch: Transitions, rows: Ints) -> Ints:
    """Return the rows with weight, or all of them if none has."""
    counted = rows if batch.weights is None else rows[batch.weights[rows] > 0]
    return counted if len(counted) else rows


def _weights(batch: Transitions, rows: Ints) -> Floats | None:
    return None if batch.weights is None or not batch.weights[rows].any() else batch.weights[rows]


def fitted_classifier(classifier: Any, batch: Transitions, rows: Ints, rng: np.random.Generator) -> Any:
    """Return a copy of ``classifier`` that has learned the actions of ``rows``, with seeds from ``rng``."""
    needed = ("fit", "predict_proba", "get_params")
    if isinstance(classifier, type) or not all(hasattr(classifier, name) for name in needed):
        raise InvalidInputError(
            f"the classifier of what was done must have the methods fit, predict_proba and get_params, as those of scikit-learn do; got {classifier!r}."
        )
    known = np.unique(batch.actions[rows])
    if len(known) == 1:  # many classifiers refuse a single class
        return OnlyAction(known)
    model = sklearn.base.clone(classifier)
    seeds: Sequence[str] = [name for name in model.get_params() if name.split("__")[-1] == "random_state"]
    model.set_params(**{name: int(rng.integers(2**31)) for name in sorted(seeds)})
    with own_filters():
        return model.fit(batch.states[rows], batch.actions[rows])


@dataclass(frozen=True, eq=False)
class OnlyAction:
    """The classifier of a log that takes a single action."""

    classes_: Ints  # (1,)

    def predict_proba(self, states: Floats) -> Floats:
        """Return certainty (n, 1)."""
        return np.ones((len(states), 1))


def predicted(model: Any, states: Floats, n_actions: int) -> Floats:
    """Return the probabilities of a fitted classifier for all actions (n, A), also those that it has not seen."""
    found = np.asarray(model.predict_proba(states), dtype=np.float64)
    if found.shape != (len(states), len(model.classes_)) or not (np.isfinite(found).all() and (found >= 0).all()):
        raise InvalidInputError(
            f"behaviour must predict a non-negative probability for each action it has seen; {model!r} does not."
        )
    probabilities = np.zeros((len(states), n_actions))
    probabilities[:, np.asarray(model.classes_, dtype=np.int64)] = found
    return probabilities


def mixed(predicted: Floats, allowed: Bools | None, share: float = MIXED_IN) -> Floats:
    """Return distributions over the allowed actions, mixed with a share of the uniform one."""
    open_to = np.ones_like(predicted) if allowed is None else allowed.astype(np.float64)
    inside = predicted * open_to
    sums = inside.sum(axis=1, keepdims=True)
    uniform = open_to / open_to.sum(axis=1, keepdims=True)
    inside = np.where(sums > 0, inside / np.where(sums > 0, sums, 1.0), uniform)
    found: Floats = (1 - share) * inside + share * uniform
    return found
