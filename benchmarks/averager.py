"""Values and occupancies of a policy in the model that a batch and kept trees are, compared with SciPy's sparse products.

    python benchmarks/averager.py [LARGE]

The batch has 30,000 rows of HIV patients, then LARGE (default 1,000,000) rows of the same simulator; 30 trees per action, and a tree of
depth 3 is the policy. The peer uses the same solver, with the same preconditioner, and products G (S x) of two sparse matrices in SciPy. A value is
computed for a policy that the model has not seen: look-ups, matrices and solution; an occupancy likewise. Building the model
and finding the leaves of the next states happen once for all policies, and are shown apart. On the large batch a few of the peer's products are
timed and scaled to our number of products.
"""

import os
import sys
import time

import numpy as np
from scipy import sparse

from capi.baselines import FittedQIteration
from capi.datasets import load_hiv_batch
from capi.domains import HIV
from capi.evaluators import FittedQ
from capi.evaluators._fixed_points import fixed_point, largest, total
from capi.evaluators.averager import Averager
from capi.evaluators.under_policy import OCCUPANCY_ERROR, VALUE_ERROR, effective_number
from capi.policies import EpsilonGreedy, Uniform
from capi.policy_spaces import Trees
from capi.simulation import sample_episodes

N_JOBS, N_TREES, N_ITERATIONS = 2, 30, 20
STEPS = 200  # of a patient
DISCOUNTS = 0.98, 0.99, 0.999
FEW = 5  # products of the peer on the large batch, whose time is scaled


def timed(call):
    """Return the result, and the seconds by the clock and of all processors."""
    clock, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - clock, time.process_time() - cpu


def peer_value(model, groups, S, G, G0):
    """Return the value and the number of products, by SciPy."""
    constant = G @ (S @ model.batch.rewards)

    def sweep(given, x):
        return given + G @ (S @ (model.steps * x))

    roughly = None if groups is None else groups.ahead
    found = fixed_point(sweep, constant, discount=model.slowest, tolerance=VALUE_ERROR, norm=largest, roughly=roughly)
    return model.start_shares @ (G0 @ (S @ (model.batch.rewards + model.steps * found.x))), found.n_products


def peer_occupancy(model, groups, back_S, back_G, G0):
    """Return the occupancy and the number of products, by SciPy."""
    first = back_S @ (G0.T @ model.start_shares)

    def sweep(given, x):
        return given + model.steps * (back_S @ (back_G @ x))

    roughly = None if groups is None else groups.back
    found = fixed_point(
        sweep, model.steps * first, discount=model.slowest, tolerance=OCCUPANCY_ERROR, norm=total, roughly=roughly
    )
    return first + back_S @ (back_G @ found.x), found.n_products


def matrices(model, under):
    """Return S (leaves, rows), G (rows, leaves) and G_0 (starts, leaves); making them is not timed."""
    c, n = model.cells, len(model.batch)
    n_leaves = len(c.first)
    sizes = c.sizes
    members = np.concatenate([[0], np.cumsum(sizes)])
    places = np.arange(members[-1]) + np.repeat(c.first - members[:-1], sizes)
    rows = c.members[places]
    S = sparse.csr_array((model.weights[rows] * np.repeat(model.inverse, sizes), rows, members), shape=(n_leaves, n))
    asked = [under.following.compressed(), under.initial.compressed()]
    G, G0 = (sparse.csr_array((w, leaves, ends), shape=(len(ends) - 1, n_leaves)) for ends, leaves, w in asked)
    return S, G, G0


def patients(n, rng):
    """Return ``n`` rows of simulated patients, whose doctors take half of their decisions at random."""
    learned = learner(load_hiv_batch(), 50, 10).policy_
    return sample_episodes(
        EpsilonGreedy(learned, 0.5), HIV(n_jobs=N_JOBS), n_episodes=n // STEPS, max_steps=STEPS, random_state=rng
    )


def learner(batch, node, n_iterations=N_ITERATIONS):
    evaluator = FittedQ(n_trees=N_TREES, min_samples_split=node, n_jobs=N_JOBS)
    return FittedQIteration(evaluator, 0.98, n_iterations, random_state=0).fit(batch)


def measure(batch, node, discounts):
    small = len(batch) < 100_000
    q = learner(batch, node, N_ITERATIONS if small else 2).policy_.q
    some = slice(None, None, max(1, len(batch) // 30_000))
    policy = Trees(max_depth=3).improve(batch.states[some], q.values(batch.states[some]))
    for discount in discounts:
        compare(q, batch, policy, node, discount, 3 if small else 1)


def compare(q, batch, policy, node, discount, repeats):
    model, building, _ = timed(lambda: Averager.of(q, batch, discount=discount, n_jobs=N_JOBS))
    _, finding, _ = timed(lambda: (model.inverse, model.under(Uniform(batch.n_actions))))
    if repeats > 1:
        visits_of(model, policy)  # compiles
    value, *seconds = min((timed(lambda: value_of(model, policy)) for _ in range(repeats)), key=lambda found: found[1])
    visits, *its_seconds = min(
        (timed(lambda: visits_of(model, policy)) for _ in range(repeats)), key=lambda found: found[1]
    )
    settings = f"{len(batch):,} rows, node size {node}, discount {discount}"
    print(f"{settings}: model {building:.2f} s, leaves {finding:.2f} s", flush=True)
    under = model.under(policy)
    parts, groups = matrices(model, under), under.groups
    back = parts[0].T.tocsr(), parts[1].T.tocsr()
    if repeats > 1:
        report("value", seconds, value[1], timed(lambda: peer_value(model, groups, *parts)))
        report("occupancy", its_seconds, visits[1], timed(lambda: peer_occupancy(model, groups, *back, parts[2])))
    else:  # as many products as ours, although the peer would need more
        for name, mine, n_products, (A, B) in (
            ("value", seconds, value[1], parts[:2]),
            ("occupancy", its_seconds, visits[1], back[::-1]),
        ):
            x = np.ones(A.shape[1])
            _, clock, cpu = timed(lambda A=A, B=B, x=x: [B @ (A @ x) for _ in range(FEW)])
            report(name, mine, n_products, ((None, n_products), clock * n_products / FEW, cpu * n_products / FEW))
    print(
        f"    J = {value[0]:.6g}, visits x rewards = {visits[0] @ batch.rewards:.6g}, conservation off by "
        f"{abs(visits[0] @ (1 - model.steps) - 1):.1e}, {effective_number(visits[0]):,.0f} effective rows",
        flush=True,
    )


def value_of(model, policy):
    under = model.under(policy)
    return under.value, under.value_solution.n_products


def visits_of(model, policy):
    under = model.under(policy)
    return under.occupancy, under.occupancy_solution.n_products


def report(name, seconds, n_products, peer):
    (_, its_products), clock, cpu = peer
    print(
        f"    {name:10}{seconds[0]:7.3f} s ({seconds[1]:.3f} s of CPU), {n_products} products; "
        f"SciPy {clock:7.3f} s ({cpu:.3f} s of CPU), {its_products} products: {clock / seconds[0]:.1f}x",
        flush=True,
    )


def main(large=1_000_000, nodes=(5, 50)):
    print(f"load average {os.getloadavg()[0]:.1f}")
    for node in nodes:
        measure(load_hiv_batch(), node, DISCOUNTS)
    if large:
        batch = patients(large, np.random.default_rng(0))
        for node in nodes:
            measure(batch, node, DISCOUNTS)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
