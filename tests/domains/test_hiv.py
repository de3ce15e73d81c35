import math

import numpy as np
import pytest
from scipy.integrate import odeint
from scipy.optimize import fsolve

from capi.domains import HIV
from capi.domains.hiv import EFFICACIES, STEADY_STATES, Patient
from capi.errors import InvalidInputError, SimulationError
from capi.policies import Constant
from capi.simulation import performance, sample_episodes
from capi.testing import check_domain

RNG = np.random.default_rng(0)


def rates(x, _, e1, e2, p):
    """The equations once more, written term by term as they are published."""
    T1, T2, I1, I2, V, E = x
    infected = I1 + I2
    return np.array(
        [
            p.lambda1 - p.d1 * T1 - (1 - e1) * p.k1 * V * T1,
            p.lambda2 - p.d2 * T2 - (1 - p.f * e1) * p.k2 * V * T2,
            (1 - e1) * p.k1 * V * T1 - p.delta * I1 - p.m1 * E * I1,
            (1 - p.f * e1) * p.k2 * V * T2 - p.delta * I2 - p.m2 * E * I2,
            (1 - e2) * p.n_virions * p.delta * infected
            - p.c * V
            - ((1 - e1) * p.rho1 * p.k1 * T1 + (1 - p.f * e1) * p.rho2 * p.k2 * T2) * V,
            p.lambda_e
            + p.b_e * infected / (infected + p.k_b) * E
            - p.d_e * infected / (infected + p.k_d) * E
            - p.delta_e * E,
        ]
    )


@pytest.fixture(scope="module")
def met():
    """States that random treatment leads to, the extreme ones among them."""
    states = sample_episodes(None, HIV(observe="counts"), n_episodes=20, max_steps=100, random_state=0).states
    extreme = [f(states[:, j]) for j in range(6) for f in (np.argmin, np.argmax)]
    return states[[*extreme, *np.random.default_rng(0).integers(len(states), size=20)]]


@pytest.mark.compiled
@pytest.mark.parametrize(
    "domain", [HIV(), HIV(observe="counts", reward_on="next_state", start_spread=0.2, n_jobs=2)], ids=str
)
def test_keeps_the_contract(domain):
    check_domain(domain)


@pytest.mark.parametrize("action", range(4))
def test_five_days_agree_with_an_independent_solver(met, action):
    hiv = HIV(observe="counts")
    found, _, _ = hiv.step(met, np.full(len(met), action), RNG)
    for x, y in zip(met, found, strict=True):
        drugs = (*EFFICACIES[action], hiv.patient)
        expected = odeint(rates, x, [0, 5], args=drugs, rtol=1e-10, atol=1e-12, mxstep=100_000)[-1]
        np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("unhealthy", (163572.75, 4.9954, 11944.94, 45.599, 63918.6, 23.544)),
        ("healthy", (967838.67, 620.518, 76.012, 6.0918, 415.376, 353108.04)),
        ("uninfected", (1e6, 3198, 0, 0, 0, 10)),
    ],
)
def test_steady_states(name, exact):
    quoted = np.array(STEADY_STATES[name])
    np.testing.assert_allclose(quoted, exact, rtol=0.02)
    if name != "uninfected":
        found = fsolve(lambda u: rates(np.exp(u), 0, 0, 0, Patient()) / np.exp(u), np.log(quoted), xtol=1e-13)
        np.testing.assert_allclose(np.exp(found), exact, rtol=1e-4)
    following, _, _ = HIV(observe="counts").step(np.array([exact], dtype=float), np.array([0]), RNG)
    np.testing.assert_allclose(following[0], exact, rtol=1e-4)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("reward_on", "returns"),
    [
        ("state", (8.598e5, 9.842e5, 1.0216e6, 1.9952e6)),
        ("next_state", (8.594e5, 9.963e5, 1.0247e6, 2.0282e6)),
    ],
)
def test_returns_of_constant_treatments(reward_on, returns):
    for action, expected in enumerate(returns):
        found = performance(Constant(action, 4), HIV(reward_on=reward_on), n_episodes=1, max_steps=1000)
        assert found.mean == pytest.approx(expected, rel=1e-4)


@pytest.mark.compiled
def test_where_constant_treatments_end():
    ends = {
        1: (543558, 11.95, 6518, 45.5, 34989, 27.2),
        2: (234611, 7.8, 10930, 45.6, 40780, 23.9),
        3: (774595, 34.2, 3218, 45.2, 12125, 38.9),
    }
    hiv = HIV(observe="counts", n_jobs=2)
    x, actions = np.repeat([hiv.start_state], 3, axis=0), np.array(list(ends))
    for _ in range(1000):
        x, _, _ = hiv.step(x, actions, RNG)
    np.testing.assert_allclose(x, list(ends.values()), rtol=0.01)


def test_drugs_cost_what_they_should():
    x = np.repeat([HIV().start_state], 4, axis=0)
    for pi_cost, saved in ((2000.0, 180.0), (20000.0, 1800.0)):
        _, rewards, _ = HIV(pi_cost=pi_cost).step(x, np.arange(4), RNG)
        np.testing.assert_allclose(rewards[0] - rewards, [0, 9800, saved, 9800 + saved])


def test_the_columns_are_counts_or_their_logarithms(met):
    counts, logs = HIV(observe="counts"), HIV()
    actions = np.arange(len(met)) % 4
    a, rewards, _ = counts.step(met, actions, RNG)
    b, same, _ = logs.step(np.log10(met), actions, RNG)
    np.testing.assert_allclose(b, np.log10(a), rtol=1e-9)
    np.testing.assert_allclose(same, rewards, rtol=1e-9)


@pytest.mark.compiled
def test_logarithms_are_those_of_the_c_library_on_every_processor():
    """numpy's own loops round differently with AVX-512, and policies learned from such states differ from record to record."""
    counts = np.exp(RNG.normal(scale=5, size=(2000, 6)))
    shown = HIV().observed(counts)
    assert shown.ravel().tolist() == [math.log10(x) for x in counts.ravel()]
    assert HIV().counts(shown).ravel().tolist() == [math.pow(10.0, x) for x in shown.ravel()]


def test_counts_stay_legal_from_wild_states():
    rng = np.random.default_rng(1)
    wild = 10 ** rng.uniform(-3, 6.5, size=(300, 6))
    wild[::7, 2:5] = 0.0
    found, rewards, _ = HIV(observe="counts").step(wild, rng.integers(4, size=300), rng)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert np.isfinite(rewards).all()


def test_what_cannot_be_solved_is_said():
    with pytest.raises(SimulationError, match=r"could not be solved from counts .*row 1"):
        HIV(observe="counts").step(np.array([[1.0] * 6, [1e6, 1e6, 1e6, 1e6, 1e16, 10.0]]), np.array([0, 0]), RNG)


@pytest.mark.compiled
def test_the_number_of_threads_does_not_matter():
    batches = [sample_episodes(None, HIV(n_jobs=n), n_episodes=200, max_steps=3, random_state=0) for n in (1, 2, 3)]
    for batch in batches[1:]:
        np.testing.assert_array_equal(batch.next_states, batches[0].next_states)


def test_other_patients_and_other_starts():
    rng = np.random.default_rng(0)
    other = HIV().perturbed(rng, 0.1)
    assert other.patient != Patient()
    assert 0.9 * 13 <= other.patient.c <= 1.1 * 13
    assert HIV().perturbed(rng, 0.0).patient == Patient()
    starts = HIV(observe="counts", start_spread=0.3).initial(500, rng) / STEADY_STATES["unhealthy"]
    assert 0.7 <= starts.min() < 0.75
    assert 1.25 < starts.max() <= 1.3
    np.testing.assert_array_equal(
        HIV(start=[1, 2, 3, 4, 5, 6], observe="counts").initial(2, rng), [[1, 2, 3, 4, 5, 6]] * 2
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_on": "both"}, "reward_on"),
        ({"observe": "raw"}, "observe"),
        ({"start": "ill"}, "start"),
        ({"start": [1, 2]}, "start must be a name or six non-negative counts"),
        ({"start": [1, 2, 3, 4, 5, -6]}, "start must be a name or six non-negative counts"),
        ({"start_spread": 2}, "start_spread"),
        ({"pi_cost": -1}, "pi_cost"),
        ({"pi_cost": float("inf")}, "pi_cost"),
        ({"start": ["a"] * 6}, "start"),
        ({"days": 0}, "days"),
        ({"discount": 1.0}, "discount"),
        ({"patient": {}}, "patient must be a Patient"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(InvalidInputError, match=message):
        HIV(**options)


def test_bad_steps_are_named():
    with pytest.raises(InvalidInputError, match=r"first culprit states\[1\]"):
        HIV(observe="counts").step(np.array([[1.0] * 6, [1.0] * 5 + [-1.0]]), np.array([0, 0]), RNG)
    with pytest.raises(InvalidInputError, match="actions"):
        HIV().step(np.array([HIV().start_state]), np.array([4]), RNG)
    with pytest.raises(InvalidInputError, match="6 columns"):
        HIV().step(np.zeros((1, 5)), np.array([0]), RNG)
    with pytest.raises(InvalidInputError, match="delta"):
        Patient(delta=-0.7)


def test_nobody_is_infected_by_being_looked_at():
    """The logarithm of no virus is shown as that of a trace, which must not grow."""
    shown, plain = HIV(start="uninfected"), HIV(start="uninfected", observe="counts")
    x, y = shown.initial(1, RNG), plain.initial(1, RNG)
    for _ in range(10):
        x, _, _ = shown.step(x, np.array([0]), RNG)
        y, _, _ = plain.step(y, np.array([0]), RNG)
    np.testing.assert_allclose(shown.counts(x), y, rtol=1e-9)


def test_perturbations_are_independent():
    ratios = np.array(list(vars(HIV().perturbed(np.random.default_rng(0)).patient).values())) / list(
        vars(Patient()).values()
    )
    assert len(set(ratios.round(9))) == 20
    starts = (
        HIV(observe="counts", start_spread=0.3).initial(1, np.random.default_rng(0))[0] / STEADY_STATES["unhealthy"]
    )
    assert len(set(starts.round(9))) == 6
    with pytest.raises(InvalidInputError, match="rng must be a numpy Generator"):
        HIV().perturbed(0)
