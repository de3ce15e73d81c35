import numpy as np
import pytest

from capi import CAPI, load_policy, save_policy
from capi.domains import ChainWalk
from capi.errors import InvalidInputError
from capi.evaluators import Exact, FittedQ
from capi.learning import NearLog
from capi.policies import Constant, EpsilonGreedy, Mixture, Uniform, one_hot
from capi.policies.behaviour import ClonedBehaviour
from capi.policy_spaces import Thresholds, Trees
from capi.testing import check_policy, random_batch

CHAIN = ChainWalk(variant=1, success=0.7).mdp
BATCH = random_batch(n_episodes=40)
CLONE = Trees(max_depth=2).improve(BATCH.states, one_hot(BATCH.actions, 3))


def learner(share, behaviour=CLONE, **settings):
    near = {"update": NearLog(behaviour, share), "discount": 0.9, "n_iterations": 3, "random_state": 0}
    return CAPI(FittedQ(n_trees=4), Trees(), **{**near, **settings})


def mixed(new, behaviour, share):
    return NearLog(behaviour, share)(Uniform(3), new, q=None, states=BATCH.states, k=0)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_distance_to_the_behaviour_policy_is_bounded_by_the_share(share):
    new, behaviour = Constant(1, 3), EpsilonGreedy(CLONE, 0.2)
    p, b = (policy.probabilities(BATCH.states) for policy in (mixed(new, behaviour, share), behaviour))
    variation = 0.5 * np.abs(p - b).sum(axis=1)
    apart = 0.5 * np.abs(new.probabilities(BATCH.states) - b).sum(axis=1)
    np.testing.assert_allclose(variation, (1 - share) * apart)
    assert (variation <= 1 - share).all()
    divergence = (b * np.log(b / p)).sum(axis=1)
    assert (divergence <= -np.log(share)).all()
    check_policy(mixed(new, behaviour, share), BATCH.states, 3)


def test_a_share_of_zero_is_the_loop_without_an_update():
    plain, near = learner(0.0, update=None).fit(BATCH), learner(0.0).fit(BATCH)
    np.testing.assert_array_equal(near.policy_.probabilities(BATCH.states), plain.policy_.probabilities(BATCH.states))
    np.testing.assert_array_equal(near.q_.values(BATCH.states), plain.q_.values(BATCH.states))


def test_the_next_round_evaluates_the_mixture():
    behaviour = Constant(0, 2)
    loop = CAPI(Exact(CHAIN), Thresholds(), 0.99, 3, update=NearLog(behaviour, 0.3), initial_policy=Constant(1, 2))
    first, second, _ = loop.iterate()
    assert isinstance(first.policy, Mixture)
    np.testing.assert_allclose(second.q.values(CHAIN.states), CHAIN.action_values(first.policy))
    new, kept = first.policy.policies
    assert kept is behaviour
    p = first.policy.probabilities(CHAIN.states)
    np.testing.assert_allclose(p, 0.7 * one_hot(new.act(CHAIN.states), 2) + [0.3, 0.0])


def test_policies_near_the_log_are_worth_more_the_less_of_a_bad_log_they_keep():
    values = []
    for share in (0.8, 0.4, 0.0):
        near = CAPI(Exact(CHAIN), Thresholds(), 0.99, 10, update=NearLog(Uniform(2), share), keep="last").fit()
        values.append(CHAIN.start @ CHAIN.values(near.policy_))
    assert values == sorted(values)


def test_the_defaults_of_the_loop_accept_mixtures():
    fitted = CAPI(
        FittedQ(n_trees=4, n_sweeps=None), Trees(), 0.9, 4, update=NearLog(Uniform(3), 0.2), random_state=0
    ).fit(BATCH)
    assert fitted.policy_.weights.tolist() == [0.8, 0.2]
    assert any("kept" in numbers for numbers in fitted.history_)


def test_members_do_not_pile_up_and_a_behaviour_mixture_is_flattened():
    near = learner(0.25, Mixture([CLONE, Uniform(3)], [0.5, 0.5]), n_iterations=5).fit(BATCH)
    np.testing.assert_allclose(near.policy_.weights, [0.75, 0.125, 0.125])


def test_a_saved_mixture_decides_as_before(tmp_path):
    policy = learner(0.25).fit(BATCH).policy_
    save_policy(policy, tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    np.testing.assert_array_equal(loaded.probabilities(BATCH.states), policy.probabilities(BATCH.states))


def test_masks_bind_the_mixture():
    allowed = np.ones((len(BATCH), 3), dtype=bool)
    allowed[::2, 1] = False
    p = mixed(Constant(0, 3), Uniform(3), 0.3).probabilities(BATCH.states, allowed)
    assert (p[~allowed] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_the_share_is_a_parameter_of_the_learner():
    assert learner(0.25).set_params(update__share=0.5).update.share == 0.5


@pytest.mark.parametrize(
    ("behaviour", "share", "message"),
    [
        (3, 0.5, "behaviour must be a Policy"),
        (Uniform, 0.5, "behaviour must be a Policy"),
        (Uniform(3), 1.0, r"share must lie in \[0, 1\), because with 1 nothing would be learned; got 1.0"),
        (Uniform(3), -0.1, r"share must lie in \[0, 1\)"),
        (Uniform(3), "half", r"share must lie in \[0, 1\)"),
    ],
)
def test_bad_settings_are_refused(behaviour, share, message):
    with pytest.raises(InvalidInputError, match=message):
        NearLog(behaviour, share)


def test_the_behaviour_policy_must_have_the_actions_of_the_batch():
    with pytest.raises(InvalidInputError, match="must have the same actions; number 0 has 3, number 1 has 2"):
        learner(0.5, Uniform(2)).fit(BATCH)


def test_without_a_behaviour_policy_the_loop_clones_the_batch():
    learned = learner(0.25, None).fit(BATCH)
    assert isinstance(learned.policy_.policies[1], ClonedBehaviour)
    np.testing.assert_array_equal(learned.policy_.weights, [0.75, 0.25])
    assert learned.update.behaviour is None  # settings stay as they were
    again = learner(0.25, None).fit(BATCH).policy_.probabilities(BATCH.states)
    np.testing.assert_array_equal(learned.policy_.probabilities(BATCH.states), again)
    with pytest.raises(InvalidInputError, match="must be the update of a CAPI"):
        NearLog(None, 0.5)(Uniform(3), Uniform(3), q=None, states=BATCH.states, k=0)
    with pytest.raises(InvalidInputError, match="NearLog needs a fixed batch"):
        learner(0.25, None).fit(lambda k, policy, rng: BATCH)
