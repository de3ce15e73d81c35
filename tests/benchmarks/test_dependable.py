"""The harness of benchmarks/dependable.py: its problems are what they say, its runs are reproducible, its table counts right."""

import importlib.util
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from capi import FiniteMDP
from capi._utils import sources
from capi.experiments.records import Records, is_finished
from capi.policies import Constant
from capi.simulation import performance

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import dependable
    from dependability import candidates, environments, learners, problems, runs, settings, table
finally:
    sys.path.remove(str(BENCHMARKS))

ENVIRONMENTS = {
    "CartPole-v1": environments.CartPoleV1(),
    "MountainCar-v0": environments.MountainCarV0(),
    "Acrobot-v1": environments.AcrobotV1(),
}
TINY = {
    "defaults": "tiny",
    "space": "tree",
    "of_space": {"max_depth": 1},
    "evaluator": {"n_trees": 3},
    "loop": {"n_iterations": 3, "keep": "last"},
}


def inner_state(name, state):
    """The state of an environment with the given observation."""
    if name != "Acrobot-v1":
        return state
    return np.array([np.arctan2(state[1], state[0]), np.arctan2(state[3], state[2]), *state[4:]])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_domains_step_as_the_environments_do(name):
    """From states all along random episodes, single steps agree to the environments' single precision."""
    domain, rng = ENVIRONMENTS[name], np.random.default_rng(0)
    environment = gymnasium.make(name).unwrapped
    environment.reset(seed=0)
    states = domain.initial(20, rng)
    n_ended = 0
    for _ in range(150):
        actions = rng.integers(domain.n_actions, size=len(states))
        following, rewards, terminated = domain.step(states, actions, rng)
        for i in range(3):
            environment.state = inner_state(name, states[i])
            environment.steps_beyond_terminated = None
            observed, reward, ended, truncated, _ = environment.step(int(actions[i]))
            np.testing.assert_allclose(following[i], observed, rtol=1e-5, atol=1e-5)
            assert (rewards[i], terminated[i], truncated) == (reward, ended, False)
            n_ended += ended
        states = np.where(terminated[:, None], domain.initial(len(states), rng), following)
    if name == "CartPole-v1":
        assert n_ended > 5


@pytest.mark.parametrize("name", ["MountainCar-v0", "Acrobot-v1"])
def test_domains_end_where_the_environments_do(name):
    """Random episodes do not reach the goal; those of the heuristic do, after the same number of steps."""
    domain, environment = ENVIRONMENTS[name], gymnasium.make(name).unwrapped
    policy = environments.HEURISTICS[name.lower().replace("car", "-car")]
    observed, _ = environment.reset(seed=1)
    inner = np.asarray(environment.state, dtype=np.float64)[None]
    states = environments.observed(inner) if name == "Acrobot-v1" else inner
    terminated, n_steps = [False], 0
    while not terminated[0]:
        actions = policy.act(states)
        states, rewards, terminated = domain.step(states, actions, np.random.default_rng(0))
        observed, reward, ended, _, _ = environment.step(int(actions[0]))
        assert (rewards[0], terminated[0]) == (reward, ended)
        n_steps += 1
    assert 50 < n_steps < 300
    np.testing.assert_allclose(states[0], observed, atol=1e-3)  # single precision, over many steps


def test_domains_start_where_the_environments_do():
    rng = np.random.default_rng(0)
    assert np.abs(ENVIRONMENTS["CartPole-v1"].initial(1000, rng)).max() < 0.05
    cars = ENVIRONMENTS["MountainCar-v0"].initial(1000, rng)
    assert -0.6 <= cars[:, 0].min() < -0.59 < -0.41 < cars[:, 0].max() <= -0.4
    assert not cars[:, 1].any()
    links = ENVIRONMENTS["Acrobot-v1"].initial(1000, rng)
    assert links.shape == (1000, 6)
    assert np.abs(links[:, [1, 3, 4, 5]]).max() <= 0.1


@pytest.mark.parametrize("name", settings.CONTROL)
def test_logs_are_half_random_and_better_than_random(name):
    problem = problems.Control(name, n_rows=2000)
    batch = problem.data(0).batch
    assert len(batch) == 2000
    n = problem.n_actions
    assert set(np.round(np.unique(batch.propensities), 6)) == {round(0.5 / n, 6), round(0.5 + 0.5 / n, 6)}
    assert problem.random_worth() < problem.log_worth(None) < problem.worth(environments.HEURISTICS[name])
    again = problem.data(0).batch
    np.testing.assert_array_equal(batch.next_states, again.next_states)
    assert not np.array_equal(batch.next_states, problem.data(1).batch.next_states)


def test_returns_of_control_problems_are_undiscounted():
    """A pole that falls is worth the number of steps before, a car that never arrives minus the step limit."""
    pole = problems.Control("pole")
    domain = problems.CartPole()
    starts = domain.initial(problems.N_TEST, np.random.default_rng(problems.TEST_SEED))
    lengths = performance(Constant(0, 2), domain, starts=starts, max_steps=3000).lengths
    assert pole.worth(Constant(0, 2)) == lengths.mean() - 1
    assert problems.Control("mountain-car-v0").worth(Constant(0, 3)) == -200


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    """Four states in a row, the last one absorbing; moving right from the third is rewarded."""
    P = np.zeros((4, 4, 2))
    for s in range(3):
        P[s, max(s - 1, 0), 0] = P[s, s + 1, 1] = 1
    P[3, 3] = 1
    r = np.zeros((4, 2))
    r[2, 1] = 1.0
    names = {"features": np.array(["place"]), "actions": np.array(["left", "right"])}
    np.savez(tmp_path / "corridor.npz", P=P, r=r, d0=np.eye(4)[0], X=np.arange(4)[:, None] * 10, **names)
    monkeypatch.setenv(problems.MDPS, str(tmp_path))
    monkeypatch.setitem(settings.MDPS, "corridor", (0.5, 0.99**2))
    return FiniteMDP(np.moveaxis(P, 2, 0), r, 0.99, start=np.eye(4)[0])


def test_rows_of_finite_problems_follow_the_model(corridor):
    data = problems.Finite("corridor", "pairs", 500).data(0)
    batch = data.batch
    assert set(batch.states[:, 0]) == {0, 10, 20}, "absorbing states are not drawn"
    assert batch.episodes is None
    np.testing.assert_array_equal(batch.terminated, batch.next_states[:, 0] == 30)
    np.testing.assert_array_equal(batch.rewards, (batch.next_states[:, 0] == 30).astype(float))
    moved = np.maximum(batch.states[:, 0] + np.where(batch.actions == 1, 10, -10), 0)
    np.testing.assert_array_equal(batch.next_states[:, 0], moved)
    states, weights = data.starts
    assert (states.tolist(), weights.tolist()) == ([[0.0]], [1.0])


def test_logs_of_finite_problems_begin_at_the_start(corridor):
    problem = problems.Finite("corridor", "log", 500)
    data = problem.data(0)
    assert len(data.batch) == 500
    assert data.starts is None
    assert not data.batch.states[data.batch.episode_starts].any()
    assert problem.worth(Constant(1, 2)) == pytest.approx(0.99**2)
    uniform = np.full((4, 2), 0.5)
    assert problem.random_worth() == pytest.approx(corridor.values(uniform)[0])


def test_absorbing_states_with_rewards_do_not_terminate(corridor, tmp_path):
    with np.load(tmp_path / "corridor.npz") as file:
        arrays = dict(file)
    arrays["r"][3] = 1.0
    np.savez(tmp_path / "corridor.npz", **arrays)
    batch = problems.Finite("corridor", "pairs", 500).data(0).batch
    assert not batch.terminated.any()
    assert 30 in batch.states


def test_logged_returns_are_discounted_by_episode():
    log = problems.log_of(None, problems.MountainCar(), 3, 7, np.random.default_rng(0))
    assert log.episode_lengths.tolist() == [3, 3, 1]
    assert problems.logged_return(log, 0.5) == pytest.approx(-(1.75 + 1.75 + 1) / 3)


def learning_setting(**of_problem):
    values = {"task": "learning", "problem": "control", "of_problem": of_problem, "discount": 0.98, "learner": TINY}
    return settings.Setting(f"control/{of_problem['name']}", values)


def test_runs_are_reproducible_and_measure_every_iterate():
    values = learning_setting(name="mountain-car", n_rows=500).values
    first, again = (runs.run(values, 3, 1) for _ in range(2))
    for numbers in (first, again):
        del numbers["learning_cpu_seconds"]
    assert first == again
    assert {len(first[name]) for name in ("returns", "changed", "score")} == {TINY["loop"]["n_iterations"]}
    assert first["returned"] == first["returns"][first["round"]]
    assert first["round"] == TINY["loop"]["n_iterations"] - 1


def test_the_returned_round_is_the_one_that_a_learner_keeps():
    problem = problems.Control("mountain-car", n_rows=500)
    learner = learners.learner_of({"learner": TINY, "discount": 0.98}, 0)
    learner.keep = lambda step: -abs(step.k - 1)
    found = learners.learned(learner, problem.data(0), lambda _: None)
    assert (found.round, len(found.history)) == (1, 3)


def test_candidates_are_36_and_always_the_same(monkeypatch):
    monkeypatch.setattr(candidates, "ROUNDS", (0, 1, 2))
    monkeypatch.setattr(candidates, "LIMITS", {"n_thresholds": 4})
    problem = problems.Control("mountain-car", n_rows=600)
    data = problem.data(0)
    (first, last), (again, _) = (candidates.candidates(problem, data, 0) for _ in range(2))
    assert last.k == 2
    assert len(first) == 36
    x = data.batch.states
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.act(x), other.act(x))
    assert {policy.max_depth for policy in first} == {1, 2, 3, 4}


def test_every_setting_says_everything_about_its_learner():
    for group in settings.GROUPS:
        for setting in settings.settings(group):
            moves = "begins-once" if group == "states" else learners.DEFAULTS
            expected = settings.EARLIER if setting.values["problem"] == "mdp" else moves
            assert setting.values["learner"]["defaults"] == expected
            assert setting.name.startswith(group)
    names = [setting.name for group in settings.GROUPS for setting in settings.settings(group)]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.startswith("rank/")]) == 12


def test_a_variant_keeps_by_the_score_that_it_names():
    """The model scores the later half of the rounds, episodes score all of them."""
    options = {**TINY, "loop": {"n_iterations": 4, "keep": "best"}}
    values = {"task": "learning", "problem": "control", "of_problem": {"name": "pole", "n_rows": 300}, "discount": 0.9}
    for tag, first in (("rules-3", 2), ("rules-5", 0)):
        found = runs.learning({**values, "learner": {**options, "defaults": tag}}, 0)
        assert [number is None for number in found["score"]] == [k < first for k in range(4)]
        assert (found["careful_score"][-1] is None) == (tag == "rules-3")


def record(setting, seed, **results):
    [values] = [one.values for one in settings.settings(setting.split("/")[0], "now") if one.name == setting]
    results = {"random": 0.0, "log": 0.1, "round": 0, **results}
    return {"setting": setting, "seed": seed, "values": values, "results": results, "run": {"cpu_seconds": 1.0}}


@pytest.fixture
def now(monkeypatch):
    monkeypatch.setitem(learners.VARIANTS, "now", learners.VARIANTS[learners.DEFAULTS])


def test_few_bad_seeds_are_allowed_and_hopeless_ones_count_as_bad(now):
    good = [record("control/pole", i, returned=0.95, returns=[0.5, 1.0]) for i in range(17)]
    bad = [
        record("control/pole", 17, returned=0.8, returns=[1.0]),
        record("control/pole", 18, returned=-1, returns=[0]),
    ]
    row = {row.name: row for row in table.rows([*good, *bad], "now", ["control"])}["control/pole"]
    assert (row.n_below, row.verdict) == (2, "19 of 20 runs")
    assert "1 without an iterate better than random" in row.note
    last = record("control/pole", 19, returned=0.9, returns=[1.0])
    full = {row.name: row for row in table.rows([*good, *bad, last], "now", ["control"])}["control/pole"]
    assert (full.verdict, full.cells()[3]) == ("reached", "failed")
    worse = {
        row.name: row
        for row in table.rows(
            [*good, *bad, record("control/pole", 19, returned=0.1, returns=[1.0])], "now", ["control"]
        )
    }["control/pole"]
    assert worse.verdict == "not reached"


def test_hiv_needs_no_bad_run_and_a_good_median(now):
    def verdict(numbers):
        records = [record("hiv-tree", i, returned=number, returns=[1e9]) for i, number in enumerate(numbers)]
        [row] = table.rows(records, "now", ["hiv-tree"])
        return row.verdict

    assert verdict([9.1e8] * 20) == "reached"
    assert verdict([8.9e8] * 20) == "not reached"
    assert verdict([4e8]) == "not reached", "no further run can mend it"
    assert verdict([9.1e8] * 3) == "3 of 20 runs"


def test_other_seeds_are_not_mixed_in(now):
    records = [record("hiv-tree", seed, returned=float(seed), returns=[1e9]) for seed in (0, 19, 20, 100)]
    assert table.rows(records, "now", ["hiv-tree"])[0].numbers == [0.0, 19.0]
    assert table.rows(records, "now", ["hiv-tree"], first_seed=100)[0].numbers == [100.0]


def test_medians_of_finite_problems_are_over_all_runs(now):
    records = [
        record(f"mdps/{name}/pairs-20000", seed, random=low, returned=low + share * (best - low), returns=[best])
        for name, (low, best) in settings.MDPS.items()
        for seed, share in enumerate([0.8, 1.0] * 5)
    ]
    row = {row.name: row for row in table.rows(records, "now", ["mdps"])}["mdps, pairs, 20,000 rows"]
    assert row.median == pytest.approx(0.9)
    assert len(row.numbers) == 60
    other = {row.name: row for row in table.rows(records, "now", ["mdps"])}["mdps, log, 20,000 rows"]
    assert (other.verdict, other.numbers) == ("no target", [])


def test_records_of_other_defaults_are_not_mixed_in(now):
    assert (
        table.rows([record("hiv-tree", 0, returned=1, returns=[1])], learners.DEFAULTS, ["hiv-tree"])[0].numbers == []
    )


def test_the_command_runs_what_is_missing_and_prints_the_table(tmp_path, monkeypatch, capsys):
    """Runs on models that are not there are skipped, and a finished run is not computed again."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # for the worker
    monkeypatch.delenv(problems.MDPS, raising=False)
    monkeypatch.setattr(dependable, "settings", lambda group, _: [learning_setting(name="mountain-car", n_rows=300)])
    folder = ["--folder", str(tmp_path), "--seeds", "1", "--jobs", "1"]
    dependable.main(["control", *folder])
    assert "finished control/mountain-car seed 0" in capsys.readouterr().out
    [found] = Records(tmp_path)
    assert is_finished(found)
    assert {"digest", "returns", "returned", "round", "random", "log", "learning_cpu_seconds"} <= set(found["results"])
    dependable.main(["control", *folder])
    assert "started" not in capsys.readouterr().out
    dependable.main(["control", "--status", *folder])
    assert "1 of    1 finished" in capsys.readouterr().out


def test_finite_problems_without_their_models_are_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(problems.MDPS, raising=False)
    dependable.main(["mdps", "--folder", str(tmp_path), "--seeds", "2"])
    assert "48 runs on finite MDPs are skipped: pass --mdps FOLDER" in capsys.readouterr().out


def test_without_a_group_nothing_runs(tmp_path, capsys):
    dependable.main(["--folder", str(tmp_path)])
    said = capsys.readouterr().out
    assert "| problem | runs |" in said
    assert "started" not in said
    with pytest.raises(SystemExit):
        dependable.main(["nonsense"])


def test_new_patients_are_made_as_the_embedded_ones_were():
    spec = importlib.util.spec_from_file_location("make_hiv_table", BENCHMARKS.parent / "scripts" / "make_hiv_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.VALUES == problems.COLLECTING
    assert script.SEED < problems.FIRST_SEED


def test_new_patients_are_made_once_per_seed(tmp_path, monkeypatch):
    few = {"n_patients": 2, "n_steps": 10, "n_rounds": 2, "n_trees": 2, "n_iterations": 2}
    monkeypatch.setattr(problems, "COLLECTING", {**problems.COLLECTING, **few})
    monkeypatch.setenv(problems.CACHE, str(tmp_path))
    first = problems.Patients("new").data(0).batch
    assert (len(first), first.n_episodes) == (40, 4)
    made = (tmp_path / "hiv-0.npz").stat().st_mtime_ns
    np.testing.assert_array_equal(problems.new_patients(0).states, first.states)
    assert (tmp_path / "hiv-0.npz").stat().st_mtime_ns == made
    assert not np.array_equal(problems.new_patients(1).actions, first.actions)
    (tmp_path / "hiv-0.npz").unlink()
    np.testing.assert_array_equal(problems.new_patients(0).next_states, first.next_states)


def test_the_digest_covers_what_the_runs_import():
    covered = set().union(*map(sources.sources_of, runs.LIBRARY))
    for path in (BENCHMARKS / "dependability").glob("*.py"):
        for package, names, alone in sources.IMPORTS.findall(path.read_bytes()):
            parent, text = (package or alone).decode(), names.decode()
            used = {sources._home_of(parent, name) for name in sources.NAMES.findall(text)} or {parent}
            outside = {
                "capi.experiments.setting",
                "capi.experiments.records",
                "capi.files.atomic",
                "capi._utils.sources",
            }  # no results depend on them
            assert used <= covered | outside, path.name


def test_the_table_of_weightings_shows_the_median_and_the_worst_run():
    setting = settings.weighted("pole", 2, "occupancy")
    results = [{"returned": number, "effective_rows": [None, 7.6]} for number in (10.0, 30.0, 20.0)]
    records = [{"values": setting.values, "seed": seed, "results": one} for seed, one in enumerate(results)]
    lines = table.states_text(records).splitlines()
    assert len(lines) == 2 + len(settings.WEIGHTED) * len(settings.DEPTHS)
    assert "| pole | 2 | - | 20 (10) | - | 0 | 8 |" in lines
