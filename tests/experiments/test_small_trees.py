"""Small trees: the solver against all trees, the search, single runs, and claims from records that are made up."""

import itertools
import json

import numpy as np
import pytest

from capi import FiniteMDP
from capi.domains import FrozenLake, SystemAdministrator
from capi.experiments.experiment import load_experiment
from capi.experiments.small_trees import claims, figures, run, settings, summary, table
from capi.experiments.small_trees.milp import Cuts, best_tree, leaves_below, occupancy_bounds
from capi.experiments.small_trees.run import DOMAINS, batch_of, loops, worth
from capi.experiments.small_trees.search import CompleteTree, TreeSearch, _Reduced
from capi.experiments.small_trees.settings import BATCH_PROBLEMS, PROBLEMS
from capi.policy_spaces import OptimalTrees

ALL = settings("full")
LAKE = FrozenLake("4x4").mdp


def tiny(seed, n_states=6, n_actions=2, absorbing=False):
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n_states, 0.4), size=(n_actions, n_states))
    R = rng.normal(size=(n_states, n_actions))
    if absorbing:
        P[:, 0], R[0] = np.eye(n_states)[0], 0.0
    X = rng.permuted(np.tile(np.arange(n_states) // 2, (2, 1)), axis=1).T.astype(float)
    X[:, 0] += 0.1 * np.arange(n_states)  # rows must differ
    return FiniteMDP(P, R, 0.9, start=rng.dirichlet(np.ones(n_states)), features=X)


def values_of_all_trees(mdp, depth):
    """Yield the exact value of every tree, slowly: every cut in every node, every action in every leaf."""
    cuts = [(j, value) for j in range(mdp.states.shape[1]) for value in np.unique(mdp.states[:, j])]

    def leaf(x, chosen):
        node = 0
        for _ in range(depth):
            feature, value = chosen[node]
            node = 2 * node + (1 if x[feature] <= value else 2)
        return node - (2**depth - 1)

    for chosen in itertools.product(cuts, repeat=2**depth - 1):
        places = [leaf(x, chosen) for x in mdp.states]
        for actions in itertools.product(range(mdp.n_actions), repeat=2**depth):
            yield float(mdp.start @ mdp.values(np.array([actions[place] for place in places])))


@pytest.mark.parametrize(("depth", "n_states"), [(1, 6), (2, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_the_solver_finds_the_best_of_all_trees(seed, depth, n_states):
    mdp = tiny(seed, n_states, absorbing=seed == 1)
    solved = best_tree(mdp, depth, time_limit=60)
    expected = max(values_of_all_trees(mdp, depth))
    assert solved.proved
    assert worth(mdp, solved.actions) == pytest.approx(expected, abs=1e-6)
    assert solved.bound == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("depth", "optimum"), [(1, 0.110398), (2, 0.365167)])
def test_the_solver_proves_the_published_optima_of_the_lake(depth, optimum):
    solved = best_tree(LAKE, depth, time_limit=100)
    assert solved.proved
    assert worth(LAKE, solved.actions) == pytest.approx(optimum, abs=1e-6)


def test_without_time_nothing_is_proved():
    mdp = SystemAdministrator("tree").mdp
    solved = best_tree(mdp, 3, time_limit=0.01)
    assert not solved.proved
    assert solved.bound == pytest.approx(float(mdp.start @ mdp.optimal_values))


@pytest.mark.parametrize("mdp", [LAKE, tiny(0), FrozenLake("8x8").mdp], ids=repr)
def test_no_policy_is_in_a_state_for_longer_than_the_bound(mdp):
    bounds, rng = occupancy_bounds(mdp), np.random.default_rng(0)
    assert (bounds <= 1).all()
    for _ in range(20):
        actions = rng.integers(mdp.n_actions, size=mdp.n_states)
        assert (mdp.discounted_occupancy(actions) <= bounds + 1e-9).all()


def test_cuts_are_distinct_and_leaves_are_below_their_nodes():
    cuts = Cuts.of(np.array([[0.0, 5.0], [1.0, 6.0], [2.0, 6.0]]))
    assert len(cuts.left) == 3, "all states, the first one, and the first two"
    assert leaves_below(0, 2) == [0, 1, 2, 3]
    assert leaves_below(2, 2) == [2, 3]
    assert leaves_below(4, 3) == [2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_the_search_at_depth_1_tries_all_trees(seed):
    mdp = tiny(seed)
    search = TreeSearch(mdp, 1)
    tree, value = search.improved(CompleteTree(np.zeros(1, dtype=int), np.zeros(2, dtype=int)))
    assert value == pytest.approx(max(values_of_all_trees(mdp, 1)))
    assert worth(mdp, search.decisions(tree)) == pytest.approx(value)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_only_improves_and_ends_where_no_node_can_be_changed(seed):
    search, rng = TreeSearch(LAKE, 2), np.random.default_rng(seed)
    first = CompleteTree(rng.integers(len(search.left), size=3), rng.integers(4, size=4))
    tree, value = search.improved(first)
    assert value >= search.value(first)
    again, same = search.improved(tree)
    assert same == value
    np.testing.assert_array_equal(search.decisions(again), search.decisions(tree))


def test_a_deeper_tree_decides_the_same():
    rng = np.random.default_rng(1)
    search, deeper = TreeSearch(LAKE, 2), TreeSearch(LAKE, 3)
    tree = CompleteTree(rng.integers(len(search.left), size=3), rng.integers(4, size=4))
    np.testing.assert_array_equal(deeper.decisions(tree.deeper()), search.decisions(tree))


def test_eliminated_states_do_not_change_values():
    rng = np.random.default_rng(0)
    search, actions = TreeSearch(LAKE, 1), rng.integers(4, size=16)
    inside = rng.random(16) < 0.4
    reduced = _Reduced(LAKE, search.P, actions, inside)
    tried = rng.integers(4, size=(5, int(inside.sum())))
    for chosen, value in zip(tried, reduced.values(tried), strict=True):
        changed = actions.copy()
        changed[inside] = chosen
        assert value == pytest.approx(worth(LAKE, changed))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_trees_of_the_loop_are_read_with_all_their_decisions(depth):
    search = TreeSearch(LAKE, depth)
    for policy in loops(LAKE, depth, lambda d: OptimalTrees(max_depth=d, min_samples_leaf=1)):
        np.testing.assert_array_equal(search.decisions(search.of(policy)), policy.act(LAKE.states))


def test_the_folder_is_found_by_its_name_and_every_problem_has_a_domain():
    assert load_experiment("small-trees").run is run
    assert len({s.name for s in ALL}) == len(ALL)
    assert all(json.loads(json.dumps(s.values)) == s.values for s in ALL)
    assert set(PROBLEMS) == set(DOMAINS)
    assert set(BATCH_PROBLEMS) < set(PROBLEMS)
    assert {s.name for s in settings("quick") if "milp" not in s.name} <= {s.name for s in ALL}


@pytest.mark.parametrize("method", ["capi", "capi-search", "imitation", "viper", "greedy"])
def test_runs_give_the_same_values_again_and_none_is_above_the_proved_optimum(method):
    values = {"group": "model", "problem": "frozen-lake-4x4", "depth": 2, "method": method}
    first, second = (run(values, 0) for _ in range(2))
    assert {k: v for k, v in first.items() if "seconds" not in k} == {
        k: v for k, v in second.items() if "seconds" not in k
    }
    assert first["value"] <= 0.365167 + 1e-6
    assert first["random"] == pytest.approx(0.012356, abs=1e-6)
    if method.startswith("capi"):
        assert first["value"] == pytest.approx(0.365167, abs=1e-6)


@pytest.mark.parametrize("method", ["capi", "imitation", "greedy"])
def test_a_batch_gives_a_tree_for_the_machine(method):
    values = {"group": "batch", "problem": "machine", "depth": 2, "method": method, "batch": 0, "n_samples": 400}
    found = run(values, 0)
    assert found["random"] < found["value"] <= found["optimum"] + 1e-6


def test_batches_come_from_all_states_that_are_not_absorbing():
    lake = FrozenLake("4x4")
    batch = batch_of(lake, 500, 3)
    seen = set(lake.mdp.features.index(batch.states))
    assert seen == set(np.flatnonzero(~lake.mdp.absorbing))
    np.testing.assert_array_equal(batch_of(lake, 500, 3).actions, batch.actions)
    assert batch.terminated.any()


# -- claims -----------------------------------------------------------------------------------------


def made_up(ours, imitation=0.5, milp=0.6, milp_seconds=500.0, our_seconds=1.0, batches=5):
    """Return records in which every problem has the same shares."""
    shares = {"capi": ours, "capi-search": ours, "imitation": imitation, "viper": 0.1, "greedy": 0.1, "milp": milp}
    found = []
    for s in ALL:
        if s.values.get("batch", 0) >= batches:
            continue
        noise = 1e-3 * np.random.default_rng(len(found)).normal() if s.values["group"] == "batch" else 0.0
        record = {"setting": s.name, **s.values, "seed": 0, "random": 10.0, "optimum": 20.0}
        record["value"] = 10.0 + 10.0 * (shares[s.values["method"]] + noise)
        if s.values["method"] == "milp":
            record |= {"proved": True, "bound": record["value"], "cpu_seconds": milp_seconds}
        else:
            record["cpu_seconds"] = our_seconds
        found.append(record)
    return found


def test_claims_follow_the_records():
    good = claims(made_up(0.59))
    assert len(good) == 7
    assert {claim.holds for claim in good.values()} == {True}
    assert good["near-the-optimum/capi"].numbers["largest_gap"] == pytest.approx(0.01)
    bad = claims(made_up(0.48, our_seconds=6.0))
    assert {claim.holds for claim in bad.values()} == {False}
    assert bad["near-the-optimum/capi"].numbers["missed"].count("depth") == 3 * len(PROBLEMS)
    assert "missed" not in good["near-the-optimum/capi"].numbers


def test_claims_without_proofs_or_batches_are_open():
    records = [r for r in made_up(0.59, batches=2) if r["method"] != "milp"]
    found = claims(records)
    assert set(found) == set(claims(made_up(0.59)))
    decided = {"not-behind-imitation/capi", "not-behind-imitation/capi-search"}
    assert {key for key, claim in found.items() if claim.holds is not None} == decided
    unproved = [{**r, "proved": False, "value": None} if r["method"] == "milp" else r for r in made_up(0.3)]
    assert claims(unproved)["near-the-optimum/capi"].holds is None
    assert claims(unproved)["cheap/capi"].holds, "a proof that takes longer than the limit counts as that long"
    assert {claim.verdict for claim in claims([]).values()} == {"open"}


@pytest.mark.parametrize(("ours", "our_seconds", "near", "cheap"), [(0.59, 1.0, None, None), (0.48, 6.0, False, False)])
def test_a_target_waits_for_all_proofs_unless_one_refutes_it(ours, our_seconds, near, cheap):
    records = [r for r in made_up(ours, our_seconds=our_seconds) if r["method"] != "milp" or r["problem"] == "machine"]
    found = claims(records)
    assert (found["near-the-optimum/capi"].holds, found["cheap/capi"].holds) == (near, cheap)
    assert (found["near-the-optimum/capi"].numbers["ran"], found["near-the-optimum/capi"].numbers["not_run"]) == (3, 39)


def test_speed_needs_a_long_proof_on_the_same_processor():
    assert claims(made_up(0.59, milp_seconds=50.0))["cheap/capi"].holds is None
    records = [{**r, "processor": "z80" if r["method"] == "milp" else "8080"} for r in made_up(0.59, our_seconds=100.0)]
    assert claims(records)["cheap/capi"].holds is None


def test_differences_from_batches_are_shown_as_they_are():
    """The margin is part of the verdict, not of the difference."""
    claim = claims(made_up(0.495))["not-behind-imitation/batch"]
    part = claim.differences["machine, depth 1"]
    assert part.mean == pytest.approx(-0.005, abs=2e-3)
    assert (claim.holds, part.needed) == (True, "above -0.01")
    few = [r for r in made_up(0.59) if r["group"] == "model" or r["problem"] != "traffic"]
    assert claims(few)["not-behind-imitation/batch"].missing == tuple(
        f"traffic, depth {depth}" for depth in (1, 2, 3, 4)
    )


def test_tables_and_figures_of_some_records():
    records = made_up(0.59)
    records[-1] = {**records[-1], "value": None, "proved": False}
    rows = table(records)
    assert rows[0]["share"] == pytest.approx(0.59)
    assert rows[-1]["share"] is None
    _, headings, lines = summary(rows)
    assert all(len(line) == len(headings) for line in lines)
    by_case = {tuple(line[:3]): line for line in lines}
    assert by_case["model", "machine", "1"][-1] == "1.00% and 1.00%"
    assert by_case["model", "machine", "4"][-1] == by_case["batch", "machine", "1"][-1] == ""
    assert by_case["model", PROBLEMS[-1], "3"][-2:] == ["no tree, not proved (500 s)", ""]
    assert set(figures(rows)) == {"small-trees-model.png", "small-trees-batch.png"}
    assert set(figures(rows[:1])) == {"small-trees-model.png"}
