"""The model that a batch and trees are: dense twins, adjointness, conservation, the derivative, and cases at the edge."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import builders
import naive
from capi import CAPI, Transitions
from capi.errors import DivergenceError, InvalidInputError
from capi.evaluators import LSTDQ, FittedQ, KernelFittedQ, under_policy
from capi.evaluators.averager import Averager, why_not
from capi.evaluators.under_policy import effective_number
from capi.policies import Constant, EpsilonGreedy, Greedy, Mixture, NonStationary, Uniform
from capi.trees import cells, leaf_products
from capi.trees.forest import Growth
from capi.types import StateSample

DISCOUNT = 0.95
GROWTH = Growth(n_trees=4, min_samples_split=5)


class Softmax:
    """A stochastic policy with linear scores."""

    def __init__(self, n_actions, seed=0):
        self.n_actions, self.slopes = n_actions, np.random.default_rng(seed).normal(size=(2, n_actions))

    def act(self, states, allowed=None):
        return self.probabilities(states, allowed).argmax(axis=1)

    def probabilities(self, states, allowed=None):
        p = np.exp(states @ self.slopes) * (1.0 if allowed is None else allowed)
        return p / p.sum(axis=1, keepdims=True)


class Linear:
    """A Q with linear values."""

    def __init__(self, n_actions, seed=0):
        self.n_actions, self.slopes = n_actions, np.random.default_rng(seed).normal(size=(2, n_actions))

    def values(self, states):
        return states @ self.slopes


def fitted(batch, discount=DISCOUNT, starts=None, n_jobs=1, **settings):
    q = FittedQ(n_trees=4, n_sweeps=2, **settings).evaluate(Uniform(batch.n_actions), batch, discount=discount)
    return Averager.of(q, batch, discount=discount, starts=starts, n_jobs=n_jobs)


def honest(batch, discount=DISCOUNT, starts=None, n_jobs=1):
    """Return a model whose trees come from the first half of the episodes, and whose averages come from the second."""
    first = batch.episodes < np.median(batch.episodes)
    structure, own = batch.subset(first), batch.subset(~first)
    rng = np.random.default_rng(3)
    targets = structure.rewards + rng.normal(size=len(structure))
    growth = replace(GROWTH, min_samples_split=2)
    settings = {"discount": discount, "averages": own, "starts": starts, "n_jobs": n_jobs}
    return Averager.grown(structure, targets, growth, rng, **settings)


def elsewhere(n_actions=3, masked=False):
    rng = np.random.default_rng(8)
    allowed = rng.random((6, n_actions)) < 0.7 if masked else None
    if masked:
        allowed[:, 1] = True
    return StateSample(rng.normal(size=(6, 2)), np.array([0.0, 1.0, 2.0, 0.5, 1.0, 1.0]), allowed)


MODELS = {
    "plain": lambda **k: fitted(builders.wandering(), **k),
    "action as input": lambda **k: fitted(builders.wandering(1), actions="input", **k),
    "weights": lambda **k: fitted(builders.wandering(2, weights=True), **k),
    "weights, action as input": lambda **k: fitted(builders.wandering(2, weights=True), actions="input", **k),
    "elapsed": lambda **k: fitted(builders.wandering(3, elapsed=True), **k),
    "masks": lambda **k: fitted(builders.wandering(4, masks=True), **k),
    "starts": lambda **k: fitted(builders.wandering(5), starts=elsewhere(), **k),
    "halves": lambda **k: honest(builders.wandering(6, n_episodes=30), **k),
    "all columns": lambda **k: honest(
        builders.wandering(7, 40, weights=True, elapsed=True, masks=True), starts=elsewhere(masked=True), **k
    ),
    "large leaves": lambda **k: fitted(builders.wandering(8, n_episodes=40), min_samples_split=60, **k),
    "one action": lambda **k: fitted(builders.wandering(9, n_actions=1), **k),
    "one action, as input": lambda **k: fitted(builders.wandering(9, n_actions=1), actions="input", **k),
    "far": lambda **k: fitted(builders.wandering(12), **{"discount": 0.999, **k}),
    "far, halves": lambda **k: honest(builders.wandering(13, n_episodes=30), **{"discount": 0.999, **k}),
    "near": lambda **k: fitted(builders.wandering(14), **{"discount": 0.0, **k}),
    "resampled": lambda **k: resampled(fitted(builders.wandering(10), **k)),
    "resampled halves": lambda **k: resampled(honest(builders.wandering(11, 40), **k)),
}


def resampled(model):
    """Return the model with the weights of a bootstrap, in which a third of the episodes have weight 0."""
    starts = model.batch.episode_starts
    counts = np.random.default_rng(0).poisson(1.0, size=len(starts)).astype(float)
    return model.reweighted(np.repeat(counts, np.diff(starts, append=len(model.batch))))


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]()


def policies(n_actions):
    return [Constant(n_actions - 1, n_actions), Greedy(Linear(n_actions)), Uniform(n_actions), Softmax(n_actions)]


def twin(model):
    """Return the same model by dense matrices."""
    t = model.batch
    rows = np.arange(len(t)) if t.weights is None else np.flatnonzero(t.weights)
    if model.separate:
        own = [rows[t.actions[rows] == a] for a in range(t.n_actions)]
        groups = [of_action if len(of_action) >= 2 else rows for of_action in own]

        def inputs(states, actions):  # the rows of a group have one action, and so have look-ups
            return int(actions[0]) if len(actions) else 0, states

        assert len(model.forests) == len(groups)
    else:
        groups = [rows]

        def inputs(states, actions):
            return 0, np.column_stack([states, actions.astype(float)])

    return naive.DenseAverager(t, model.forests, groups, inputs, model.weights, model.discount)


def test_values_and_visits_are_those_of_dense_matrices(model):
    dense = twin(model)
    for policy in policies(model.batch.n_actions):
        value, following, of_leaves, visits = dense.solve(policy, model.starts)
        under = model.under(policy)
        size = np.abs(following).max()
        np.testing.assert_allclose(under.next_values, following, atol=under_policy.VALUE_ERROR * size)
        np.testing.assert_allclose(
            under.leaf_values, of_leaves, atol=under_policy.VALUE_ERROR * np.abs(of_leaves).max()
        )
        np.testing.assert_allclose(
            model.value(policy), value, atol=2 * under_policy.VALUE_ERROR * np.abs(of_leaves).max()
        )
        assert np.abs(under.occupancy - visits).sum() <= 2 * under_policy.OCCUPANCY_ERROR * visits.sum()
        np.testing.assert_allclose(model.effective_rows(policy), effective_number(visits), rtol=0.02)


def test_every_visit_is_discounted_until_it_ends(model):
    for policy in policies(model.batch.n_actions):
        visits = model.occupancy(policy)
        assert (visits >= -1e-9).all()
        assert visits[model.weights == 0].sum() == 0
        np.testing.assert_allclose(visits @ (1 - model.steps), 1, atol=2 * under_policy.OCCUPANCY_ERROR)


def test_the_value_is_the_reward_of_all_visits(model):
    """Values and visits are solved by transposed sweeps, each to its own error."""
    for policy in policies(model.batch.n_actions):
        visits = model.occupancy(policy)
        allowed = 2 * under_policy.OCCUPANCY_ERROR * visits.sum() * np.abs(model.batch.rewards).max()
        np.testing.assert_allclose(model.value(policy), visits @ model.batch.rewards, atol=allowed)


def test_all_products_are_the_transposes_of_their_partners(model):
    rng, t = np.random.default_rng(0), model.batch
    under = model.under(Softmax(t.n_actions))
    x, y, z = rng.normal(size=len(t)), rng.normal(size=len(t)), rng.normal(size=len(model.inverse))

    def same(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)

    same(z @ model.leaf_means(x), x @ model.shared_back(z))
    same(y @ under.following.values(z), z @ under.following.back(y, len(z)))
    w = rng.normal(size=len(model.starts.states))
    same(w @ under.initial.values(z), z @ under.initial.back(w, len(z)))
    np.testing.assert_allclose(model.leaf_means(np.ones(len(t))), 1)  # averages, in empty leaves, too


@pytest.mark.parametrize("limit", [0, 1e9])
def test_solutions_for_any_constant_are_adjoint(model, limit, monkeypatch):
    monkeypatch.setattr(under_policy, "SMALL_CELLS", limit)
    under, rng = model.under(Softmax(model.batch.n_actions)), np.random.default_rng(2)
    c, d = rng.normal(size=(2, len(model.batch)))
    x, y = under.solved(c, 1e-12).x, under.solved_back(d, 1e-12).x
    np.testing.assert_allclose(under.sweep(c, x), x, atol=1e-10)
    assert d @ x == pytest.approx(y @ c, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("limit", [0, 1e9])
def test_other_weights_on_the_same_cells_are_those_of_the_model_but_for_empty_leaves(model, limit, monkeypatch):
    monkeypatch.setattr(under_policy, "SMALL_CELLS", limit)
    under, rng = model.under(Softmax(model.batch.n_actions)), np.random.default_rng(2)
    weights = rng.random(len(model.batch))
    expected, found = model.reweighted(weights).under(Softmax(model.batch.n_actions)), under.on_same_cells(weights)
    if (model.cells.own > 0).all() and (model.weights > 0).all():  # then no leaf borrows the rows of an ancestor
        np.testing.assert_allclose(
            found.next_values, expected.next_values, atol=3e-6 * np.abs(expected.next_values).max()
        )
    some = weights * (rng.random(len(weights)) < 0.5)
    dropped, zeros = under.on_same_cells(some), np.zeros(len(some))
    live, x = some > 0, rng.normal(size=len(some))
    plain = replace(model, weights=some)
    product = under.following.values(plain.leaf_means(plain.steps * np.where(live, x, 0.0)))
    if limit == 0:
        np.testing.assert_allclose(dropped.sweep(zeros, np.where(live, x, 0.0)), product, atol=1e-12)
    solution = dropped.solved(np.where(live, x, 0.0), 1e-12).x
    again = under.following.values(plain.leaf_means(plain.steps * solution)) + x
    np.testing.assert_allclose(solution[live], again[live], atol=1e-9)


def test_known_decisions_a_guess_and_a_tolerance_give_the_same_model(model):
    t, policy = model.batch, Softmax(model.batch.n_actions)
    decisions = [policy.probabilities(t.next_states, t.next_masks())]
    decisions.append(policy.probabilities(model.starts.states, model.starts.allowed))
    exact = replace(model, remembers=False).under_decisions(*decisions, tolerance=1e-11)
    size = np.abs(exact.next_values).max()
    guessed = model.under_decisions(*decisions, guess=exact.next_values)
    for found in (guessed, model.under(policy)):
        np.testing.assert_allclose(found.next_values, exact.next_values, atol=under_policy.VALUE_ERROR * size)
    assert guessed.value_solution.n_products == (model.discount > 0)


@pytest.mark.parametrize("name", ["plain", "all columns", "large leaves", "resampled halves"])
def test_chains_of_rows_and_products_of_leaves_give_the_same_numbers(name, monkeypatch):
    found = []
    for limit in (0, 10**9):
        monkeypatch.setattr(under_policy, "SMALL_CELLS", limit)
        model = MODELS[name]()
        under = model.under(Softmax(model.batch.n_actions))
        values = under.solved_values(model.batch.rewards, tolerance=1e-12).x
        found.append((values, under.occupancy))
        swept = under.sweep(np.zeros(len(model.batch)), values)
        assert swept.shape == values.shape
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-10 * np.abs(values).max())
    assert np.abs(found[0][1] - found[1][1]).sum() <= 2 * under_policy.OCCUPANCY_ERROR * found[0][1].sum()


@pytest.mark.parametrize("limit", [0, 10**9])
def test_a_sweep_leaves_the_dense_solution_as_it_is(model, limit, monkeypatch):
    monkeypatch.setattr(under_policy, "SMALL_CELLS", limit)
    policy, dense = Softmax(model.batch.n_actions), twin(model)
    _, values, _, visits = dense.solve(policy, model.starts)
    under, t = model.under(policy), model.batch
    constant = under.following.values(model.leaf_means(t.rewards))
    np.testing.assert_allclose(under.sweep(constant, values), values, atol=1e-9 * np.abs(values).max())
    first = model.shared_back(under.initial.back(model.start_shares, len(model.inverse)))
    weights = model.steps * visits
    np.testing.assert_allclose(under.sweep_back(model.steps * first, weights), weights, atol=1e-9 * visits.sum())


def test_the_derivative_of_the_value_is_the_weighted_difference_of_action_values(model, monkeypatch):
    monkeypatch.setattr(under_policy, "VALUE_ERROR", 1e-12)
    monkeypatch.setattr(under_policy, "OCCUPANCY_ERROR", 1e-10)
    t, a = model.batch, 1e-4
    old, new = Softmax(t.n_actions), Greedy(Linear(t.n_actions, 5))
    ahead, back = (mixed_values(model, old, new, share) for share in (a, 2 * a))
    slope = (-3 * model.value(old) + 4 * ahead - back) / (2 * a)  # of second order, with shares that are probabilities

    under = model.under(old)
    q, masks = under.action_values, t.next_masks()
    differences = [
        ((new.probabilities(x, mask) - old.probabilities(x, mask)) * q.values(x)).sum(axis=1)
        for x, mask in ((model.starts.states, model.starts.allowed), (t.next_states, masks))
    ]
    predicted = under.decision_weights @ np.concatenate(differences)
    np.testing.assert_allclose(predicted, slope, rtol=1e-5, atol=1e-7 * np.abs(under.next_values).max())


def mixed_values(model, old, new, share):
    return model.under(Mixture([old, new], [1 - share, share])).value


def test_action_values_are_those_of_the_leaves(model):
    policy, dense = Softmax(model.batch.n_actions), twin(model)
    of_leaves = dense.solve(policy, model.starts)[2]
    x = np.random.default_rng(1).normal(size=(5, 2))
    found = model.action_values(policy).values(x)
    for a in range(model.batch.n_actions):
        expected = dense.look_ups(x, np.eye(model.batch.n_actions)[np.full(5, a)]) @ of_leaves
        np.testing.assert_allclose(found[:, a], expected, atol=1e-6 * np.abs(of_leaves).max())


def test_the_best_policy_is_that_of_value_iteration(model):
    values, of_starts = twin(model).optimal_values(model.starts)
    policy = model.best_policy()
    under = model.under(policy)
    best = model.start_shares @ of_starts
    size = max(np.abs(values).max(), np.abs(of_starts).max())
    np.testing.assert_allclose(under.next_values, values, atol=3e-6 * size)
    np.testing.assert_allclose(under.value, best, atol=3e-6 * size)
    others = [model.value(Greedy(Linear(model.batch.n_actions, seed))) for seed in range(20)]
    assert max(others) <= best + 3e-6 * size


def corridor(length=12):
    """Action 0 stays, action 1 goes right, and entering the last place pays 1: the first policy never gets there."""
    x = np.repeat(np.arange(length, dtype=float), 2)
    a = np.tile([0, 1], length)
    y = np.minimum(x + a, length - 1)
    rewards = ((y == length - 1) & (x < length - 1)).astype(float)
    return Transitions(x[:, None], a, rewards, y[:, None], np.zeros(len(x), bool), n_actions=2)


def test_the_best_policy_is_found_where_the_value_of_the_starts_does_not_rise_at_first():
    batch, growth = corridor(), Growth(n_trees=1, min_samples_split=2)
    start = StateSample(np.array([[0.0]]))
    model = Averager.grown(
        batch, batch.states[:, 0], growth, np.random.default_rng(0), discount=0.9, starts=start
    )  # a leaf for each place and action
    policy = model.best_policy()
    assert policy.act(np.arange(11.0)[:, None]).tolist() == [1] * 11
    np.testing.assert_allclose(model.value(policy), 0.9**10)


@pytest.mark.parametrize("limit", [0, 10**9])
def test_the_number_of_threads_changes_no_byte(limit, monkeypatch):
    monkeypatch.setattr(under_policy, "SMALL_CELLS", limit)
    for module in (cells, leaf_products):
        monkeypatch.setattr(module, "AT_ONCE", 2**10)  # several pieces
    for make in (fitted, honest):
        found = []
        for n_jobs in (1, 3):
            model = make(builders.wandering(0, n_episodes=300), n_jobs=n_jobs)
            under = model.under(Softmax(3))
            found.append([x.tobytes() for x in (under.next_values, under.leaf_values, under.occupancy)])
            found[-1].append(model.best_policy().act(model.batch.states).tobytes())
        assert found[0] == found[1]


def test_weights_of_whole_numbers_are_copies_of_the_episodes():
    """Resampling repeats episodes; on the same trees weights do the same."""
    batch = builders.wandering(0)
    model = fitted(batch, starts=elsewhere())
    counts = np.random.default_rng(1).integers(0, 3, size=batch.n_episodes)
    weighted = model.reweighted(np.repeat(counts, batch.episode_lengths).astype(float))
    np.testing.assert_array_equal(weighted.starts.states, model.starts.states)
    expected = twin(weighted).solve(Softmax(3), model.starts)[0]
    np.testing.assert_allclose(weighted.value(Softmax(3)), expected, rtol=1e-5)
    assert weighted.value(Softmax(3)) != model.value(Softmax(3))
    again = weighted.reweighted(np.ones(len(batch)))
    assert again.value(Softmax(3)) == model.value(Softmax(3))


# -- cases at the edge ---------------------------------------------------------------------------


def rows(n=8, terminated=False, rewards=None, n_actions=2, episodes=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 2))
    r = rng.normal(size=n) if rewards is None else rewards
    return Transitions(
        x, np.arange(n) % n_actions, r, x[::-1], np.full(n, terminated), n_actions=n_actions, episodes=episodes
    )


def test_if_all_rows_terminate_only_the_first_reward_counts():
    batch, policy = rows(terminated=True), Constant(1, 2)
    q = FittedQ(n_trees=4, min_samples_split=2).evaluate(policy, batch, discount=0.999)
    model = Averager.of(q, batch, discount=0.999)
    np.testing.assert_allclose(model.value(policy), q.values(batch.states)[:, 1].mean())
    np.testing.assert_allclose(model.occupancy(policy).sum(), 1)
    assert not model.under(policy).next_values.any()
    assert not model.under(policy).decision_weights[len(batch) :].any()


def test_at_discount_zero_only_the_first_reward_counts():
    model = fitted(rows(), 0.0)
    visits = model.occupancy(Uniform(2))
    np.testing.assert_allclose(visits.sum(), 1)
    np.testing.assert_allclose(model.value(Uniform(2)), visits @ model.batch.rewards)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.999, 1 - 1e-7])
def test_a_constant_reward_is_worth_its_geometric_sum(discount):
    model = fitted(rows(rewards=np.full(8, 3.0)), discount)
    for policy in (Constant(0, 2), Uniform(2)):
        np.testing.assert_allclose(model.value(policy), 3 / (1 - discount), rtol=1e-6)
        np.testing.assert_allclose(model.occupancy(policy).sum(), 1 / (1 - discount), rtol=1e-3)


def test_without_rewards_everything_is_zero():
    model = fitted(rows(rewards=np.zeros(8)))
    assert model.value(Uniform(2)) == 0
    assert not model.action_values(Uniform(2)).values(model.batch.states).any()
    assert model.under(model.best_policy()).value == 0


@pytest.mark.parametrize("episodes", [None, np.zeros(8, dtype=int)])
def test_one_episode_or_none_named(episodes):
    model = fitted(rows(episodes=episodes))
    assert len(model.starts.states) == (8 if episodes is None else 1)
    np.testing.assert_allclose(model.occupancy(Uniform(2)) @ (1 - model.steps), 1, rtol=1e-3)


@pytest.mark.parametrize("terminated", [False, True])
def test_one_row(terminated):
    model = fitted(rows(1, terminated, np.array([2.0]), n_actions=1), 0.9)
    np.testing.assert_allclose(model.value(Constant(0, 1)), 2.0 if terminated else 20.0, rtol=1e-6)
    np.testing.assert_allclose(model.occupancy(Constant(0, 1)), [1.0 if terminated else 10.0], rtol=1e-3)
    assert model.effective_rows(Constant(0, 1)) == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e160, 1e300])
def test_rewards_of_any_size_that_numbers_can_have(scale):
    batch = builders.wandering(0)
    scaled = Transitions(
        batch.states, batch.actions, batch.rewards * scale, batch.next_states, batch.terminated, n_actions=3, episodes=batch.episodes
    )  # fmt: skip
    q = FittedQ(n_trees=4).evaluate(Uniform(3), batch, discount=0.99)
    model = Averager.of(q, batch, discount=0.99)
    expected = model.value(Uniform(3))
    found = replace(model, batch=scaled).value(Uniform(3))
    np.testing.assert_allclose(found / scale, expected, rtol=1e-5)


@pytest.mark.parametrize("terminated", [False, True])
def test_rewards_whose_sums_overflow_are_an_error(terminated):
    model = fitted(rows(8, terminated))
    huge = rows(8, terminated, np.full(8, 1.7e308))
    with pytest.raises(DivergenceError, match=r"^values must stay finite; rewards .* too large.*Rescale them"):
        replace(model, batch=huge).value(Uniform(2))


def test_few_rows_of_an_action_are_replaced_by_all_rows():
    batch = rows(9, n_actions=2)
    few = Transitions(batch.states, [0] * 8 + [1], batch.rewards, batch.next_states, batch.terminated, n_actions=3)
    model = Averager.grown(few, few.rewards, GROWTH, np.random.default_rng(0), discount=0.9)
    assert len(model.forests) == 3
    expected = twin(model).solve(Uniform(3), model.starts)[0]
    np.testing.assert_allclose(model.value(Uniform(3)), expected, rtol=1e-5)


# -- what is no averager ---------------------------------------------------------------------------


def test_what_does_not_average_rows_says_so():
    batch = builders.wandering(0)
    given = [
        (KernelFittedQ(), r"KernelValues does not average rows in the leaves of trees.*Use FittedQ with its own trees"),
        (LSTDQ(lambda x: x), r"LinearValues does not average rows in the leaves"),
        (
            FittedQ(regressor=LinearRegression()),
            r"The regressor of this FittedQ may give rows negative weights.*without",
        ),
    ]
    for evaluator, message in given:
        q = evaluator.evaluate(Uniform(3), batch, discount=0.9)
        assert why_not(q, batch) is not None
        with pytest.raises(InvalidInputError, match=message):
            Averager.of(q, batch, discount=0.9)
    q = FittedQ(n_trees=2).evaluate(Uniform(3), batch, discount=0.9)
    with pytest.raises(InvalidInputError, match=r"q must come from FittedQ.evaluate on this batch"):
        Averager.of(q, builders.wandering(0), discount=0.9)
    assert why_not(q, batch) is None


def test_policies_that_change_with_time_are_refused_and_mixtures_of_others_are_not():
    model = fitted(builders.wandering(0))
    changing = NonStationary([Constant(0, 3), Constant(1, 3)])
    for policy in (changing, EpsilonGreedy(changing, 0.1), Mixture([Uniform(3), changing], [0.5, 0.5])):
        with pytest.raises(
            InvalidInputError, match=r"decides by the number of the step.*Evaluate the policies of its steps"
        ):
            model.value(policy)
    half = Mixture([Constant(0, 3), Uniform(3)], [0.7, 0.3])
    np.testing.assert_allclose(model.value(EpsilonGreedy(Constant(0, 3), 0.3)), model.value(half))


def test_other_actions_bad_weights_and_bad_starts_are_refused():
    batch = builders.wandering(0)
    model = fitted(batch)
    with pytest.raises(InvalidInputError, match=r"policy must have the 3 actions of the batch; it has 2"):
        model.value(Constant(0, 2))
    for weights, message in (
        (np.zeros(len(batch)), "positive, finite sum"),
        (np.ones(3), "shape"),
        (-np.ones(len(batch)), "negative"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            model.reweighted(weights)
    for starts, message in (
        (StateSample(np.zeros((2, 3))), "2 features|columns"),
        (StateSample(np.zeros((2, 2)), np.array([1.0, -1.0])), "weights of the starts must not be negative"),
        (StateSample(np.zeros((2, 2)), None, np.zeros((2, 3), bool)), "allowed actions of the starts must allow"),
        (StateSample(np.zeros((2, 2)), None, np.ones((2, 2), bool)), "allowed actions of the starts must have shape"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            fitted(batch, starts=starts)
    weighted = np.ones(len(batch))
    weighted[batch.episode_starts] = 0
    late = Transitions(
        batch.states, batch.actions, batch.rewards, batch.next_states, batch.terminated, n_actions=3, episodes=batch.episodes, weights=weighted
    )  # fmt: skip
    with pytest.raises(
        InvalidInputError, match=r"the first row of an episode must have positive weight; none has\. Pass the states"
    ):
        fitted(late)


def test_arguments_of_a_model_are_checked():
    batch = builders.wandering()
    for wrong, message in (
        ({"discount": 1.0}, "discount must lie in"),
        ({"discount": "x"}, "discount must"),
        ({"discount": None}, "discount must"),
        ({"discount": np.nan}, "discount must"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"starts": (np.zeros((2, 2)),) * 4}, "starts must be an array or"),
    ):
        q = FittedQ(n_trees=2, n_sweeps=1).evaluate(Uniform(3), batch, discount=DISCOUNT)
        with pytest.raises(InvalidInputError, match=message):
            Averager.of(q, batch, **{"discount": DISCOUNT, **wrong})
    model = fitted(batch)
    for policy in (None, "greedy", Uniform, np.zeros(3), CAPI()):
        with pytest.raises(InvalidInputError, match="policy must be a Policy"):
            model.value(policy)
    states = batch.states[:3]
    same = [fitted(batch, starts=starts).value(Uniform(3)) for starts in (states, (states,), StateSample(states))]
    assert same == same[:1] * 3


def test_fitted_q_to_its_fixed_point_is_the_action_values_of_the_model():
    batch = builders.wandering(0, elapsed=True)
    settled = FittedQ(n_trees=4, n_sweeps=None, refresh_every="never").evaluate(Uniform(3), batch, discount=DISCOUNT)
    found = Averager.of(settled, batch, discount=DISCOUNT).action_values(Uniform(3)).values(batch.states)
    expected = settled.values(batch.states)
    np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())


def test_finite_states_are_the_decision_process_that_the_batch_counts():
    """With a leaf for each state and action, values are those of the counted model."""
    rng = np.random.default_rng(0)
    x, a, y = rng.integers(4, size=300), rng.integers(2, size=300), rng.integers(4, size=300)
    batch = Transitions(x[:, None], a, np.cos(x + 2.0 * a), y[:, None], np.zeros(300, bool), n_actions=2)
    model = fitted(batch, 0.9, min_samples_split=2)
    P = np.zeros((4, 4))
    for i in range(4):
        for j, k in zip(a[x == i], y[x == i], strict=True):
            P[i, k] += 0.5 / np.sum(a[x == i] == j)
    r = 0.5 * (np.cos(np.arange(4)) + np.cos(np.arange(4) + 2.0))
    v = np.linalg.solve(np.eye(4) - 0.9 * P, r)
    np.testing.assert_allclose(model.value(Uniform(2)), v[x].mean(), rtol=1e-6)
