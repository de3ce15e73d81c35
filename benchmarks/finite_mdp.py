"""A finite MDP with 100,000 states and 4 sparse actions: time of a sweep, time of a solution, and memory.

Peer: quantecon.markov.DiscreteDP, in the same process, with the same model in state-action-pair form.
"""

import resource
import time

import numpy as np
import scipy.sparse as sp
from quantecon.markov import DiscreteDP
from timing import best_of

from capi import FiniteMDP
from capi.baselines import ModifiedPolicyIteration, ValueIteration

S, A, NEXT, DISCOUNT, TOLERANCE = 100_000, 4, 5, 0.99, 1e-6


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def random_model(rng):
    """Return a model in which each action leads from each state to 5 random states, half of them nearby."""
    rows = np.repeat(np.arange(S), NEXT)
    parts = []
    for _ in range(A):
        near = (np.arange(S)[:, None] + rng.integers(-50, 51, size=(S, NEXT))) % S
        far = rng.integers(S, size=(S, NEXT))
        columns = np.where(rng.random((S, NEXT)) < 0.5, near, far)
        p = rng.random((S, NEXT)) + 0.1
        p /= p.sum(axis=1, keepdims=True)
        parts.append(sp.csr_array((p.ravel(), (rows, columns.ravel())), shape=(S, S)))
    return parts, rng.random((S, A))


def main():
    base = peak_mib()
    P, R = random_model(np.random.default_rng(0))
    model = peak_mib()
    started = time.perf_counter()
    mdp = FiniteMDP(P, R, DISCOUNT)
    built = time.perf_counter() - started
    print(f"{mdp}; checked and stacked in {built:.2f} s")
    q = mdp.rewards
    ours, _ = best_of(lambda: mdp.bellman_optimality(q), repeats=5)
    each = float(np.median([h["seconds"] for h in ValueIteration(mdp, 30, tolerance=None).fit().history_]))
    first = np.zeros(S, dtype=int)
    exact, _ = best_of(lambda: mdp.values(first), repeats=1)
    stationary, mu = best_of(lambda: mdp.stationary_distribution(first), repeats=1)
    balance = np.abs(mdp.transition_matrix(first).T @ mu - mu).sum()
    solve, learner = best_of(lambda: ModifiedPolicyIteration(mdp, n_sweeps=20, tolerance=TOLERANCE).fit(), repeats=1)
    own = peak_mib()
    print(f"memory: imports {base:.0f} MiB, input model {model:.0f} MiB, peak after all of our runs {own:.0f} MiB")

    pairs = np.arange(S * A)
    stacked = sp.vstack([sp.csr_matrix(part) for part in P]).tocsr()[(pairs % A) * S + pairs // A]
    peer = DiscreteDP(R.ravel(), sp.csr_matrix(stacked), DISCOUNT, pairs // A, pairs % A)
    v = R.max(axis=1)
    theirs, _ = best_of(lambda: peer.bellman_operator(v), repeats=5)
    epsilon = 2 * TOLERANCE  # its result is within epsilon / 2 of the optimum
    peer_solve, found = best_of(
        lambda: peer.solve(method="modified_policy_iteration", epsilon=epsilon, k=20, max_iter=10_000), repeats=1
    )
    apart = np.abs(mdp.values(learner.policy_) - found.v).max()

    print(f"{'':34}{'capi':>10}{'quantecon':>12}{'ratio':>8}")
    print(f"{'one sweep of T*':34}{ours * 1e3:8.2f} ms{theirs * 1e3:9.2f} ms{theirs / ours:7.1f}x")
    print(f"{'one round of the whole loop':34}{each * 1e3:8.2f} ms")
    print(f"{'exact value of a policy':34}{exact:9.2f} s")
    print(f"{'its stationary distribution':34}{stationary:9.2f} s  (residual {balance:.0e})")
    print(f"{'solved to 1e-6, 20 sweeps per round':34}{solve:9.2f} s{peer_solve:10.2f} s{peer_solve / solve:7.1f}x")
    print(f"the values of our policy and of the peer's solution differ by at most {apart:.1e}")


if __name__ == "__main__":
    main()
