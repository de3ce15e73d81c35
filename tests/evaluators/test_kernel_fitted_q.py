import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.kernel_ridge import KernelRidge

from capi import CAPI, FiniteMDP, Transitions
from capi.errors import DictionarySaturatedWarning, DivergenceError, InvalidInputError
from capi.evaluators import KernelFittedQ, _ridge
from capi.features.kernels import Gaussian, LinearKernel
from capi.policies import Constant, Uniform
from capi.policy_spaces import Trees, Unrestricted
from capi.testing import NearestQ, check_evaluator, random_batch

FIELDS = ("states", "actions", "rewards", "next_states", "terminated")
WIDE = Gaussian(0.5)
FORMS = [None, 1e-3]  # exact, sparsified


def same(first, second):
    """The kernel of a table: one for equal states, else zero."""
    return (first == second.T).astype(float)


def weighted(batch, weight):
    return Transitions(*(getattr(batch, n) for n in FIELDS), n_actions=batch.n_actions, weights=weight)


class Recorder:
    """A Gaussian that writes down the shapes of the tables that are asked of it."""

    def __init__(self, bandwidth=0.5):
        self.kernel, self.shapes = Gaussian(bandwidth), []

    def __call__(self, first, second):
        self.shapes.append((len(first), len(second)))
        return self.kernel(first, second)

    def diag(self, states):
        return self.kernel.diag(states)


@pytest.fixture
def factorisations(monkeypatch):
    made, real = [], _ridge.cho_factor

    def counted(matrix, **options):
        made.append(matrix.shape)
        return real(matrix, **options)

    monkeypatch.setattr(_ridge, "cho_factor", counted)
    return made


@pytest.mark.parametrize(
    "evaluator",
    [
        KernelFittedQ(),
        KernelFittedQ(threshold=None),
        KernelFittedQ(WIDE, ridge=0.1, n_sweeps=3),
        KernelFittedQ(WIDE, ridge=0.1, n_sweeps=None, threshold=0.01),
        KernelFittedQ(WIDE, ridge=1.0, n_sweeps=2, threshold=None, scale="deviation"),
        KernelFittedQ(Matern(0.5, nu=1.5), scale=[[-4, -4], [4, 4]], n_sweeps=4, max_size=None),
    ],
    ids=repr,
)
def test_keeps_the_contract(evaluator):
    check_evaluator(evaluator)


def test_one_exact_sweep_is_scikit_learns_kernel_ridge_for_each_action():
    batch = random_batch(n_episodes=60)
    low, unit = batch.states.min(axis=0), np.ptp(batch.states, axis=0)
    old = NearestQ(batch.states, np.arange(3.0 * len(batch)).reshape(-1, 3))
    q = KernelFittedQ(WIDE, ridge=0.05, threshold=None).evaluate(Uniform(3), batch, discount=0.9, previous=old)
    targets = batch.rewards + 0.9 * ~batch.terminated * old.values(batch.next_states).mean(axis=1)
    points = np.random.default_rng(0).normal(size=(40, 2))
    for a in range(3):
        rows = batch.actions == a
        theirs = KernelRidge(alpha=0.05, kernel="rbf", gamma=0.5 / 0.5**2)
        theirs.fit((batch.states[rows] - low) / unit, targets[rows])
        np.testing.assert_allclose(q.values(points)[:, a], theirs.predict((points - low) / unit), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("weight", [None, "random"])
@pytest.mark.parametrize("n_sweeps", [1, 5, None])
def test_the_sparsified_form_becomes_the_exact_one(n_sweeps, weight):
    batch = random_batch(n_episodes=60)
    if weight is not None:
        batch = weighted(batch, np.random.default_rng(0).exponential(size=len(batch)))
    evaluator = KernelFittedQ(WIDE, ridge=1.0, n_sweeps=n_sweeps, threshold=None)  # with less, sweeps may expand
    policy = Constant(1, 3)
    exact = evaluator.evaluate(policy, batch, discount=0.9).values(batch.states)
    errors = []
    for threshold in (1e-1, 1e-3, 1e-6, 1e-10):
        sparse = replace(evaluator, threshold=threshold).evaluate(policy, batch, discount=0.9)
        errors.append(np.abs(sparse.values(batch.states) - exact).max())
    assert errors[-1] < 1e-6
    assert errors[0] > errors[1] > errors[-1]


@pytest.mark.parametrize("policy", [Constant(2, 3), Uniform(3)], ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_the_fixed_point_is_that_of_a_linear_system(policy, form):
    """The targets solve y = r + gamma M y, where M regresses them and looks ahead; on all features, or on the dictionary's."""
    batch, discount, ridge = random_batch(n_episodes=40), 0.9, 0.1
    evaluator = KernelFittedQ(WIDE, ridge=ridge, threshold=form, n_sweeps=None)
    q = evaluator.evaluate(policy, batch, discount=discount)
    if form is None:
        points = q.features.basis.scaling(batch.states), q.features.basis.scaling(batch.next_states)
        table, ahead = (WIDE(p, points[0]) for p in points)
    else:
        z, z_next = (q.features.basis.dictionary.transform(x) for x in (batch.states, batch.next_states))
        table, ahead = z @ z.T, z_next @ z.T
    pi = policy.probabilities(batch.next_states)
    M = np.zeros_like(table)
    for a in range(3):
        rows = np.flatnonzero(batch.actions == a)
        smoother = np.linalg.inv(table[np.ix_(rows, rows)] + ridge * np.eye(len(rows)))
        M[:, rows] += (pi[:, a] * ~batch.terminated)[:, None] * ahead[:, rows] @ smoother
    y = np.linalg.solve(np.eye(len(batch)) - discount * M, batch.rewards)
    for a in range(3):
        rows = np.flatnonzero(batch.actions == a)
        alpha = np.linalg.solve(table[np.ix_(rows, rows)] + ridge * np.eye(len(rows)), y[rows])
        expected = table[:, rows] @ alpha
        np.testing.assert_allclose(q.values(batch.states)[:, a], expected, atol=1e-7 * np.abs(y).max())


def tabular_batch(mdp, n, rng):
    states, actions = mdp.initial(n, rng), rng.integers(mdp.n_actions, size=n)
    following, rewards, ends = mdp.step(states, actions, rng)
    return Transitions(states, actions, rewards, following, ends, n_actions=mdp.n_actions)


@pytest.mark.parametrize(("form", "n", "accuracy"), [(None, 1500, 0.2), (1e-3, 30_000, 0.03)])
def test_the_kernel_of_a_table_finds_the_values_of_a_finite_mdp(form, n, accuracy):
    rng = np.random.default_rng(0)
    mdp = FiniteMDP(rng.dirichlet(np.ones(4), size=(2, 4)), rng.normal(size=(4, 2)), discount=0.8)
    batch = tabular_batch(mdp, n, rng)
    x, y = batch.states[:, 0].astype(int), batch.next_states[:, 0].astype(int)
    counts = np.zeros((2, 4, 4))
    np.add.at(counts, (batch.actions, x, y), 1)
    logged = FiniteMDP(counts / counts.sum(axis=2, keepdims=True), mdp.rewards, discount=0.8)
    evaluator = KernelFittedQ(same, ridge=1e-6, threshold=form, scale=None, n_sweeps=None)
    for policy in (Constant(1, 2), Uniform(2)):
        values = evaluator.evaluate(policy, batch, discount=0.8).values(mdp.states)
        np.testing.assert_allclose(values, logged.action_values(policy), atol=1e-6)
        np.testing.assert_allclose(values, mdp.action_values(policy), atol=accuracy)


@pytest.mark.parametrize("form", FORMS)
def test_sweeps_in_one_evaluation_or_in_several_are_the_same(form):
    batch, policy = random_batch(n_episodes=60), Constant(2, 3)
    evaluator = KernelFittedQ(WIDE, threshold=form)
    q = None
    for _ in range(5):
        q = evaluator.evaluate(policy, batch, discount=0.9, previous=q)
    at_once = replace(evaluator, n_sweeps=5).evaluate(policy, batch, discount=0.9)
    np.testing.assert_allclose(at_once.values(batch.states), q.values(batch.states), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_weight_is_worth_as_many_rows(form):
    """Rows that are repeated weigh as much as rows with that weight, if the ridge is in proportion to the mean weight."""
    batch = random_batch(n_episodes=30)
    times = np.random.default_rng(0).integers(0, 4, size=len(batch))
    rows = np.repeat(np.arange(len(batch)), times)
    repeated = Transitions(*(getattr(batch, n)[rows] for n in FIELDS), n_actions=3)
    mean = times[times > 0].mean()
    evaluator = KernelFittedQ(WIDE, ridge=0.1, threshold=form, n_sweeps=3)
    a = evaluator.evaluate(Constant(0, 3), weighted(batch, 1.0 * times), discount=0.9)
    b = replace(evaluator, ridge=0.1 * mean).evaluate(Constant(0, 3), repeated, discount=0.9)
    np.testing.assert_allclose(a.values(batch.states), b.values(batch.states), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10, deadline=None)
@given(factor=st.floats(1e-200, 1e200), dropped=st.integers(2, 9))
def test_the_unit_of_weights_does_not_matter_and_rows_without_weight_are_no_rows(form, factor, dropped):
    batch = random_batch(3, n_episodes=30)
    weight = np.ones(len(batch))
    weight[::dropped] = 0.0
    kept = Transitions(*(getattr(batch, n)[weight > 0] for n in FIELDS), n_actions=3)
    evaluator = KernelFittedQ(WIDE, threshold=form, n_sweeps=2)
    data = (weighted(batch, factor * weight), kept)
    a, b = (evaluator.evaluate(Constant(0, 3), t, discount=0.9).values(batch.states) for t in data)
    np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_almost_no_weight_do_no_harm(form):
    batch = random_batch(n_episodes=30)
    weight = np.ones(len(batch))
    weight[::5] = 1e-300
    evaluator = KernelFittedQ(WIDE, threshold=form)
    assert np.isfinite(evaluator.evaluate(Uniform(3), weighted(batch, weight), discount=0.9).values(batch.states)).all()


@pytest.mark.parametrize("form", FORMS)
def test_values_stop_at_termination_but_not_at_a_time_limit(form):
    batch = Transitions([[0.0], [0.0]], [0, 0], [1.0, 1.0], [[0.0], [0.0]], [True, False], n_actions=1)
    evaluator = KernelFittedQ(ridge=1e-9, threshold=form, n_sweeps=None)
    q = evaluator.evaluate(Constant(0, 1), batch, discount=0.5)
    assert q.values(np.zeros((1, 1)))[0, 0] == pytest.approx(4 / 3), "Q = 1 + 0.5 * Q / 2"


@pytest.mark.parametrize("n_sweeps", [2, 60])
@pytest.mark.parametrize("form", FORMS)
def test_masks_of_the_next_states_bind_the_policy(form, n_sweeps):
    columns = {
        "states": [[0.0]] * 4,
        "actions": [0, 1, 0, 1],
        "rewards": [1.0, 0.0, 1.0, 0.0],
        "next_states": [[0.0]] * 4,
    }
    masks = [[False, True], [False, True], [False, False], [False, False]]
    batch = Transitions(**columns, terminated=[False, False, True, True], next_allowed=masks)
    evaluator = KernelFittedQ(ridge=1e-9, threshold=form, n_sweeps=n_sweeps)
    q = evaluator.evaluate(Constant(0, 2), batch, discount=0.5)
    np.testing.assert_allclose(q.values(np.zeros((1, 1))), [[1.0, 0.0]], atol=1e-7)
    half = Transitions(**columns, terminated=[True] * 4, allowed=np.ones((4, 2)))
    with pytest.raises(InvalidInputError, match="next_allowed must be given with allowed"):
        evaluator.evaluate(Constant(0, 2), half, discount=0.5)


@pytest.mark.parametrize("form", FORMS)
def test_the_kernel_and_the_factors_are_computed_once_a_batch(form, factorisations):
    recorder, batch = Recorder(), random_batch(n_episodes=60)
    learner = CAPI(KernelFittedQ(recorder, threshold=form), Trees(max_depth=1), discount=0.9, n_iterations=6)
    asked = []
    for step in learner.iterate(batch):
        asked.append(len(recorder.shapes))
        assert (step.q.features.basis.width == len(batch)) == (form is None)
    assert len(factorisations) == 3, "one an action"
    assert asked[1] == asked[-1], "the states in the first round, the next states in the second, and no more"


@pytest.mark.parametrize("form", FORMS)
def test_another_batch_or_other_settings_are_prepared_anew(form, factorisations):
    first, second = random_batch(1), random_batch(2)
    evaluator = KernelFittedQ(threshold=form, scale=np.array([[-9.0, -9.0], [9.0, 9.0]]))
    q = evaluator.evaluate(Constant(0, 3), first, discount=0.9)
    again = KernelFittedQ(threshold=form, scale=[[-9, -9], [9, 9]], n_sweeps=4)
    assert again.evaluate(Uniform(3), first, discount=0.5, previous=q).prepared is q.prepared
    assert len(factorisations) == 3
    for other, batch in ((evaluator, second), (replace(evaluator, ridge=1.0), first)):
        new = other.evaluate(Constant(0, 3), batch, discount=0.9, previous=q)
        assert new.prepared.batch is batch
        assert new.prepared is not q.prepared
    assert len(factorisations) == 9


def test_no_table_of_all_states_is_made_when_sparsified():
    rng = np.random.default_rng(0)
    n, recorder = 2500, Recorder(0.3)
    states, following = rng.uniform(size=(2, n, 2))
    batch = Transitions(states, np.arange(n) % 2, states[:, 0], following, np.zeros(n, dtype=bool))
    CAPI(KernelFittedQ(recorder, n_sweeps=3), Unrestricted(), discount=0.9, n_iterations=3).fit(batch)
    assert max(min(shape) for shape in recorder.shapes) < 300
    assert max(first * second for first, second in recorder.shapes) <= n * 300


@pytest.mark.parametrize("policy", [Constant(1, 3), Uniform(3)], ids=repr)
@pytest.mark.parametrize("form", FORMS)
def test_tables_that_are_too_large_are_not_kept(form, policy, monkeypatch):
    batch = random_batch(n_episodes=60)
    evaluator = KernelFittedQ(WIDE, threshold=form, n_sweeps=4)
    kept = evaluator.evaluate(policy, batch, discount=0.9)
    monkeypatch.setattr(_ridge, "LARGEST_TABLE", 1000)
    monkeypatch.setattr(_ridge, "NUMBERS_AT_ONCE", 1000)
    anew = evaluator.evaluate(policy, batch, discount=0.9)
    np.testing.assert_allclose(anew.values(batch.states), kept.values(batch.states), rtol=1e-9, atol=1e-11)
    assert len(kept.features.known) > 0
    assert len(anew.features.known) == 0


def test_only_the_last_few_arrays_are_remembered():
    q = KernelFittedQ().evaluate(Constant(0, 3), random_batch(), discount=0.9)
    for seed in range(20):
        states = np.random.default_rng(seed).normal(size=(5, 2))
        states.flags.writeable = False
        q.values(states)
    assert (len(q.known), len(q.features.known)) == (4, 4)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_that_can_change_are_never_remembered(form):
    batch = random_batch()
    q = KernelFittedQ(threshold=form).evaluate(Constant(0, 3), batch, discount=0.9)
    n_known = len(q.features.known)
    states = batch.states.copy()
    before = q.values(states)
    states[:] = states[::-1].copy()
    np.testing.assert_allclose(q.values(states), before[::-1], rtol=1e-9, atol=1e-12)
    assert (len(q.known), len(q.features.known)) == (0, n_known)


def test_remembered_values_cannot_be_changed():
    batch = random_batch()
    q = KernelFittedQ().evaluate(Constant(0, 3), batch, discount=0.9)
    assert q.values(batch.states) is q.values(batch.states)
    with pytest.raises(ValueError, match="read-only"):
        q.values(batch.states)[0, 0] = 1.0


@pytest.mark.parametrize("form", FORMS)
def test_copies_and_files_give_the_same_values(form):
    batch = random_batch()
    q = KernelFittedQ(threshold=form, n_sweeps=3).evaluate(Constant(0, 3), batch, discount=0.9)
    values = q.values(batch.states)
    for other in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert len(other.known) == len(other.features.known) == 0
        np.testing.assert_array_equal(other.values(batch.states), values)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_remembered_does_not_change_a_bit(form):
    batch, evaluator = random_batch(), KernelFittedQ(threshold=form)
    asked, not_asked = (evaluator.evaluate(Constant(0, 3), batch, discount=0.9) for _ in range(2))
    asked.values(batch.next_states)
    first, second = (evaluator.evaluate(Constant(1, 3), batch, discount=0.9, previous=q) for q in (asked, not_asked))
    np.testing.assert_array_equal(first.values(batch.states), second.values(batch.states))


@pytest.mark.parametrize("form", FORMS)
def test_only_actions_that_the_policy_takes_are_evaluated(form):
    batch = random_batch()
    q = KernelFittedQ(threshold=form).evaluate(Constant(0, 3), batch, discount=0.9)
    q = replace(q, coefficients=(q.coefficients[0], None, None))  # asking them would fail
    KernelFittedQ(threshold=form).evaluate(Constant(0, 3), batch, discount=0.9, previous=q)


def test_kernels_of_scikit_learn_work():
    batch = random_batch()
    ours, theirs = (
        KernelFittedQ(k, n_sweeps=3).evaluate(Constant(0, 3), batch, discount=0.9).values(batch.states)
        for k in (Gaussian(0.3), RBF(0.3))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def off_policy_step(factor):
    """One transition from x = 1 to x = ``factor``: with Q = w x, a sweep is w <- (1 + gamma factor w) / (1 + ridge)."""
    return Transitions([[1.0]], [0], [1.0], [[factor]], [False], n_actions=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("factor", "words"),
    [(2.0, r"must converge; after 1\d sweeps"), (1.001 / 0.9, "must converge; after 658 sweeps")],
    ids=["geometric", "linear"],
)
def test_sweeps_that_expand_are_told(form, factor, words):
    evaluator = KernelFittedQ(LinearKernel(), ridge=1e-3, threshold=form, scale=None, n_sweeps=None)
    with pytest.raises(DivergenceError, match=words):
        evaluator.evaluate(Constant(0, 1), off_policy_step(factor), discount=0.9)
    with pytest.raises(ArithmeticError, match="larger ridge"):
        evaluator.evaluate(Constant(0, 1), off_policy_step(factor), discount=0.9)


@pytest.mark.parametrize("form", FORMS)
def test_sweeps_that_contract_settle_and_a_number_of_sweeps_need_not(form):
    evaluator = KernelFittedQ(LinearKernel(), ridge=1e-3, threshold=form, scale=None, n_sweeps=None)
    settled = evaluator.evaluate(Constant(0, 1), off_policy_step(0.5), discount=0.9)
    assert settled.values(np.ones((1, 1)))[0, 0] == pytest.approx(1 / (1.001 - 0.45))
    twice = replace(evaluator, n_sweeps=2).evaluate(Constant(0, 1), off_policy_step(2.0), discount=0.9)
    assert twice.values(np.ones((1, 1)))[0, 0] == pytest.approx((1 + 1.8 / 1.001) / 1.001)
    with pytest.raises(DivergenceError, match="must stay finite"):
        replace(evaluator, n_sweeps=2000).evaluate(Constant(0, 1), off_policy_step(2.0), discount=0.9)


def test_without_rewards_q_settles_at_zero():
    batch = random_batch()
    batch = Transitions(
        *(getattr(batch, n) for n in FIELDS[:2]), np.zeros(len(batch)), batch.next_states, batch.terminated
    )
    evaluator = KernelFittedQ(n_sweeps=None, ridge=0.1)
    old = NearestQ(batch.states, np.ones((len(batch), 3)))
    assert np.abs(evaluator.evaluate(Uniform(3), batch, discount=0.9).values(batch.states)).max() == 0
    assert np.abs(evaluator.evaluate(Uniform(3), batch, discount=0.9, previous=old).values(batch.states)).max() < 1e-9
    assert np.abs(evaluator.evaluate(Uniform(3), batch, discount=0.0, previous=old).values(batch.states)).max() == 0


def test_without_discount_there_is_no_fixed_point_to_reach():
    with pytest.raises(InvalidInputError, match="discount must lie in"):
        KernelFittedQ(n_sweeps=None).evaluate(Constant(0, 3), random_batch(), discount=1.0)


def test_a_full_dictionary_says_so_once_a_batch():
    batch = random_batch(n_episodes=60)
    evaluator = KernelFittedQ(max_size=10)
    with pytest.warns(DictionarySaturatedWarning, match="max_size=10"):
        q = evaluator.evaluate(Constant(0, 3), batch, discount=0.9)
    evaluator.evaluate(Constant(0, 3), batch, discount=0.9, previous=q)


def test_an_action_that_was_never_taken_is_named():
    columns = {"next_states": [[0.0]] * 2, "terminated": [True] * 2, "action_labels": ["wait", "treat"]}
    never = Transitions([[0.0]] * 2, [0, 0], [1.0] * 2, **columns)
    without_weight = Transitions([[0.0]] * 2, [0, 1], [1.0] * 2, weights=[1.0, 0.0], **columns)
    for batch in (never, without_weight):
        with pytest.raises(InvalidInputError, match=r"action 1 \('treat'\) never is"):
            KernelFittedQ().evaluate(Constant(0, 2), batch, discount=0.5)


@pytest.mark.parametrize("name", ["states", "next_states"])
def test_missing_values_are_named(name):
    columns = {"states": np.zeros((3, 2)), "next_states": np.zeros((3, 2))}
    columns[name][1, 0] = np.nan
    batch = Transitions(**columns, actions=[0, 0, 0], rewards=[1.0] * 3, terminated=[False] * 3)
    with pytest.raises(
        InvalidInputError, match=rf"^{name} must not have missing values.*first {name}\[1\].*use FittedQ"
    ):
        KernelFittedQ().evaluate(Constant(0, 1), batch, discount=0.5)


def test_missing_values_are_refused_by_q():
    q = KernelFittedQ().evaluate(Constant(0, 3), random_batch(), discount=0.9)
    with pytest.raises(InvalidInputError, match=r"states\[0, 1\] = nan"):
        q.values(np.array([[0.0, np.nan]]))
    with pytest.raises(InvalidInputError, match="must have 2 columns"):
        q.values(np.zeros((1, 3)))


def test_a_kernel_that_is_none_is_told():
    batch = random_batch()
    with pytest.raises(InvalidInputError, match="kernel must be positive semi-definite"):
        KernelFittedQ(lambda x, y: -Gaussian(1.0)(x, y), threshold=None).evaluate(Uniform(3), batch, discount=0.9)


def test_without_data_there_is_a_clear_word():
    with pytest.raises(InvalidInputError, match="transitions must be given"):
        KernelFittedQ().evaluate(Constant(0, 2), None, discount=0.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"kernel": "rbf"},
        {"kernel": Gaussian},
        {"ridge": 0},
        {"ridge": -1.0},
        {"threshold": 0.0},
        {"max_size": 0},
        {"scale": "minmax"},
        {"scale": [[1.0], [0.0]]},
        {"n_sweeps": 0},
        {"n_sweeps": 1.5},
    ],
    ids=str,
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInputError, match=next(iter(bad))):
        KernelFittedQ(**bad)


def test_settings_can_be_compared_whatever_the_scale():
    box = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert KernelFittedQ(scale=box) == KernelFittedQ(scale=box.copy())
    assert KernelFittedQ(scale=box) != KernelFittedQ(scale=2 * box)
    assert hash(KernelFittedQ(scale=box)) == hash(KernelFittedQ(scale=box.tolist()))
