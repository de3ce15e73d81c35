"""The experiments beyond the paper, in small."""

import numpy as np
import pytest

from capi import evaluators, policy_spaces
from capi.domains import MountainCar
from capi.errors import PathEndedWarning
from capi.experiments import combinations, patients, readable
from capi.experiments.combinations.run import evaluator_of, space_of
from capi.experiments.combinations.settings import COMMON, EVALUATORS, SPACES
from capi.experiments.patients.run import some_patients
from capi.experiments.patients.settings import METHODS, PATIENTS
from capi.experiments.readable.settings import DEPTHS
from capi.experiments.sensitivity.run import collected
from capi.experiments.sensitivity.settings import BASE

SMALL = {
    "hiv": {"n_trees": 2, "n_patients": 8, "n_steps": 10, "n_rounds": 2, "n_iterations": 2, "collecting_iterations": 2},
    "pole": {"n_trees": 2, "n_samples": 200, "n_iterations": 3},
}


@pytest.fixture
def small(monkeypatch):
    for problem, changes in SMALL.items():
        monkeypatch.setitem(BASE, problem, BASE[problem] | changes)


@pytest.mark.parametrize("experiment", [readable, combinations, patients], ids=lambda one: one.__name__)
def test_settings_have_their_own_names_and_at_least_five_seeds(experiment):
    full, quick = experiment.settings("full"), experiment.settings("quick")
    assert len({setting.name for setting in full}) == len(full)
    assert {setting.name for setting in quick} < {setting.name for setting in full}
    assert experiment.SEEDS["full"] >= 5


# readable


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("problem", ["pole", "hiv"])
def test_trees_are_learned_in_the_loop_and_afterwards(problem):
    values = {"problem": problem, **BASE[problem]}
    forest = readable.run({**values, "depth": None, "depths": [1, 2]}, seed=100)
    assert len(forest["scores_afterwards"]) == 2
    tree = readable.run({**values, "depth": 2, "depths": []}, seed=100)
    assert np.isfinite([forest["score"], *forest["scores_afterwards"], tree["score"]]).all()
    assert tree["scores_afterwards"] == []


def trees(share, n_seeds=5):
    """Return records of the pole in which trees reach a share of the forest's score in the loop, and all of it afterwards."""
    forest = [1000.0 + 10 * seed for seed in range(n_seeds)]
    return [
        {
            "problem": "pole",
            "depth": depth,
            "seed": seed,
            "score": forest[seed] * (1 if depth is None else share) + seed,
        }
        | {"depths": list(DEPTHS) if depth is None else [], "learning_cpu_seconds": 1.0}
        | {"scores_afterwards": [forest[seed] + d for d in DEPTHS] if depth is None else []}
        for depth in (None, *DEPTHS)
        for seed in range(n_seeds)
    ]


@pytest.mark.parametrize(("share", "n_seeds", "holds"), [(1.0, 5, True), (0.5, 5, False), (0.5, 4, None)])
def test_a_tree_is_compared_with_nine_tenths_of_the_forest(share, n_seeds, holds):
    found = readable.claims(trees(share, n_seeds))
    assert {found[f"pole/in-the-loop/depth-{depth}"].holds for depth in DEPTHS} == {holds}
    assert found["pole/afterwards/depth-1"].holds is (True if n_seeds >= 5 else None)
    assert {name: claim.holds for name, claim in found.items() if name.startswith("hiv")} == {
        f"hiv/{way}/depth-{depth}": None for way in ("in-the-loop", "afterwards") for depth in DEPTHS
    }, "claims without runs are open"
    assert {claim.holds for claim in readable.claims(trees(share)[-1:]).values()} == {None}


def test_readable_policies_have_a_table_and_figures():
    rows = readable.table(trees(0.7))
    assert len(rows) == 5 * (1 + 2 * len(DEPTHS))
    assert [line[:2] for line in readable.summary(rows)[2]] == [
        ["pole", "forest"],
        ["pole", "in the loop"],
        ["pole", "afterwards"],
    ]
    assert list(readable.figures(rows)) == ["readable-pole.png"]
    assert list(readable.figures(rows[-1:])) == ["readable-pole.png"]


# combinations


def test_every_part_of_the_library_is_there():
    assert set(EVALUATORS) == set(evaluators.__all__) - {"Exact"}, "needs a model"
    assert set(SPACES) == set(policy_spaces.__all__) - {"Constrained"}, "wraps another space"
    cars = MountainCar()
    for name in EVALUATORS:
        assert type(evaluator_of({**COMMON, "evaluator": name}, cars, 1)).__name__ == name
    for name in SPACES:
        assert type(space_of({**COMMON, "space": name}, cars, 1)).__name__ == name


@pytest.mark.slow
@pytest.mark.filterwarnings(f"ignore::{PathEndedWarning.__module__}.{PathEndedWarning.__name__}")
@pytest.mark.parametrize("setting", combinations.settings("full"), ids=lambda setting: setting.name)
def test_every_combination_learns(setting):
    found = combinations.run({**setting.values, "n_samples": 150, "n_iterations": 2}, seed=100)
    assert 1 <= found["steps"] <= 200


def test_a_combination_learns_and_the_same_seed_gives_the_same_steps():
    values = {**COMMON, "evaluator": "FittedQ", "space": "Neighbors", "n_samples": 300, "n_iterations": 20}
    first, again = (combinations.run(values, seed=100) for _ in range(2))
    assert first["steps"] == again["steps"] < 150


def steps(more, n_seeds=5):
    """Return records in which LSTDQ and Linear take more steps than the fixed pair."""
    cases = {("FittedQ", "Trees"): 0.0, ("LSTDQ", "Trees"): more, ("FittedQ", "Linear"): 2 * more}
    return [
        {
            "evaluator": evaluator,
            "space": space,
            "seed": seed,
            "steps": 60.0 + 5 * seed + extra + 0.1 * (extra and seed),
        }
        | {"learning_cpu_seconds": 1.0}
        for (evaluator, space), extra in cases.items()
        for seed in range(n_seeds)
    ]


@pytest.mark.parametrize(("more", "n_seeds", "holds"), [(10, 5, True), (-10, 5, False), (10, 3, None)])
def test_parts_are_compared_with_the_fixed_pair(more, n_seeds, holds):
    found = combinations.claims(steps(more, n_seeds))
    ran = {"evaluators/LSTDQ", "spaces/Linear"}
    assert {name: claim.holds for name, claim in found.items()} == {
        name: holds if name in ran else None for name in found
    }
    assert len(found) == len(EVALUATORS) + len(SPACES) - 2
    without = combinations.claims(steps(more)[5:])
    assert {claim.holds for claim in without.values()} == {None}, "the fixed pair is missing"


def test_combinations_have_a_table_and_figures():
    rows = combinations.table(steps(10))
    assert [line[:2] for line in combinations.summary(rows)[2]] == [
        ["FittedQ", "Trees"],
        ["LSTDQ", "Trees"],
        ["FittedQ", "Linear"],
    ]
    assert list(combinations.figures(rows)) == ["combinations-evaluators.png", "combinations-spaces.png"]


# patients


@pytest.mark.usefixtures("small")
def test_more_patients_include_those_of_fewer():
    batch = collected(100, 1)
    few, many = (some_patients(batch, n, 100) for n in (3, 9))
    assert (few.n_episodes, many.n_episodes) == (3, 9)
    rows = {tuple(state) for state in many.states}
    assert all(tuple(state) in rows for state in few.states)
    other = some_patients(batch, 3, 101)
    assert not np.array_equal(np.sort(few.states, axis=0), np.sort(other.states, axis=0))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", [*METHODS[:2], pytest.param("selection", marks=pytest.mark.slow)])
def test_each_method_learns_from_some_patients(method):
    [values] = [
        s.values for s in patients.settings("full") if (s.values["n_logged"], s.values["method"]) == (10, method)
    ]
    found = patients.run(values | SMALL["hiv"] | ({"selection_trees": 2} if method == "selection" else {}), seed=100)
    assert found["return"] > 0
    assert bool(found["chosen"]) == (method == "selection")


def returns(share, gain, n_seeds=5):
    """Return records: fewer patients give a share of the return with all, selection multiplies it by a gain."""
    return [
        {"n_logged": n, "method": method, "seed": seed, "chosen": "forest" if method == "selection" else ""}
        | {"return": 1e8 * (10 + 0.01 * seed) * (1 if n == 200 else share) * (gain if method == "selection" else 1)}
        | {"learning_cpu_seconds": 1.0}
        for n in PATIENTS
        for method in METHODS
        for seed in range(n_seeds)
    ]


@pytest.mark.parametrize(
    ("share", "gain", "n_seeds", "enough", "better"),
    [(0.99, 1.5, 5, True, True), (0.3, 0.5, 5, False, False), (0.3, 0.5, 4, None, None)],
)
def test_few_patients_are_enough_if_the_return_is_nearly_that_of_all(share, gain, n_seeds, enough, better):
    found = patients.claims(returns(share, gain, n_seeds))
    assert found["enough/tree-fqi/40"].holds is enough
    assert found["selection/40"].holds is better
    assert len(found) == 3 * 4 + 5


def test_patients_have_a_table_and_a_figure():
    rows = patients.table(returns(0.5, 1.1))
    assert [line[0] for line in patients.summary(rows)[2]] == [*METHODS, "selection chose"]
    assert list(patients.figures(rows)) == ["patients.png"]
    assert list(patients.figures(rows[:1])) == ["patients.png"]
