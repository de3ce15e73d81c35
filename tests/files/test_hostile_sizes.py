"""Files that claim more than they hold, and numbers that overflow: refused or bounded, never an error of another library."""

import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from capi.errors import InvalidInputError
from capi.features import Polynomial, tables
from capi.features.scaling import Scaling
from capi.files import load_policy, save_policy
from capi.files.archive import read_archive, write_archive
from capi.policies import Constant, EpsilonGreedy, Mixture, Uniform, decisions
from capi.policy_spaces import Forests, Linear, LocalAverages, Neighbors, Thresholds, Trees
from capi.policy_spaces.trees.greedy import TreePolicy
from capi.trees._kernels.records import NODE
from capi.trees.forest import Tree

MOST_ACTIONS = 2**16


def changed_file(path, change):
    """Rewrite a policy file after ``change(header, arrays)``."""
    header, arrays = read_archive(path)
    change(header, arrays)
    write_archive(path, header, arrays)
    return path


def saved(policy, folder):
    save_policy(policy, folder / "policy.capi", with_states=True)
    return folder / "policy.capi"


@pytest.mark.parametrize(
    ("policy", "n_tables"),
    [
        (EpsilonGreedy(Constant(1, MOST_ACTIONS), 0.5), 3),
        (Mixture([Constant(1, MOST_ACTIONS), Uniform(MOST_ACTIONS)], [0.5, 0.5]), 4),
    ],
    ids=["epsilon greedy", "mixture"],
)
def test_a_small_file_that_claims_many_actions_needs_little_memory(policy, n_tables, tmp_path, monkeypatch):
    monkeypatch.setattr(decisions, "NUMBERS_AT_ONCE", 2**20)
    file = saved(policy, tmp_path)
    assert file.stat().st_size < 5350
    loaded, states = load_policy(file), np.zeros((200, 1))  # 100 MiB for each table of all rows, 8 MiB for each block
    tracemalloc.start()
    actions = loaded.act(states)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (actions == 1).all()
    assert peak <= (n_tables + 0.1) * 8 * decisions.NUMBERS_AT_ONCE


def spaces():
    return [Trees(max_depth=3), Forests(3, max_depth=3), Thresholds(), Linear(), Neighbors(5), LocalAverages()]


@pytest.mark.parametrize("space", spaces(), ids=lambda space: type(space).__name__)
@pytest.mark.parametrize("masked", [False, True])
def test_decisions_in_blocks_are_the_same(space, masked, monkeypatch):
    rng = np.random.default_rng(0)
    states, values = rng.normal(size=(50, 3)), rng.normal(size=(50, 4))
    allowed = rng.random((50, 4)) < 0.7
    allowed[:, 0] = True
    if masked and isinstance(space, LocalAverages | Neighbors):
        policy = space.improve(states, values)
    else:
        policy = space.improve(states, values, allowed=allowed if masked else None)
    policies = [policy, Mixture([policy, policy], [0.5, 0.5]), EpsilonGreedy(policy, 0.1)]
    mask = allowed if masked else None
    whole = [each.act(states, mask) for each in policies]
    monkeypatch.setattr(decisions, "NUMBERS_AT_ONCE", 30)  # blocks of seven rows
    for each, expected in zip(policies, whole, strict=True):
        np.testing.assert_array_equal(each.act(states, mask), expected)


def test_features_of_many_columns_are_computed_in_blocks(tmp_path, monkeypatch):
    for name in ("NUMBERS_AT_ONCE", "MOST_KEPT"):
        monkeypatch.setattr(tables, name, 2**20)  # 8 MiB
    rng = np.random.default_rng(0)
    policy = Linear(Polynomial(1), max_iterations=5).improve(rng.normal(size=(20, 1)), rng.normal(size=(20, 2)))
    n_centres = 50_000

    def change(header, arrays):
        shown = header["policy"]
        shown["settings"] |= {"features": "RadialGrid", "n_columns": n_centres + 1, "scale": None}
        shown["settings"] |= {"kernel": "Gaussian", "bandwidth": 1.0, "params": {"n_centres": 2, "bandwidth": None}}
        arrays["coefficients"] = np.zeros((2, n_centres + 1))
        arrays["centres"] = np.zeros((n_centres, 1))
        shown["arrays"] = sorted(arrays)

    file = changed_file(saved(policy, tmp_path), change)
    assert file.stat().st_size < 10_000
    loaded = load_policy(file)
    tracemalloc.start()
    loaded.act(np.zeros((100, 1)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 2**23  # all rows at once would take 40 MB for each of several tables


def array_file(path, shape):
    """Write a policy file whose only array is empty and has ``shape``."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (10 + len(text)) % 64) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps({"format": "capi policy", "version": 1}))
        archive.writestr("arrays/x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    return path


@pytest.mark.parametrize(
    "shape", ["(0, 999999999999999999)", "(999999999999999999, 0, 999999999999999999)", "(0, 65536, 65536)"]
)
def test_empty_arrays_of_huge_shapes_are_refused(shape, tmp_path):
    with pytest.raises(InvalidInputError, match=r"cannot be opened as a policy: 'arrays/x\.npy' .*shape"):
        load_policy(array_file(tmp_path / "x.capi", shape))


def test_empty_arrays_of_small_shapes_are_read(tmp_path):
    assert read_archive(array_file(tmp_path / "x.capi", "(0, 65536)"))[1]["x"].shape == (0, 65536)


@pytest.mark.parametrize("params", [None, [], 3, "p"])
def test_metric_params_must_be_a_record(params, tmp_path):
    rng = np.random.default_rng(0)
    file = saved(Neighbors(3).improve(rng.normal(size=(9, 2)), rng.normal(size=(9, 2))), tmp_path)

    def change(header, arrays):
        header["policy"]["settings"]["metric_params"] = params

    with pytest.raises(InvalidInputError, match="metric_params must be a record of numbers"):
        load_policy(changed_file(file, change))


def test_units_that_overflow_name_the_state(tmp_path):
    rng = np.random.default_rng(0)
    policy = Linear(Polynomial(2), max_iterations=5).improve(rng.normal(size=(20, 2)), rng.normal(size=(20, 2)))

    def change(header, arrays):
        arrays["unit"] = np.array([1.0, 5e-324])

    loaded = load_policy(changed_file(saved(policy, tmp_path), change))
    rule = r"states must be finite in the learned units; states\[0, 1\] = 1 is not: it is divided by 4\.94066e-324"
    with pytest.raises(InvalidInputError, match=rule):
        loaded.act(np.ones((3, 2)))


def test_scaling_does_not_warn_when_it_overflows():
    scaling = Scaling(np.zeros(1), np.array([1e-300]))
    assert scaling(np.array([[1e300]])) == np.inf


def chain_of_splits(depth):
    """Return a tree policy with a split on each of ``depth`` levels."""
    n = 2 * depth + 1
    nodes = np.zeros(n, dtype=NODE)
    for level in range(depth):
        nodes["left"][2 * level] = 2 * level + 1
        nodes["left"][2 * level + 1] = -1 - level
        nodes["threshold"][2 * level] = -level
    nodes["left"][n - 1] = -1 - depth
    leaves = depth + 1
    sums = np.zeros((leaves, 2))
    sums[np.arange(leaves), np.arange(leaves) % 2] = 1.0
    no_rows = np.zeros(0, dtype=np.int32)
    tree = Tree(nodes, nodes["threshold"].copy(), sums, np.ones(leaves), np.ones(leaves, dtype=np.int64), no_rows)
    return TreePolicy(tree, 2, 1, np.zeros(1, dtype=bool), np.zeros(leaves))


def test_trees_of_thousands_of_levels_have_rules():
    policy = chain_of_splits(3000)
    lines = policy.to_dict(), policy.to_dot().count("\n"), policy.importances()
    assert lines[1] == 1 + 6001 + 6000 + 1
    assert lines[2].tolist() == [1.0]
    with pytest.raises(InvalidInputError, match="at most 200 levels; it has 3000"):
        policy.plot()


def test_the_text_of_a_deep_tree_has_all_its_lines():
    text = chain_of_splits(1500).rules(full=True).splitlines()
    assert sum("if x0 <=" in line for line in text) == 1500
    assert sum(line.strip() == "else:" for line in text) == 1500
    assert len(text) == 1500 * 2 + 1501
