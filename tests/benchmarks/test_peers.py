"""The harness of benchmarks/peers.py, as far as it needs none of the peers: its logs, test episodes, records and table."""

import importlib
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from capi.datasets import load_hiv_batch
from capi.experiments import records as ours
from capi.policies import Constant

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
try:
    import peers
    from comparison import logs, records, worlds
    from dependability import environments, problems
finally:
    sys.path.remove(str(BENCHMARKS))


def read(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("name", logs.CONTROL)
def test_heuristics_are_those_that_collect_our_logs(name):
    states = problems.Control(logs.CONTROL[name], 500).data(0).batch.states
    expected = environments.HEURISTICS[logs.CONTROL[name]].act(states)
    assert np.array_equal(worlds.HEURISTICS[name](states), expected)


def test_the_lander_decides_as_the_heuristic_of_gymnasium(tmp_path):
    pytest.importorskip("Box2D")
    lander = importlib.import_module("gymnasium.envs.box2d.lunar_lander")
    world = worlds.WORLDS["LunarLander-v3"]
    log = read(logs.make_log(world, 500, 0, tmp_path))
    environment = gymnasium.make(world.name)
    assert np.array_equal(worlds.landing(log["states"]), [lander.heuristic(environment, row) for row in log["states"]])
    share = (worlds.landing(log["states"]) == log["actions"]).mean()
    assert 0.55 < share < 0.7  # 5/8: half, and a quarter of the others


def test_a_log_is_that_of_the_problem(tmp_path):
    world = worlds.WORLDS["CartPole-v1"]
    log = read(logs.make_log(world, 300, 3, tmp_path))
    batch = problems.Control("cart-pole-v1", 300).data(3).batch
    assert np.array_equal(log["states"], batch.states)
    assert np.array_equal(log["episode"], batch.episodes)
    assert logs.make_log(world, 300, 3, tmp_path) == worlds.log_path(world, 300, 3, tmp_path)


def test_logged_returns_leave_out_the_episode_that_was_cut_off():
    log = {"episode": np.array([0, 0, 1, 2, 2]), "rewards": np.array([1.0, 2.0, 5.0, 7.0, 7.0])}
    assert worlds.logged_returns(log, worlds.WORLDS["CartPole-v1"]).tolist() == [3.0, 5.0]


def test_logged_returns_of_patients_are_discounted():
    batch = load_hiv_batch()
    found = worlds.logged_returns({"episode": batch.episodes, "rewards": batch.rewards}, worlds.WORLDS["HIV"])
    assert found.mean() == pytest.approx(problems.logged_return(batch, 0.98))


def test_the_balancing_heuristic_never_drops_the_pole():
    assert (worlds.returns_of(worlds.balancing, worlds.WORLDS["CartPole-v1"]) == 500).all()


def test_returns_are_those_of_single_episodes():
    world = worlds.World("CartPole-v1", 2, 3, ())
    found = worlds.returns_of(lambda states: (states[:, 2] > 0).astype(int), world)
    for i, total in enumerate(found):
        environment = gymnasium.make("CartPole-v1")
        state, _ = environment.reset(seed=worlds.TEST_SEED + i)
        ended, n = False, 0
        while not ended:
            state, _, terminated, truncated, _ = environment.step(int(state[2] > 0))
            ended, n = terminated or truncated, n + 1
        assert total == n


@pytest.mark.compiled
def test_a_patient_in_another_process_is_ours():
    found = worlds.returns_of(lambda states: np.full(len(states), 3), worlds.WORLDS["HIV"], capi=sys.executable)
    assert found[0] == pytest.approx(problems.Patients("embedded").worth(Constant(3, 4)))


def test_records_are_read_by_ours_and_finished_ones_are_not_run_again(tmp_path, capsys):
    world = worlds.WORLDS["CartPole-v1"]
    logs.make_log(world, 5_000, 0, tmp_path)
    arguments = ["--logs", str(tmp_path), "--folder", str(tmp_path / "records"), "--seeds", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "versions", dict)
        peers.main(["run", "CartPole-v1", *arguments, "--methods", "log", "heuristic"])
        assert len(capsys.readouterr().out.splitlines()) == 2
        peers.main(["run", "CartPole-v1", *arguments, "--methods", "log", "heuristic"])
        assert capsys.readouterr().out == ""
    found = list(ours.Records(tmp_path / "records"))
    assert found == list(records.Records(tmp_path / "records"))
    assert [record["values"]["method"] for record in found] == ["heuristic", "log"]
    assert ours.flat(found[0])["return"] == 500
    peers.main(["--folder", str(tmp_path / "records")])
    assert "| CartPole-v1 | 5,000 | the heuristic of the log" in capsys.readouterr().out


def test_only_frequent_actions_are_chosen_if_that_is_asked_for():
    """The rare action has the larger reward: fitted Q takes it, the restricted one does not."""
    pytest.importorskip("lightgbm")
    boosting = importlib.import_module("comparison.boosting")
    rng = np.random.default_rng(0)
    states, actions = rng.uniform(size=(2_000, 2)), (rng.random(2_000) < 0.1).astype(np.int64)
    log = {"states": states, "next_states": states, "actions": actions, "rewards": actions.astype(np.float64)}
    log["terminated"] = np.arange(2_000) % 10 == 9
    world = worlds.World("two actions", 2, 1, ())
    shares = {}
    for restricted in (False, True):
        ((budget, policy, _),) = boosting.fitted_q(log, world, 0, (3,), restricted)
        assert budget == 3
        shares[restricted] = policy(rng.uniform(size=(2_000, 2))).mean()
    assert shares[False] > 0.99
    assert shares[True] < 0.2  # not zero: the classifier learns some of the noise
