import numpy as np
import pytest

import builders
from capi import CAPI, FiniteMDP
from capi.baselines import PSDP, RFQI, FittedQIteration
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import LSTDQ, BellmanResidual, Exact, FittedQ, KernelFittedQ, Rollouts
from capi.features import RKHS, OneHot, Polynomial
from capi.features.kernels import Gaussian
from capi.policies import Constant, NonStationary, Tabular
from capi.policy_spaces import Partition, Thresholds, Trees, Unrestricted
from capi.simulation import performance
from capi.testing import random_batch

PAIRS = Partition(lambda states: states[:, 0] // 2)
HORIZON = 7


def random_mdp(seed, discount=0.9):
    rng = np.random.default_rng(seed)
    P, R = builders.random_mdp(rng, n_states=6)
    return FiniteMDP(P, R, discount, start=rng.dirichlet(np.ones(6)))


def backward_induction(mdp, horizon):
    """Q_t (T, S, A) and the best action of each step and state (T, S), by loops over the definition."""
    P = np.stack([mdp.transition_matrix(np.full(mdp.n_states, a)) for a in range(mdp.n_actions)])
    values, tables = np.zeros(mdp.n_states), []
    for _ in range(horizon):
        q = np.empty((mdp.n_states, mdp.n_actions))
        for x in range(mdp.n_states):
            for a in range(mdp.n_actions):
                q[x, a] = mdp.rewards[x, a] + mdp.discount * sum(P[a, x, y] * values[y] for y in range(mdp.n_states))
        values = q.max(axis=1)
        tables.insert(0, q)
    return np.array(tables), np.array(tables).argmax(axis=2)


def value_of(mdp, policies):
    """V of step 0 when ``policies[t]`` decides at step t (S,)."""
    values = np.zeros(mdp.n_states)
    for policy in reversed(policies):
        values = mdp.reward_vector(policy) + mdp.discount * (mdp.transition_matrix(policy) @ values)
    return values


@pytest.mark.parametrize("discount", [0.0, 0.9, 1 - 1e-9])
@pytest.mark.parametrize("seed", range(6))
def test_with_all_policies_it_is_backward_induction(seed, discount):
    mdp = random_mdp(seed, discount)
    q, actions = backward_induction(mdp, HORIZON)
    learner = PSDP(Exact(mdp), Unrestricted(), discount, HORIZON)
    for iteration in learner.iterate():
        t = HORIZON - 1 - iteration.k
        np.testing.assert_allclose(iteration.q.table, q[t], rtol=0, atol=1e-12)
        assert len(iteration.policy) == iteration.k + 1
    policy = learner.fit().policy_
    for t in range(HORIZON):
        np.testing.assert_array_equal(policy.at(t).act(mdp.states), actions[t])
    np.testing.assert_array_equal(learner.predict(mdp.states), actions[0])
    np.testing.assert_allclose(value_of(mdp, [policy.at(t) for t in range(HORIZON)]), q[0].max(axis=1), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_in_a_small_space_each_step_is_the_best_before_the_later_ones(seed):
    """Brute force over all 27 policies on three pairs of states, for the mean over the states."""
    mdp, horizon = random_mdp(seed), 4
    policy = PSDP(Exact(mdp), PAIRS, 0.9, horizon).fit().policy_
    for t in range(horizon):
        later = [policy.at(s) for s in range(t + 1, horizon)]
        options = [Tabular(np.repeat(pair, 2), 3) for pair in np.ndindex(3, 3, 3)]
        best = max(value_of(mdp, [option, *later]).mean() for option in options)
        assert value_of(mdp, [policy.at(t), *later]).mean() == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("space", [PAIRS, Thresholds()], ids=["pairs", "thresholds"])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_at_least_as_good_as_the_policy_whose_states_it_is_given(seed, space):
    """With mu_t the states of a policy of the space at step t, and exact Q."""
    mdp = random_mdp(seed)
    reference = space.improve(mdp.states, np.random.default_rng(seed).normal(size=(6, 3)))
    visited = [mdp.start]
    for _ in range(HORIZON - 1):
        visited.append(visited[-1] @ mdp.transition_matrix(reference))
    learner = PSDP(Exact(mdp), space, 0.9, HORIZON, base=lambda t, rng: (mdp.states, visited[t]))
    policy = learner.fit().policy_
    found = mdp.start @ value_of(mdp, [policy.at(t) for t in range(HORIZON)])
    assert found >= mdp.start @ value_of(mdp, [reference] * HORIZON) - 1e-12


@pytest.mark.parametrize(
    ("evaluator", "swept"),
    [(FittedQ(n_trees=3, n_sweeps=4), FittedQIteration), (KernelFittedQ(ridge=0.1), RFQI)],
    ids=["trees", "kernel"],
)
def test_from_a_batch_with_all_policies_it_is_fitted_q_iteration(evaluator, swept):
    batch, settings = random_batch(), {"discount": 0.9, "random_state": 0}
    psdp = PSDP(evaluator, Unrestricted(), horizon=5, **settings).fit(batch)
    fqi = swept(evaluator, n_iterations=5, **settings).fit(batch)
    np.testing.assert_array_equal(psdp.q_.values(batch.states), fqi.q_.values(batch.states))
    assert psdp.policy_.schema == batch.schema
    assert psdp.policy_.at(3).schema == batch.schema


def test_with_linear_values_and_all_policies_it_is_fitted_q_iteration():
    batch, features = random_batch(), Polynomial(2)
    psdp = PSDP(LSTDQ(features, n_sweeps=3), Unrestricted(), 0.9, 5).fit(batch)
    fqi = CAPI(LSTDQ(features, n_sweeps=1), Unrestricted(), 0.9, 5, keep="last").fit(batch)
    np.testing.assert_array_equal(psdp.q_.values(batch.states), fqi.q_.values(batch.states))


def test_from_a_batch_each_step_is_a_classification():
    batch = random_batch()
    rounds = list(PSDP(FittedQ(n_trees=3), Trees(max_depth=2), 0.9, 4, random_state=0).iterate(batch))
    for iteration in rounds:
        expected = Trees(max_depth=2).improve(batch.states, iteration.q.values(batch.states))
        np.testing.assert_array_equal(iteration.policy.act(batch.states), expected.act(batch.states))


def test_rollouts_last_until_the_end_under_the_later_policies():
    """In a deterministic chain rollouts are exact: the same policies as by sweeps over the model."""
    chain = ChainWalk(variant=2, success=1.0)
    states = np.arange(30.0)[:, None]
    sampled = PSDP(Rollouts(chain, horizon=99), Thresholds(), 0.99, 6).fit(states=states)
    exact = PSDP(Exact(chain.mdp), Thresholds(), 0.99, 6).fit(states=states)
    np.testing.assert_allclose(sampled.q_.values(states), exact.q_.values(states), atol=1e-6)
    for t in range(6):
        assert sampled.policy_.at(t).cut == exact.policy_.at(t).cut
    assert [h["n_transitions"] for h in sampled.history_] == [60 * (k + 1) for k in range(6)]
    assert sampled.schema_.action_labels == ("left", "right")


def test_its_performance_is_what_the_model_says():
    mdp = random_mdp(0)
    policy = PSDP(Exact(mdp), PAIRS, 0.9, HORIZON).fit().policy_
    measured = performance(policy, mdp, n_episodes=20_000, max_steps=HORIZON)
    exact = mdp.start @ value_of(mdp, [policy.at(t) for t in range(HORIZON)])
    assert abs(measured.mean - exact) < 4 * measured.standard_error


def test_base_states_are_asked_for_backwards_and_by_number():
    mdp, asked = random_mdp(1), []

    def base(t, rng):
        asked.append(t)
        return mdp.initial(5, rng)

    policies = [PSDP(Exact(mdp), PAIRS, 0.9, 4, base=base, random_state=0).fit().policy_ for _ in range(2)]
    assert asked == [3, 2, 1, 0] * 2
    for t in range(4):
        one, other = (policy.at(t).act(mdp.states) for policy in policies)
        np.testing.assert_array_equal(one, other)


def test_a_run_can_be_left_and_taken_up_again():
    mdp = random_mdp(2)
    learner = PSDP(Exact(mdp), PAIRS, 0.9, 6)
    rounds = list(learner.iterate())
    again = list(learner.iterate(after=rounds[2]))
    np.testing.assert_array_equal(again[-1].q.table, rounds[-1].q.table)
    assert isinstance(again[-1].policy, NonStationary)
    assert len(again[-1].policy) == 6


def test_what_makes_no_sense_is_refused():
    mdp = random_mdp(3)
    with pytest.raises(InvalidInputError, match="must make sweeps"):
        PSDP(BellmanResidual(OneHot()), PAIRS, 0.9, 3).fit(random_batch())
    for fixed_point in (LSTDQ(OneHot(), projection_ridge=0.1), LSTDQ(RKHS(Gaussian(1.0)), 0.1, 0.1)):
        with pytest.raises(InvalidInputError, match=r"must make sweeps.*LSTDQ without projection_ridge.*got LSTDQ"):
            PSDP(fixed_point, PAIRS, 0.9, 3).fit(random_batch())
    with pytest.raises(InvalidInputError, match="must make sweeps"):
        PSDP(Exact, PAIRS, 0.9, 3).fit()
    with pytest.raises(InvalidInputError, match="horizon"):
        PSDP(Exact(mdp), PAIRS, 0.9, 0).fit()
    with pytest.raises(InvalidInputError, match="discount must lie in"):
        PSDP(Exact(mdp), PAIRS, 1.0, 3).fit()
    with pytest.raises(InvalidInputError, match="base must be a function"):
        PSDP(Exact(mdp), PAIRS, 0.9, 3, base=mdp.states).fit()
    with pytest.raises(InvalidInputError, match="base and states must not both be given"):
        PSDP(Exact(mdp), PAIRS, 0.9, 3, base=lambda t, rng: mdp.states).fit(states=mdp.states)
    with pytest.raises(InvalidInputError, match="states must be given"):
        PSDP(Rollouts(ChainWalk()), PAIRS, 0.99, 3).fit()


def test_the_first_round_does_not_ask_the_policy_that_the_loop_starts_with():
    mdp = random_mdp(4)
    first = next(iter(PSDP(Exact(mdp), Unrestricted(), 0.9, 3).iterate()))
    np.testing.assert_array_equal(first.q.table, mdp.rewards)
    assert not isinstance(first.policy.at(0), Constant)
