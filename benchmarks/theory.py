"""The paper's quantities on the chain of 200 states with all 400 half-spaces, certificates on 30,000 rows, and what surrogates lose.

    python benchmarks/theory.py [speed | certificates | surrogates]

Peer of ``speed``: the definitions, written down one policy, one pair of policies or one draw at a time, in the same process. Where that would take minutes, both run on a
part of the work. Times are seconds of the processor, of all threads together.
"""

import sys
import time
from functools import partial

import numpy as np
import timing

from capi import CAPI
from capi._utils.threads import one_blas_thread
from capi.datasets import load_hiv_batch
from capi.domains import ChainWalk
from capi.evaluators import FittedQ
from capi.loss import regrets
from capi.policy_spaces import Linear, Thresholds
from capi.theory import (
    best_half_space_loss,
    certificate,
    discounted_concentrability,
    excess_over_half_spaces,
    fixed_point,
    greedy_error,
    half_spaces,
)

best_of = partial(timing.best_of, clock=time.process_time)
STEPS = 1837  # after which 0.99 ** m / (0.01 min nu) is below a millionth of the sum


def sum_of_futures(mdp, policies):
    """Return sum_m discount ** m max c(0; m; pi), one policy and one step at a time."""
    largest = np.zeros(STEPS)
    for actions in policies:
        P, x = mdp.transition_matrix(actions), mdp.start
        for m in range(STEPS):
            largest[m] = max(largest[m], (x / mdp.start).max())
            x = x @ P
    return float(mdp.discount ** np.arange(STEPS) @ largest)


def worst_greedy_error(mdp, policies):
    """Return d(Pi), one pair of policies at a time."""
    worst, states = 0.0, np.arange(mdp.n_states)
    for judged_by in policies:
        lost = regrets(mdp.action_values(judged_by))
        worst = max(worst, min(float(mdp.start @ lost[states, actions]) for actions in policies))
    return worst


def radius(mdp, policies, q, n, n_draws):
    """Return r*, one draw and one policy at a time, by bisection."""
    rng, lost = np.random.default_rng(0), regrets(q)
    losses = lost[np.arange(mdp.n_states)[None, :], policies]
    squares = [float(mdp.start @ loss**2) for loss in losses]
    draws = []
    for _ in range(n_draws):
        sample, signs = rng.choice(mdp.n_states, n, p=mdp.start), rng.choice([-1.0, 1.0], n)
        draws.append([float(np.mean(signs * loss[sample])) for loss in losses])
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        suprema = [
            max(max(c, 0) * min(1, (middle / max(v, 1e-300)) ** 0.5) for c, v in zip(d, squares, strict=True))
            for d in draws
        ]
        low, high = (middle, high) if lost.max() * np.mean(suprema) > middle else (low, middle)
    return low


def line(name, ours, target, part, mine, theirs, numbers):
    print(
        f"{name:24}{ours:8.2f} s (target {target:g} s)   {part:34}{mine:8.3f} s{theirs:9.2f} s{theirs / mine:8.0f}x   {numbers}"
    )


def speed():
    mdp, space = ChainWalk(variant=2).mdp, half_spaces(200)
    mdp.optimal_action_values  # noqa: B018  solved once, for all
    q, few = mdp.optimal_action_values, space[::40]
    print(f"{'':24}{'all':>8}{'':21}{'a part of the work':34}{'capi':>10}{'one by one':>11}{'ratio':>8}")
    all_of, _ = best_of(lambda: discounted_concentrability(mdp, space, 6))
    ours, found = best_of(lambda: discounted_concentrability(mdp, few, 1).sums[0])
    theirs, expected = best_of(lambda: sum_of_futures(mdp, few), repeats=1)
    line("C(6, s)", all_of, 2, "10 half-spaces, k = 0", ours, theirs, f"{found:.2f} {expected:.2f}")
    all_of, found = best_of(lambda: greedy_error(mdp, space).value)
    theirs, expected = best_of(lambda: worst_greedy_error(mdp, space), repeats=1)
    line("d(Pi)", all_of, 1, "all", all_of, theirs, f"{found:.2g} {expected:.2g}")
    all_of, found = best_of(lambda: fixed_point(space, mdp.states, q, n=2000, n_draws=2000), repeats=1)
    ours, few_draws = best_of(lambda: fixed_point(space, mdp.states, q, n=2000, n_draws=20))
    theirs, expected = best_of(lambda: radius(mdp, space, q, 2000, 20), repeats=1)
    numbers = f"{few_draws.radius:.4f} {expected:.4f} ({found.radius:.5f} with all)"
    line("r*, 2,000 draws", all_of, 20, "20 draws", ours, theirs, numbers)


def certificates():
    batch = load_hiv_batch()
    learners = {
        "one cut, 20 rounds": CAPI(FittedQ(), Thresholds(), discount=0.98, n_iterations=20, random_state=0),
        "default": CAPI(discount=0.98, random_state=0),
    }
    for name, learner in learners.items():
        fit, _ = best_of(lambda learner=learner: learner.fit(batch), repeats=1)
        print(f"{name}: a fit on {len(batch)} rows takes {fit:.1f} s", flush=True)
        for units in ("rows", "episodes"):
            seconds, made = best_of(lambda learner=learner, units=units: certificate(learner, batch, units=units), 1)
            print(
                f"  {units}: {seconds:.1f} s (target 60 s), {seconds / fit:.2f} of the fit. {made.verdict}", flush=True
            )


def surrogates(n_problems=30):
    """Print how much more than the best half-space linear policies lose, on random problems with 60 states in a plane."""
    rng, best, excess = np.random.default_rng(0), [], {}
    for _ in range(n_problems):
        states = rng.normal(size=(60, 2))
        q = rng.normal(size=(60, 2)) + np.stack([np.zeros(60), states @ [1.0, 0.5]], axis=1)
        best.append(best_half_space_loss(states, q))
        for surrogate in ("logistic", "hinge", "exponential"):
            for polish in (False, True):
                policy = Linear(surrogate=surrogate, polish=polish).improve(states, q)
                excess.setdefault((surrogate, polish), []).append(excess_over_half_spaces(policy, states, q))
    print(f"the best half-space loses {np.mean(best):.3f}")
    for (surrogate, polish), found in excess.items():
        zero = int(np.sum(np.array(found) < 1e-9))
        print(
            f"{surrogate:12} polish={polish!s:5}  {np.mean(found):.4f} more, nothing in {zero} of {n_problems}",
            flush=True,
        )


if __name__ == "__main__":
    chosen = {"speed": speed, "certificates": certificates, "surrogates": surrogates}[(sys.argv[1:] or ["speed"])[0]]
    with one_blas_thread():  # for the peer, too
        chosen()
