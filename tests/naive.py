"""Slow, obvious versions of the library's fast computations."""

from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np


def best_threshold(states, q_values, weights=None):
    """Return the least gap-weighted loss (a sum) over all features, cuts and pairs of actions, one policy at a time."""
    n, n_actions = q_values.shape
    weights = np.ones(n) if weights is None else weights
    least = np.inf
    for j in range(states.shape[1]):
        cuts = [-np.inf, *np.unique(states[:, j])]
        for cut, low, high in product(cuts, range(n_actions), range(n_actions)):
            least = min(least, policy_loss(q_values, np.where(states[:, j] <= cut, low, high), weights))
    return least


def leaves(nodes, states):
    """Return the leaf of each state in one tree, node by node."""
    found = []
    for state in states:
        node = nodes[0]
        while node["left"] >= 0:
            x = state[node["feature"]]
            right = not node["missing_left"] if np.isnan(x) else x > node["threshold"]
            node = nodes[node["left"] + right]
        found.append(-1 - node["left"])
    return np.array(found)


def mean_of_leaves(leaves, starts, values):
    """Return the mean over trees of the value of each row's leaf, added tree by tree."""
    n_trees, n = leaves.shape
    means = np.zeros(n)
    for i in range(n):
        for t in range(n_trees):
            means[i] += values[starts[t] + int(leaves[t, i])]
    return means / n_trees


def sums_by_leaf(leaves, starts, y):
    """Return the sum of the rows in each leaf of each tree, added row by row."""
    sums = np.zeros(starts[-1])
    for t, of_rows in enumerate(leaves):
        for leaf, value in zip(of_rows, y, strict=True):
            sums[starts[t] + int(leaf)] += value
    return sums


def policy_loss(q_values, actions, weights):
    total = 0.0
    for q, action, weight in zip(q_values, actions, weights, strict=True):
        total += weight * (max(q) - q[action])
    return total


def action_values(P, R, discount, pi, n_sweeps=20_000):
    """Return Q^pi by many sweeps of plain loops over actions."""
    q = np.zeros_like(R)
    for _ in range(n_sweeps):
        v = (pi * q).sum(axis=1)
        new = np.stack([R[:, a] + discount * P[a] @ v for a in range(R.shape[1])], axis=1)
        if np.abs(new - q).max() < 1e-14:
            return new
        q = new
    return q


def optimal_values(P, R, discount):
    """Return V* as the best of all deterministic policies, one by one."""
    n_actions, n_states = R.shape[1], R.shape[0]
    best = np.full(n_states, -np.inf)
    for actions in product(range(n_actions), repeat=n_states):
        P_pi = np.array([P[a][x] for x, a in enumerate(actions)])
        r_pi = np.array([R[x, a] for x, a in enumerate(actions)])
        best = np.maximum(best, np.linalg.solve(np.eye(n_states) - discount * P_pi, r_pi))
    return best


def pair_features(batch, policy, phi):
    """Return phi(x, a) of the rows and the policy's mean of phi(x', .), zero after termination, one row at a time."""
    table, following = np.asarray(phi(batch.states)), np.asarray(phi(batch.next_states))
    shares = policy.probabilities(batch.next_states)
    now, then = [], []
    for i in range(len(batch)):
        now.append(np.kron(np.eye(batch.n_actions)[batch.actions[i]], table[i]))
        then.append(np.kron(shares[i], following[i]) * (not batch.terminated[i]))
    return np.array(now), np.array(then)


class Uniforms:
    """The random numbers of the kernels, with Python integers."""

    def __init__(self, seed):
        self.x = int(seed)

    def __call__(self):
        mask = 2**64 - 1
        self.x ^= (self.x << 13) & mask
        self.x ^= self.x >> 7
        self.x ^= (self.x << 17) & mask
        return (self.x >> 11) / 2**53


class TreeGrower:
    """Grows a tree with boolean masks, trying the same candidates in the same order as the kernels."""

    def __init__(self, X, Y, weights, growth, seed):
        self.X, self.Y, self.w, self.g = X, Y, np.ones(len(X)) if weights is None else weights, growth
        self.uniform, self.order = Uniforms(seed), list(range(X.shape[1]))
        self.nodes, self.leaves = [None], []

    def grow(self):
        """Return nodes (feature, threshold, missing_left, left) and leaves (rows), in the kernels' order."""
        open_nodes, made = [], [(0, np.arange(len(self.X)), 0)]
        while True:
            for node, rows, depth in made:
                split = self.best_split(rows, depth)
                if split is None:
                    self.close(node, rows)
                else:
                    open_nodes.append((node, rows, depth, split))
            if not open_nodes:
                return self.nodes, self.leaves
            chosen = len(open_nodes) - 1
            most = self.g.max_leaf_nodes
            if most:
                for i, entry in enumerate(open_nodes):
                    if entry[3]["gain"] > open_nodes[chosen][3]["gain"]:
                        chosen = i
            full = most and len(self.leaves) + len(open_nodes) >= most
            node, rows, depth, split = open_nodes[chosen]
            open_nodes[chosen] = open_nodes[-1]
            open_nodes.pop()
            made = []
            if full:
                self.close(node, rows)
                continue
            left = split["left"]
            missing = np.isnan(self.X[rows, split["feature"]])
            missing_left = split["missing_left"] if missing.any() else 2 * left.sum() >= len(rows)
            self.nodes[node] = (split["feature"], split["threshold"], bool(missing_left), len(self.nodes))
            made = [(len(self.nodes), rows[left], depth + 1), (len(self.nodes) + 1, rows[~left], depth + 1)]
            self.nodes += [None, None]

    def close(self, node, rows):
        self.nodes[node] = (None, None, None, -1 - len(self.leaves))
        self.leaves.append(rows)

    def sums(self, rows):
        return (self.Y[rows] * self.w[rows, None]).sum(axis=0)

    def score(self, left, right):
        sl, sr, wl, wr = self.sums(left), self.sums(right), self.w[left].sum(), self.w[right].sum()
        variance = sum(a * a / wl + b * b / wr for a, b in zip(sl, sr, strict=True))
        return (-(sl.min() + sr.min()), variance) if self.g.policy else (variance, 0.0)

    def best_split(self, rows, depth):
        g, total = self.g, self.sums(rows)
        pure = total.min() == 0 if g.policy else (self.Y[rows] == self.Y[rows[0]]).all()
        deepest = np.inf if g.max_depth is None else g.max_depth
        if pure or len(rows) < max(g.min_samples_split, 2 * g.min_samples_leaf) or depth >= deepest:
            return None
        self.best, self.rows = None, rows
        self.tie = 1e-12 * total.sum() if g.policy else 0.0
        (self.best_cuts if g.best_cuts else self.random_cuts)()
        if self.best is not None:
            own = -total.min() if g.policy else (total * total).sum() / self.w[rows].sum()
            self.best["gain"] = self.best["score"][0] - own
        return self.best

    def consider(self, feature, threshold, missing_left, left):
        n_left = left.sum()
        if min(n_left, len(left) - n_left) < max(self.g.min_samples_leaf, 1):
            return
        score = self.score(self.rows[left], self.rows[~left])
        if self.best is not None:
            best, second = self.best["score"]
            better = score[0] > best + self.tie or (score[0] >= best - self.tie and score[1] > second)
            if not better:
                return
        self.best = {
            "feature": feature,
            "threshold": threshold,
            "missing_left": missing_left,
            "left": left,
            "score": score,
        }

    def draw(self, position):
        d = len(self.order)
        if (self.g.n_candidates or d) < d:
            pick = position + int(self.uniform() * (d - position))
            self.order[position], self.order[pick] = self.order[pick], self.order[position]
        return self.order[position]

    def column(self, j):
        x = self.X[self.rows, j]
        return x, ~np.isnan(x)

    def random_cuts(self):
        d, order = len(self.order), self.order
        tried, cut, drawn = 0, 0, 0
        while tried < (self.g.n_candidates or d) and drawn < d:
            j = self.draw(drawn)
            drawn += 1
            x, known = self.column(j)
            n_values = len(np.unique(x[known]))
            if n_values == 0 or (n_values == 1 and known.all()):
                continue
            order[drawn - 1], order[tried] = order[tried], j
            if n_values > 1:
                order[tried], order[cut] = order[cut], order[tried]
                cut += 1
            tried += 1
        thresholds = {}
        for j in order[:cut]:
            x, known = self.column(j)
            low, high = x[known].min(), x[known].max()
            thresholds[j] = low + self.uniform() * (high - low)
            if not thresholds[j] < high:
                thresholds[j] = low
        for t, j in enumerate(order[:tried]):
            x, known = self.column(j)
            if t >= cut:
                self.consider(j, np.inf, False, known)
                continue
            with np.errstate(invalid="ignore"):
                left = x <= thresholds[j]
            self.consider(j, thresholds[j], False, left)
            if not known.all():
                self.consider(j, thresholds[j], True, left | ~known)
                self.consider(j, np.inf, False, known)

    def best_cuts(self):
        d, tried, drawn = len(self.order), 0, 0
        while tried < (self.g.n_candidates or d) and drawn < d:
            j = self.draw(drawn)
            drawn += 1
            x, known = self.column(j)
            values = np.unique(x[known])
            if len(values) == 0 or (len(values) == 1 and known.all()):
                continue
            tried += 1
            for below, above in pairwise(values):
                threshold = below + (above - below) / 2
                with np.errstate(invalid="ignore"):
                    left = x <= below
                self.consider(j, threshold, False, left)
                if not known.all():
                    self.consider(j, threshold, True, left | ~known)
            if not known.all():
                self.consider(j, np.inf, False, known)


def best_line(states, q_values):
    """Return the least gap-weighted loss (a sum) of two actions on the two sides of a line in the plane.

    In general position, every line splits the points like a line through two of them, with these two on either side.
    """
    n = len(states)
    gain = q_values[:, 1] - q_values[:, 0]

    def loss(second):
        return np.where(second, np.maximum(-gain, 0), np.maximum(gain, 0)).sum()

    least = min(loss(np.zeros(n, dtype=bool)), loss(np.ones(n, dtype=bool)))
    for i, j in product(range(n), repeat=2):
        if i != j:
            normal = np.array([states[j, 1] - states[i, 1], states[i, 0] - states[j, 0]])
            second = (states - states[i]) @ normal > 0
            for second[i], second[j] in product((False, True), repeat=2):
                least = min(least, loss(second))
    return least


def linear_loss(table, weights, lost):
    """Return the total loss of the allowed actions with the largest scores, one row at a time."""
    total = 0.0
    for phi, row in zip(table, lost, strict=True):
        scores = [w @ phi if r < np.inf else -np.inf for w, r in zip(weights, row, strict=True)]
        total += row[int(np.argmax(scores))]
    return total


def pair_surrogate(ell, scores, lost):
    """Return the sum over rows and pairs of allowed actions of their difference in loss times ``ell`` of their margin."""
    total = 0.0
    for f, r in zip(scores, lost, strict=True):
        for a, b in product(range(len(f)), repeat=2):
            if r[a] < r[b] < np.inf:
                total += (r[b] - r[a]) * ell(f[a] - f[b])
    return total


# -- the value of a policy, from logged episodes -------------------------------------------------------


def rows_of_episodes(batch):
    """Return the row numbers of each episode, one list per episode."""
    rows = []
    for i in range(len(batch)):
        if i == 0 or batch.episodes is None or batch.episodes[i] != batch.episodes[i - 1]:
            rows.append([])
        rows[-1].append(i)
    return rows


def running_products(episodes, ratios):
    """Return the importance weights of the rows, one list per episode."""
    weights = []
    for rows in episodes:
        products, product_so_far = [], 1.0
        for i in rows:
            product_so_far *= ratios[i]
            products.append(product_so_far)
        weights.append(products)
    return weights


def weight_at(products, t):
    """Return the weight of an episode at step t; after its end, its last weight."""
    return products[min(t, len(products) - 1)]


def effective_episodes(weights, counts, discount):
    """Return Kish's effective size, averaged over the steps with weights discount^t."""
    total = shares = 0.0
    for t in range(max(map(len, weights))):
        now = [c * weight_at(products, t) for c, products in zip(counts, weights, strict=True)]
        squares = sum(w * w for w in now)
        total += discount**t * (sum(now) ** 2 / squares if squares > 0 else 0.0)
        shares += discount**t
    return total / shares


def closed_returns(episodes, batch, discount, next_values):
    """Return the discounted rewards of each episode's rows; a truncated episode ends with the value of its next state."""
    out = []
    for rows in episodes:
        rewards = []
        for t, i in enumerate(rows):
            truncated = i == rows[-1] and not batch.terminated[i]
            rewards.append(discount**t * (batch.rewards[i] + (discount * next_values[i] if truncated else 0.0)))
        out.append(rewards)
    return out


def per_decision(weights, rewards, counts):
    total = 0.0
    for c, products, mine in zip(counts, weights, rewards, strict=True):
        total += c * sum(w * r for w, r in zip(products, mine, strict=True))
    return total / sum(counts)


def weighted(weights, rewards, counts):
    above = below = 0.0
    for c, products, mine in zip(counts, weights, rewards, strict=True):
        above += c * products[-1] * sum(mine)
        below += c * products[-1]
    return above / below


def weighted_per_decision(weights, rewards, counts):
    total = 0.0
    for t in range(max(map(len, weights))):
        above = below = 0.0
        for c, products, mine in zip(counts, weights, rewards, strict=True):
            below += c * weight_at(products, t)
            above += c * products[t] * mine[t] if t < len(mine) else 0.0
        total += above / below
    return total


def doubly_robust(episodes, batch, discount, ratios, start_values, taken_values, next_values, counts):
    """Jiang & Li (2016), Eq. 10, from the last row of each episode back to its first."""
    total = 0.0
    for c, rows, start in zip(counts, episodes, start_values, strict=True):
        value = None
        for i in reversed(rows):
            following = (0.0 if batch.terminated[i] else next_values[i]) if value is None else value
            before = start if i == rows[0] else next_values[i - 1]  # the state's own value, by the model
            value = before + ratios[i] * (batch.rewards[i] + discount * following - taken_values[i])
        total += c * value
    return total / sum(counts)


def weighted_doubly_robust(episodes, batch, discount, weights, start_values, taken_values, next_values, counts):
    """Thomas & Brunskill (2016), Eq. 10: after its end an episode keeps its last weight, and all its values are zero."""
    total = 0.0
    for t in range(max(map(len, weights)) + 1):
        now = [c * weight_at(products, t) for c, products in zip(counts, weights, strict=True)]
        before = list(counts) if t == 0 else [c * weight_at(w, t - 1) for c, w in zip(counts, weights, strict=True)]
        for k, rows in enumerate(episodes):
            if t < len(rows):
                i = rows[t]
                total += discount**t * now[k] / sum(now) * (batch.rewards[i] - taken_values[i])
            if t <= len(rows):  # the state reached at t, whose value comes from the model
                value = (
                    start_values[k] if t == 0 else 0.0 if batch.terminated[rows[t - 1]] else next_values[rows[t - 1]]
                )
                total += discount**t * before[k] / sum(before) * value
    return total


def calibration_error(predicted, actions, n_bins):
    """Return the mean difference of predicted and observed shares in bins of equal size; equal predictions share a bin."""
    n, n_actions = predicted.shape
    total = 0.0
    for a in range(n_actions):
        in_order = sorted(predicted[:, a])
        edges = [in_order[k * n // n_bins] for k in range(1, n_bins)]
        bins = {}
        for p, action in zip(predicted[:, a], actions, strict=True):
            bins.setdefault(sum(edge <= p for edge in set(edges)), []).append(p - (action == a))
        total += sum(abs(sum(differences)) for differences in bins.values()) / n
    return total / n_actions


@dataclass(frozen=True, eq=False)
class DenseSystem:
    """Fitted Q evaluation on fixed trees as dense matrices over all leaves."""

    episodes: Any
    taken: np.ndarray  # (n, L) a one for each leaf of the logged decisions
    following: np.ndarray  # (n, L) the policy's mean in the next states
    initial: np.ndarray  # (E, L) the policy's mean in the first states
    theta: np.ndarray  # (L,) values of the leaves

    @classmethod
    def of(cls, fitted):
        cells = fitted.under.model.cells
        taken = np.zeros((cells.n_rows, len(cells.first)))
        for leaf, (first, end) in enumerate(zip(cells.first, cells.end, strict=True)):
            for row in cells.members[first:end]:
                taken[row, leaf] += 1
        following, initial = (
            looked_up(part, len(cells.first)) for part in (fitted.under.following, fitted.under.initial)
        )
        return cls(fitted.episodes, taken, following, initial, fitted.under.leaf_values)


def looked_up(look_ups, n_cells):
    """Return the matrix (points, cells) of look-ups."""
    out = np.zeros((len(look_ups), n_cells))
    for part in look_ups.asked:
        for k, (point, share) in enumerate(zip(part.points, part.shares, strict=True)):
            for start, leaf in zip(part.starts, part.leaves[:, k], strict=True):
                out[point, start + leaf] += share
    return out


def leaf_values(system, counts, kept=None, n_sweeps=3000):
    """Return the values of a dense system's leaves by sweeps of plain loops; leaves without rows keep their values."""
    e = system.episodes
    taken, following = system.taken, system.following
    n, n_leaves = taken.shape
    theta = np.zeros(n_leaves) if kept is None else np.array(kept)
    for _ in range(n_sweeps):
        targets = [e.batch.rewards[i] + e.discount * following[i] @ theta for i in range(n)]
        new = theta.copy()
        for leaf in range(n_leaves):
            rows = np.flatnonzero(taken[:, leaf])
            weight = sum(counts[e.of_row[i]] for i in rows)
            if weight > 0:
                new[leaf] = sum(counts[e.of_row[i]] * targets[i] for i in rows) / weight
        if np.abs(new - theta).max() < 1e-13:
            break
        theta = new
    return theta


def left_out_leaf_values(again, system, n_sweeps=3000):
    """Return the values of a resample's leaves by sweeps of plain loops; ``again`` is the resample on the leaves of ``system``.

    The change that the resample makes to the mean of a leaf of m targets, at the values of the whole log, is scaled by m / (m - 1).
    """
    e, old = again.episodes, system.theta
    taken, following = again.taken, again.following
    sizes = system.taken.sum(axis=0)

    def means(values):
        out = np.array(old)
        for leaf in range(taken.shape[1]):
            rows = np.flatnonzero(taken[:, leaf])
            if len(rows):
                out[leaf] = np.mean([e.batch.rewards[i] + e.discount * following[i] @ values for i in rows])
        return out

    factor = sizes / np.maximum(sizes - 1, 1) - 1
    noise = factor * (means(old) - old)
    theta = np.array(old)
    for _ in range(n_sweeps):
        new = means(theta) + noise
        if np.abs(new - theta).max() < 1e-13:
            break
        theta = new
    return theta


class DenseAverager:
    """The model that a batch and trees are, by dense matrices that are filled node by node."""

    def __init__(self, batch, forests, groups, inputs, weights, discount):
        """``groups[k]`` are the rows that forest k averages, ``inputs`` is a function from states and an action to a forest and its inputs."""
        self.batch, self.forests, self.inputs = batch, forests, inputs
        self.offsets = np.cumsum([0, *(sum(len(tree.counts) for tree in forest.trees) for forest in forests)])
        self.S = np.zeros((self.offsets[-1], len(batch)))
        for k, (forest, rows) in enumerate(zip(forests, groups, strict=True)):
            leaf = self.offsets[k]
            x = inputs(batch.states[rows], batch.actions[rows])[1]
            for tree in forest.trees:
                for number, members in enumerate(cells(tree.nodes, leaves(tree.nodes, x), weights[rows])):
                    w = weights[rows[members]]
                    self.S[leaf + number, rows[members]] = w / w.sum()
                leaf += len(tree.counts)
        self.steps = np.zeros(len(batch))
        for i, ends in enumerate(batch.terminated):
            self.steps[i] = 0.0 if ends else discount ** (1.0 if batch.elapsed is None else batch.elapsed[i])

    def look_ups(self, states, probabilities):
        """Return G (m, l): the weight of each leaf in the value of each state."""
        G = np.zeros((len(states), self.S.shape[0]))
        for a in range(probabilities.shape[1]):
            k, x = self.inputs(states, np.full(len(states), a))
            leaf = self.offsets[k]
            for tree in self.forests[k].trees:
                for i, number in enumerate(leaves(tree.nodes, x)):
                    G[i, leaf + number] += probabilities[i, a] / len(self.forests[k].trees)
                leaf += len(tree.counts)
        return G

    def solve(self, policy, starts):
        """Return the value J, the values of the next states (n,), of the leaves (l,), and the visits to the rows (n,)."""
        t, (states, weights, allowed) = self.batch, starts
        masks = None if t.next_allowed is None else t.next_allowed | t.terminated[:, None]
        G = self.look_ups(t.next_states, policy.probabilities(t.next_states, masks)) * (~t.terminated)[:, None]
        G0 = self.look_ups(states, policy.probabilities(states, allowed))
        d0 = np.ones(len(states)) if weights is None else weights
        d0 = d0 / d0.sum()
        chain = G @ self.S
        v = np.linalg.solve(np.eye(len(t)) - chain * self.steps, chain @ t.rewards)
        of_leaves = self.S @ (t.rewards + self.steps * v)
        visits = np.linalg.solve(np.eye(len(t)) - chain.T * self.steps, self.S.T @ G0.T @ d0)
        return d0 @ G0 @ of_leaves, v, of_leaves, visits

    def optimal_values(self, starts):
        """Return the optimal values of the next states (n,) and of the start states, by value iteration."""
        t, n_actions = self.batch, self.batch.n_actions
        masks = np.ones((len(t), n_actions), bool) if t.next_allowed is None else t.next_allowed | t.terminated[:, None]
        tables = [
            self.look_ups(t.next_states, np.eye(n_actions)[np.full(len(t), a)]) @ self.S for a in range(n_actions)
        ]
        v, before = np.zeros(len(t)), None
        while before is None or np.abs(v - before).max() > 1e-13 * np.abs(v).max():
            q = np.stack([table @ (t.rewards + self.steps * v) for table in tables], axis=1)
            v, before = np.where(t.terminated, 0.0, np.where(masks, q, -np.inf).max(axis=1)), v
        allowed = np.ones((len(starts.states), n_actions), bool) if starts.allowed is None else starts.allowed
        of_leaves = self.S @ (t.rewards + self.steps * v)
        q = [
            self.look_ups(starts.states, np.eye(n_actions)[np.full(len(starts.states), a)]) @ of_leaves
            for a in range(n_actions)
        ]
        return v, np.where(allowed, np.stack(q, axis=1), -np.inf).max(axis=1)


def cells(nodes, leaf_of_row, weights):
    """Yield the rows that each leaf averages: those of its nearest ancestor, or of itself, whose rows have weight."""
    parents = {child: node for node, left in enumerate(nodes["left"]) if left >= 0 for child in (left, left + 1)}
    node_of_leaf = {-1 - left: node for node, left in enumerate(nodes["left"]) if left < 0}
    below = {node: [] for node in range(len(nodes))}
    for i, leaf in enumerate(leaf_of_row):
        node = node_of_leaf[leaf]
        while node is not None:
            below[node].append(i)
            node = parents.get(node)
    for leaf in range(len(node_of_leaf)):
        node = node_of_leaf[leaf]
        while not weights[below[node]].sum() > 0:
            node = parents[node]
        yield np.array(below[node])
