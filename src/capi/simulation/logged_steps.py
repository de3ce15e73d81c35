"""Values of policies in episodes that are put together from the steps of a log.

An average over similar rows sends a state to where those rows went, and so a policy may move along by averaging alone: the coarser the averages,
the more. Here a state moves by as much as a similar row did. The linear part of that movement depends on the state itself, the rest, the reward
and the end are those of a row, drawn from the leaf of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from capi._utils.randomness import shuffled_folds
from capi._utils.row_ops import draw_columns
from capi._utils.threads import one_blas_thread
from capi._utils.validation import Bools, Floats, Ints
from capi.data.elapsed import step_factors, times_factors
from capi.data.transitions import Transitions
from capi.trees.forest import Forest, Growth, grow
from capi.trees.projections import Projections
from capi.trees.ranks import encode
from capi.types import Policy, StateSample

N_TREES, LEAF, PROJECTIONS = 30, 3, 20
RIDGE = 1e-3  # of the linear part, relative to the variance of a column
FEW_VALUES = 10  # columns with so many values at most are not moved, but taken from the row
USUAL = 0.95  # share of the log's rows that are known from the other episodes
CLEARLY = 0.9  # of the squared error of rows, if states that repeat are moved instead
LOST = 0.1  # probability that a step from an unknown state and action ends in the worst way
SAME = 1e-9  # distances that differ by so little are equal
MOST_COMPARED = 5_000  # rows of an action among which the nearest one is looked for


@dataclass(frozen=True, eq=False)
class StepsOfAction:
    """The rows of one action, and the trees that say which of them are similar."""

    rows: Ints  # (m,)
    forest: Forest
    slopes: Floats  # (d + 1, d) the linear part of the movement
    members: Ints  # (T m,) rows in the order of the leaves
    reached: Floats  # (T m + 1,) sums of the weights in that order
    leaf_ends: Ints  # (l + 1,) where leaves begin and end in that order
    rewards: Floats  # (l,) mean rewards of the leaves
    near: cKDTree  # tree of the scaled states, for distances

    def drawn(self, states: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Return a row of the leaf of each state in a random tree (k,), and the mean reward over all trees (k,)."""
        leaves = self.forest.leaves(states)  # (T, k)
        mine = leaves[rng.integers(len(leaves), size=len(states)), np.arange(len(states))]
        first, last = self.reached[self.leaf_ends[mine]], self.reached[self.leaf_ends[mine + 1]]
        places = np.searchsorted(self.reached, first + rng.random(len(states)) * (last - first), side="right") - 1
        inside = np.clip(places, self.leaf_ends[mine], self.leaf_ends[mine + 1] - 1)
        return self.rows[self.members[inside]], self.rewards[leaves].mean(axis=0)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A log as a process in which any policy can be simulated, and how far from the log its states and actions are."""

    batch: Transitions
    discount: float
    actions: list[StepsOfAction | None]
    centre: Floats  # (d,)
    scale: Floats  # (d,)
    moves: Bools  # (d,) columns that are moved; the others are taken from rows
    usual: float  # distance to the nearest row that is usual for other episodes of the log
    places: tuple[Floats, ...] | None = None  # if states repeat, the values of each column in order

    @classmethod
    @one_blas_thread()
    def of(
        cls, batch: Transitions, others: Transitions | None, discount: float, seed: int, n_jobs: int = 1
    ) -> Surroundings:
        """Return the process of the episodes of ``batch``; ``others`` are other episodes of the same log.

        Without others, one half of the episodes says how far its rows usually are from those of the other half.
        """
        rng = np.random.default_rng(seed)
        counted = np.ones(len(batch)) if batch.weights is None else batch.weights
        centre, scale = _moments(batch.states)
        projections = Projections.drawn(batch.states, PROJECTIONS, rng)
        plain = cls(batch, discount, [], centre, scale, moving_columns(batch), np.inf)
        parts = [
            plain._of_action(np.flatnonzero((batch.actions == a) & (counted > 0)), counted, projections, rng, n_jobs)
            for a in range(batch.n_actions)
        ]
        found = replace(plain, actions=parts)
        tested, draw = (batch, np.random.default_rng(seed)) if others is None else (others, rng)
        chosen = draw.permutation(len(tested))[:MOST_COMPARED]
        if states_repeat(batch):
            both = np.concatenate([batch.states, batch.next_states])
            found = replace(found, places=tuple(np.unique(column[np.isfinite(column)]) for column in both.T))
            found = replace(found, moves=found._better_moved(tested, chosen, seed))
        distances = (
            found._within(rng) if others is None else found.distances(tested.states[chosen], tested.actions[chosen])
        )
        distances = distances[np.isfinite(distances)]
        return replace(found, usual=float(np.quantile(distances, USUAL)) if len(distances) else np.inf)

    def _within(self, rng: np.random.Generator) -> Floats:
        """Return the distances of some rows of one half of the episodes from the nearest rows of the other half (m,)."""
        b = self.batch
        first = np.repeat(shuffled_folds(b.n_episodes, 2, rng), b.episode_lengths) == 0
        rows = [rng.permutation(np.flatnonzero(first & (b.actions == a)))[:MOST_COMPARED] for a in range(b.n_actions)]
        near = [cKDTree(self._scaled(b.states[mine])) if len(mine) else None for mine in rows]
        asked = rng.permutation(np.flatnonzero(~first))[:MOST_COMPARED]
        return _distances(near, self._scaled(b.states[asked]), b.actions[asked])

    @property
    def _near(self) -> list[cKDTree | None]:
        return [None if part is None else part.near for part in self.actions]

    def _better_moved(self, others: Transitions, chosen: Ints, seed: int) -> Bools:
        """Return which columns are nearer to the next states of other episodes if they are moved than if they are taken from rows (d,).

        States that repeat may be places on a line or names of states: similar rows then start elsewhere and also end elsewhere.
        """
        rows, _, moved = self.step(others.states[chosen], others.actions[chosen], np.random.default_rng(seed))
        true = others.next_states[chosen]
        errors = [
            np.nan_to_num(np.square((x - true)[rows >= 0])).sum(axis=0) for x in (moved, self.batch.next_states[rows])
        ]
        return self.moves & (errors[0] < CLEARLY * errors[1])

    def _of_action(
        self, rows: Ints, counted: Floats, projections: Projections | None, rng: np.random.Generator, n_jobs: int
    ) -> StepsOfAction | None:
        if not len(rows):
            return None
        b, weights = self.batch, counted[rows]
        inputs = self._linear(b.states[rows])
        moved = np.nan_to_num((b.next_states[rows] - b.states[rows]) / self.scale)
        penalty = RIDGE * weights.sum() * np.diag([0.0] + [1.0] * (inputs.shape[1] - 1))
        slopes = np.linalg.lstsq(
            (inputs * weights[:, None]).T @ inputs + penalty, (inputs * weights[:, None]).T @ moved, rcond=None
        )[0]
        outputs = np.column_stack([moved - inputs @ slopes, b.rewards[rows], b.terminated[rows]])
        growth = Growth(n_trees=N_TREES, min_samples_split=2 * LEAF, min_samples_leaf=LEAF)
        forest = grow(
            encode(b.states[rows], n_jobs, projections=projections),
            _standardised(outputs),
            growth,
            rng,
            weights=weights,
            n_jobs=n_jobs,
        )
        leaves = np.concatenate(
            [tree.leaf_of_row + first for tree, first in zip(forest.trees, forest.leaf_starts[:-1], strict=True)]
        )
        order = np.argsort(leaves, kind="stable")
        members = order % len(rows)
        sums = np.bincount(leaves, np.tile(weights, N_TREES))
        rewards = np.bincount(leaves, np.tile(weights * b.rewards[rows], N_TREES)) / sums
        compared = rows if len(rows) <= MOST_COMPARED else np.sort(rng.permutation(rows)[:MOST_COMPARED])
        return StepsOfAction(
            rows,
            forest,
            slopes,
            members,
            np.append(0.0, np.cumsum(weights[members])),
            np.append(0, np.cumsum(np.bincount(leaves))),
            rewards,
            cKDTree(self._scaled(b.states[compared])),
        )

    def _scaled(self, states: Floats) -> Floats:
        return np.nan_to_num((states - self.centre) / self.scale)

    def _linear(self, states: Floats) -> Floats:
        return np.column_stack([np.ones(len(states)), self._scaled(states)])

    def distances(self, states: Floats, actions: Ints) -> Floats:
        """Return the distance of each state to the nearest row with the same action, in standard deviations (k,)."""
        return _distances(self._near, self._scaled(states), actions)

    def far(self, states: Floats, actions: Ints) -> Bools:
        """Return whether the nearest row with the same action is farther away than usual (k,)."""
        limit = self.usual * (1 + SAME) + SAME  # a search up to here is faster than one without a limit
        return ~np.isfinite(_distances(self._near, self._scaled(states), actions, limit))

    def step(self, states: Floats, actions: Ints, rng: np.random.Generator) -> tuple[Ints, Floats, Floats]:
        """Return, for each state, a similar row (k,), the reward (k,) and the next state (k, d); row -1 if the action has none."""
        b = self.batch
        rows, rewards, following = np.full(len(states), -1), np.zeros(len(states)), states.copy()
        for a in np.unique(actions):
            part, mine = self.actions[a], np.flatnonzero(actions == a)
            if part is None:
                continue
            x = states[mine]
            rows[mine], rewards[mine] = part.drawn(x, rng)
            origins, ends = b.states[rows[mine]], b.next_states[rows[mine]]
            turned = (self._linear(x) - self._linear(origins)) @ part.slopes * self.scale
            moved = np.clip(x + (ends - origins) + turned, *self._range)
            following[mine] = np.where(self.moves & ~np.isnan(moved), self._nearest_place(moved), ends)
        return rows, rewards, following

    def _nearest_place(self, states: Floats) -> Floats:
        """Return states with the nearest value of each column that the log has, if its states repeat."""
        if self.places is None or not self.moves.any():
            return states
        found = states.copy()
        for j in np.flatnonzero(self.moves):
            values, x = self.places[j], np.nan_to_num(states[:, j])
            after = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
            found[:, j] = np.where(x - values[after - 1] <= values[after] - x, values[after - 1], values[after])
        return found

    @cached_property
    def _range(self) -> tuple[Floats, Floats]:
        """The least and the largest value of each column, (d,) each."""
        both = np.concatenate([self.batch.states, self.batch.next_states])
        known = np.isfinite(both)
        return np.where(known, both, np.inf).min(axis=0), np.where(known, both, -np.inf).max(axis=0)

    @cached_property
    def factors(self) -> Floats:
        """The discount of each row's step, 0 where the process ends (n,)."""
        discounts = times_factors(np.full(len(self.batch), self.discount), step_factors(self.batch, self.discount))
        return np.where(self.batch.terminated, 0.0, discounts)

    @cached_property
    def worst(self) -> float:
        """The least discounted sum of rewards that follows any row."""
        later, least = 0.0, np.inf
        last = np.zeros(len(self.batch), dtype=bool)
        last[self.batch.episode_starts + self.batch.episode_lengths - 1] = True
        for reward, factor, ends in zip(self.batch.rewards[::-1], self.factors[::-1], last[::-1], strict=True):
            later = reward + (0.0 if ends else factor * later)
            least = min(least, later)
        return float(least)

    def value(
        self, policy: Policy, starts: Transitions, n_episodes: int, n_steps: int, seed: int
    ) -> tuple[float, Floats]:
        """Return the mean discounted return from the first states of the episodes of ``starts``, and each one's difference from it (E,).

        A decision whose nearest row is farther away than usual ends the episode in the worst way of the log with probability `LOST`, and counts
        like that.
        """
        first = np.tile(starts.episode_starts, -(-n_episodes // starts.n_episodes))
        masks = None if starts.allowed is None else starts.allowed[first]
        totals = self.returns([policy], starts.states[first], masks, n_steps, seed).careful[0]
        of_starts = totals.reshape(-1, starts.n_episodes).mean(axis=0)
        weights = None if starts.weights is None else starts.weights[starts.episode_starts]
        value = float(np.average(of_starts, weights=weights if weights is not None and weights.any() else None))
        return value, of_starts - value

    @one_blas_thread()
    def returns(
        self, policies: Sequence[Policy], states: Floats, masks: Bools | None, n_steps: int, seed: int
    ) -> Returns:
        """Return what each policy gets in ``n_steps`` steps from each of the ``states`` (E, d), in which ``masks`` (E, A) allow actions.

        Careful returns count a decision whose nearest row is farther away than usual as if the episode ended there in the worst way of the log
        with probability `LOST`.
        """
        rng, later = np.random.default_rng(seed), self.batch.next_masks()
        n = len(policies) * len(states)
        x, m = np.tile(states, (len(policies), 1)), None if masks is None else np.tile(masks, (len(policies), 1))
        plain, careful = (_Running(np.zeros(n), np.ones(n)) for _ in range(2))
        running = np.arange(n)
        for _ in range(n_steps):
            ends = np.searchsorted(running, np.arange(len(policies) + 1) * len(states))
            actions = np.concatenate(
                [
                    draw_columns(policy.probabilities(x[a:b], None if m is None else m[a:b]), rng)
                    for policy, a, b in zip(policies, ends, ends[1:], strict=False)
                    if b > a
                ]
            )
            rows, rewards, following = self.step(x, actions, rng)
            unknown = np.where(rows < 0, 1.0, 0.0)
            lost = np.where(rows < 0, 1.0, np.where(self.far(x, actions), LOST, 0.0))
            for counted, ended in ((plain, unknown), (careful, lost)):
                counted.totals[running] += counted.worth[running] * (ended * self.worst + (1 - ended) * rewards)
                counted.worth[running] *= (1 - ended) * self.factors[rows]
            on = plain.worth[running] > 0
            running, x = running[on], following[on]
            m = None if later is None else later[rows[on]]
            if not len(running):
                break
        shape = len(policies), len(states)
        return Returns(plain.totals.reshape(shape), careful.totals.reshape(shape))


class Returns(NamedTuple):
    """Discounted sums of rewards in simulated episodes, (policies, episodes) each."""

    plain: Floats
    careful: Floats  # with decisions far from the log counted as dangerous


class _Running(NamedTuple):
    totals: Floats
    worth: Floats  # what a reward of the next step counts


def states_move(batch: Transitions) -> bool:
    """Return whether states move by steps that suit other states, too: not those of finite processes."""
    return bool(moving_columns(batch).any()) and not states_repeat(batch)


def states_repeat(batch: Transitions) -> bool:
    """Return whether most states occur more than once, as in finite processes."""
    most = len(batch) // 2  # different ones, if they repeat
    return (
        all(len(np.unique(column)) <= most for column in batch.states.T)
        and len(np.unique(batch.states, axis=0)) <= most
    )


def moving_columns(batch: Transitions) -> Bools:
    """Return the columns with enough values for a state to move by as much as a similar row did (d,)."""
    both = np.concatenate([batch.states, batch.next_states])
    return np.array([len(np.unique(column)) > FEW_VALUES for column in both.T])


def spread_starts(starts: StateSample, n: int) -> tuple[Floats, Bools | None]:
    """Return ``n`` start states (n, d), each as often as its weight says, and their masks."""
    shares = np.ones(len(starts.states)) if starts.weights is None else starts.weights
    upto = np.cumsum(shares) / shares.sum()
    chosen = np.minimum(np.searchsorted(upto, (np.arange(n) + 0.5) / n), len(upto) - 1)
    return starts.states[chosen], None if starts.allowed is None else starts.allowed[chosen]


def _distances(near: Sequence[cKDTree | None], scaled: Floats, actions: Ints, limit: float = np.inf) -> Floats:
    """Return the distance to the nearest point of each one's action (k,), infinite if there is none below ``limit``."""
    found = np.full(len(scaled), np.inf)
    for a in np.unique(actions):
        tree = near[a]
        if tree is not None:
            found[actions == a] = tree.query(scaled[actions == a], distance_upper_bound=limit)[0]
    return found


def _moments(states: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of each column, 0 and 1 without two values (d,)."""
    known = np.isfinite(states)
    counts = np.maximum(known.sum(axis=0), 1)
    centre = np.where(known, states, 0.0).sum(axis=0) / counts
    scale = np.sqrt(np.where(known, np.square(states - centre), 0.0).sum(axis=0) / counts)
    return centre, np.where(scale > 0, scale, 1.0)


def _standardised(outputs: Floats) -> Floats:
    spread = outputs.std(axis=0)
    flat = spread <= 1e-9 * np.abs(outputs).max(axis=0)
    return np.where(flat, 0.0, (outputs - outputs.mean(axis=0)) / np.where(flat, 1.0, spread))
