import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge

from capi import CAPI, Transitions
from capi.baselines import RFQI, FittedQIteration
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ, KernelFittedQ
from capi.features.kernels import Gaussian
from capi.policy_spaces import Unrestricted
from capi.testing import random_batch


def test_rfqi_is_the_loop_of_its_paper():
    """Kernel ridge regression of r + gamma max_a Q(x', a), again and again, with scikit-learn's regression."""
    batch = random_batch(n_episodes=60)
    low, unit = batch.states.min(axis=0), np.ptp(batch.states, axis=0)
    x, following = (batch.states - low) / unit, (batch.next_states - low) / unit
    learner = RFQI(KernelFittedQ(Gaussian(0.2), threshold=None), discount=0.9, n_iterations=8).fit(batch)
    values = np.zeros((len(batch), 3))
    for _ in range(8):
        targets = batch.rewards + 0.9 * np.where(batch.terminated, 0.0, values.max(axis=1))
        models = [KernelRidge(alpha=0.01, kernel="rbf", gamma=12.5) for _ in range(3)]
        for a, model in enumerate(models):
            model.fit(x[batch.actions == a], targets[batch.actions == a])
        values = np.column_stack([model.predict(following) for model in models])
    expected = np.column_stack([model.predict(x) for model in models])
    np.testing.assert_allclose(learner.q_.values(batch.states), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(learner.policy_.act(batch.states), expected.argmax(axis=1))


@pytest.mark.parametrize(
    ("baseline", "evaluator"),
    [(RFQI, KernelFittedQ(Gaussian(0.3))), (FittedQIteration, FittedQ(n_trees=3))],
    ids=["kernel", "trees"],
)
def test_fitted_q_iteration_is_capi_with_all_policies_and_one_sweep_a_round(baseline, evaluator):
    batch, settings = random_batch(), {"discount": 0.9, "n_iterations": 5, "random_state": 0}
    ours = baseline(type(evaluator)(**{**vars(evaluator), "n_sweeps": 7}), **settings).fit(batch)
    same = CAPI(evaluator, Unrestricted(), **settings, keep="last", state_weights="batch").fit(batch)
    np.testing.assert_array_equal(ours.q_.values(batch.states), same.q_.values(batch.states))
    assert len(ours.history_) == 5


def test_rfqi_keeps_to_what_is_allowed():
    """Action 1 pays more but may never be taken next, so its value does not spread."""
    n = 40
    x = np.random.default_rng(0).uniform(size=(n, 1))
    actions = np.arange(n) % 2
    mask = np.tile([True, False], (n, 1))
    batch = Transitions(
        x, actions, 1.0 * actions, x, np.zeros(n, dtype=bool), allowed=np.ones((n, 2)), next_allowed=mask
    )
    q = RFQI(KernelFittedQ(Gaussian(1.0), ridge=1e-6), discount=0.5, n_iterations=20).fit(batch).q_
    np.testing.assert_allclose(q.values(x), np.tile([0.0, 1.0], (n, 1)), atol=0.01)


def test_the_same_batch_gives_the_same_bits():
    one, two = (RFQI(KernelFittedQ(), 0.9, 10, random_state=seed).fit(random_batch()) for seed in (0, 1))
    states = random_batch().states
    assert one.q_.values(states).tobytes() == two.q_.values(states).tobytes()


def test_follows_scikit_learn():
    learner = RFQI(KernelFittedQ(ridge=0.1), discount=0.9, n_iterations=3)
    assert repr(learner) == repr(clone(learner))
    assert list(learner.get_params(deep=False)) == ["evaluator", "discount", "n_iterations", "random_state", "keep"]
    assert learner.set_params(n_iterations=2).n_iterations == 2


@pytest.mark.parametrize(
    ("baseline", "wrong", "words"),
    [
        (RFQI, FittedQ(), "must be a KernelFittedQ; got FittedQ"),
        (FittedQIteration, KernelFittedQ(), "must be a FittedQ"),
    ],
)
def test_the_evaluator_must_be_of_its_kind(baseline, wrong, words):
    with pytest.raises(InvalidInputError, match=words):
        baseline(wrong, 0.9).fit(random_batch())
