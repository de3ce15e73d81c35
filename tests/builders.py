"""Builders of small problems and batches for tests."""

import numpy as np

from capi import Transitions


def random_mdp(rng, n_states=5, n_actions=3):
    """Return P (A, S, S) and R (S, A)."""
    P = rng.random((n_actions, n_states, n_states)) * (rng.random((n_actions, n_states, n_states)) < 0.6)
    P += 0.01 * np.eye(n_states)
    return P / P.sum(axis=2, keepdims=True), rng.normal(size=(n_states, n_actions))


def tabular_batch(mdp, n, rng, **columns):
    """Draw ``n`` uniform states and actions, with their rewards and next states."""
    states, actions = mdp.initial(n, rng), rng.integers(mdp.n_actions, size=n)
    following, rewards, ends = mdp.step(states, actions, rng)
    return Transitions(states, actions, rewards, following, ends, n_actions=mdp.n_actions, **columns)


class Layers:
    """A small layered decision process with time as part of the state: state t * S + x is x at step t.

    All its paths can be enumerated. Episodes end in the last layer, or earlier with a probability that depends on the action.
    """

    def __init__(self, rng, n_layers=3, n_states=2, n_actions=2):
        self.n_layers, self.n_states, self.n_actions = n_layers, n_states, n_actions
        size = n_layers * n_states
        self.moves = rng.dirichlet(np.ones(n_states), size=(size, n_actions))  # (S, A, x')
        self.ends = rng.uniform(0.1, 0.6, size=(size, n_actions))
        self.ends[-n_states:] = 1.0
        self.rewards = rng.normal(size=(size, n_actions))
        self.start = rng.dirichlet(np.ones(n_states))
        self.behaviour = rng.dirichlet(np.full(n_actions, 3.0), size=size)
        self.policy = rng.dirichlet(np.full(n_actions, 1.0), size=size)

    def values(self, pi, discount):
        """Return V (S,) and Q (S, A) of the probabilities ``pi`` (S, A), from the last layer to the first."""
        v, q = np.zeros(len(pi)), np.zeros(pi.shape)
        for x in reversed(range(len(pi))):
            after = (x // self.n_states + 1) * self.n_states
            for a in range(self.n_actions):
                following = 0.0 if self.ends[x, a] == 1 else self.moves[x, a] @ v[after : after + self.n_states]
                q[x, a] = self.rewards[x, a] + discount * (1 - self.ends[x, a]) * following
            v[x] = pi[x] @ q[x]
        return v, q

    def value(self, pi, discount):
        return self.start @ self.values(pi, discount)[0][: self.n_states]

    def every_log(self, longest=None):
        """Return a batch with each possible episode of at most ``longest`` rows once, and their probabilities (E,)."""
        rows, probabilities = [], []

        def extend(path, x, p):
            for a in range(self.n_actions):
                here = p * self.behaviour[x, a]
                if self.ends[x, a] > 0:
                    finish([*path, (x, a, x, True)], here * self.ends[x, a])
                after = (x // self.n_states + 1) * self.n_states
                for y in range(self.n_states) if self.ends[x, a] < 1 else ():
                    further, q = [*path, (x, a, after + y, False)], here * (1 - self.ends[x, a]) * self.moves[x, a, y]
                    if longest is not None and len(further) == longest:
                        finish(further, q)
                    else:
                        extend(further, after + y, q)

        def finish(path, p):
            rows.extend((len(probabilities), *step) for step in path)
            probabilities.append(p)

        for x in range(self.n_states):
            extend([], x, self.start[x])
        episode, states, actions, following, ends = (np.array(column) for column in zip(*rows, strict=True))
        batch = Transitions(
            states[:, None],
            actions,
            self.rewards[states, actions],
            following[:, None],
            ends,
            n_actions=self.n_actions,
            episodes=episode,
            propensities=self.behaviour[states, actions],
        )
        return batch, np.array(probabilities)


def wandering(seed=0, n_episodes=25, n_actions=3, **columns):
    """Return random walks in the plane whose next state is the state of the next row; half of the episodes terminate.

    ``columns`` are names of further columns, which are drawn: weights (some zero), elapsed, masks.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, size=n_episodes)
    n, last = int(lengths.sum()), np.cumsum(lengths) - 1
    paths = np.cumsum(rng.normal(size=(n + n_episodes, 2)), axis=0) / 3
    episodes = np.repeat(np.arange(n_episodes), lengths)
    rows = np.arange(n) + episodes  # of the paths, each of which has one state more than rows
    actions = rng.permutation(np.arange(n) % n_actions)
    ends = np.zeros(n, dtype=bool)
    ends[last] = rng.random(n_episodes) < 0.5
    further = {}
    if columns.pop("weights", False):
        further["weights"] = rng.choice([0.0, 0.5, 1.0, 3.0], size=n, p=[0.2, 0.3, 0.3, 0.2])
        further["weights"][0] = 1.0
    if columns.pop("elapsed", False):
        further["elapsed"] = rng.choice([0.5, 1.0, 2.5], size=n)
    if columns.pop("masks", False):
        allowed = rng.random((n, n_actions)) < 0.6
        allowed[np.arange(n), actions] = True
        following = rng.random((n, n_actions)) < 0.6
        following[:, rng.integers(n_actions)] = True
        following[ends] = False
        further |= {"allowed": allowed, "next_allowed": following}
    assert not columns, columns
    rewards = np.sin(paths[rows, 0]) + 0.5 * actions * paths[rows, 1]
    return Transitions(
        paths[rows], actions, rewards, paths[rows + 1], ends, n_actions=n_actions, episodes=episodes, **further
    )
