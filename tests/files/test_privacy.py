"""What a policy file gives away: both attacks on version 1 are run here, on it and on the files of today."""

import json
import re
import zipfile
from datetime import date, timedelta
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest

from capi import CAPI, Transitions, load_policy, save_policy
from capi.errors import InvalidInputError
from capi.evaluators import FittedQ
from capi.files import archive
from capi.files.codecs import from_arrays, to_arrays
from capi.files.policy_file import read_header
from capi.policy_spaces import Forests, Neighbors, OptimalTrees, Thresholds, Trees
from capi.trees.readable_cuts import readable_cut
from files.all_kinds import policies, sample

AGES, SEXES, SCORES, OUTCOMES = range(121), (0, 1), range(11), (0, 1)  # 5,324 rows that a small trial can have
GOLDEN_RATIO = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


# Version 1, as it was: hashes without a key, of 64 bits, each step of which can be undone


def bits(values):
    return np.asarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)


def mixed(values):
    z = values + np.uint64(GOLDEN_RATIO)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unmixed(value):
    """Return what `mixed` made into ``value``."""

    def unshifted(z, by):
        found = z
        for _ in range(64 // by + 1):
            found = z ^ (found >> by)
        return found

    z = unshifted(int(value), 31)
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    z = unshifted(z, 27)
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    return (unshifted(z, 30) - GOLDEN_RATIO) & MASK


def hashes_of_rows(states, rewards, place):
    """Return the hash of each row at a ``place`` of its episode, before the rows of an episode are added up."""
    rows = mixed(bits(rewards))
    for j in range(states.shape[1]):
        rows = rows + mixed(bits(states[:, j]) + np.uint64(j + 1))
    return mixed(rows + np.uint64(place))


@cache
def candidates():
    """Return all rows that there can be: states (5324, 3) and rewards."""
    every = np.array(list(product(AGES, SEXES, SCORES, OUTCOMES)), dtype=float)
    return every[:, :3], every[:, 3]


def words_in(place):
    """Return every 64-bit number in a policy file: those written in its header as text, and those in its arrays, at any offset."""
    header, arrays = archive.read_archive(place)
    texts = re.findall(r"[0-9a-f]{16,}", json.dumps(header))
    found = {int(text[i : i + 16], 16) for text in texts for i in range(0, len(text) - 15, 2)}
    found |= {int(text, 16) for text in re.findall(r"(?<![0-9a-f])[0-9a-f]{16}(?![0-9a-f])", json.dumps(header))}
    for array in arrays.values():
        raw = np.ascontiguousarray(array).tobytes()
        found |= set(np.frombuffer(raw[: len(raw) // 8 * 8], dtype="<u8").tolist())
    return found


def rows_found(place):
    """Try all candidates as episodes of one row."""
    states, rewards = candidates()
    guesses = mixed(hashes_of_rows(states, rewards, 0))
    known = words_in(place)
    return {i for i, guess in enumerate(guesses.tolist()) if guess in known}


def pairs_found(place):
    """Meet in the middle: undo the last step, and look for two rows whose hashes add up to it."""
    states, rewards = candidates()
    first, second = hashes_of_rows(states, rewards, 0), hashes_of_rows(states, rewards, 1)
    at = {value: i for i, value in enumerate(second.tolist())}
    found = set()
    for word in words_in(place):
        rest = (np.uint64(unmixed(word)) - first).tolist()
        found |= {(i, at[value]) for i, value in enumerate(rest) if value in at}
    return found


def trial(length, n=120, seed=0):
    """Return the numbers of candidates (n, length), and a batch of such episodes."""
    states, rewards = candidates()
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(states), size=n * length)
    x = states[rows]
    ends = np.arange(n * length) % length == length - 1
    batch = Transitions(
        x, rng.integers(2, size=n * length), rewards[rows], x, ends, episodes=np.arange(n * length) // length
    )
    return rows.reshape(n, length), batch


def version_1_file(place, batch):
    """Write a file as version 1 did: with the smallest 512 hashes of the learning episodes."""
    policy = learned(batch)
    save_policy(policy, place)
    header, arrays = archive.read_archive(place)
    hashes = np.zeros(batch.n_episodes, dtype=np.uint64)
    length = len(batch) // batch.n_episodes
    for t in range(length):
        hashes += hashes_of_rows(batch.states[t::length], batch.rewards[t::length], t)
    header["version"] = 1
    smallest = np.unique(mixed(hashes))[:512]
    header["policy"]["settings"]["training"]["episodes"] = [f"{int(value):016x}" for value in smallest]
    archive.write_archive(place, header, arrays)
    return place


@cache
def _learner(space):
    return CAPI(FittedQ(n_trees=3), space, discount=0.5, n_iterations=1, random_state=0)


def learned(batch, space=None):
    return _learner(space or Trees(max_depth=3)).fit(batch).policy_


def test_hashes_of_version_1_can_be_undone():
    values = np.random.default_rng(0).integers(2**63, size=20).astype(np.uint64)
    assert [unmixed(value) for value in mixed(values).tolist()] == values.tolist()


def test_rows_of_version_1_are_found_by_trying_them_all_and_those_of_today_are_not(tmp_path):
    rows, batch = trial(1)
    old = version_1_file(tmp_path / "old.capi", batch)
    assert rows_found(old) == set(rows.ravel().tolist()), "the attack works"
    for space in (Trees(max_depth=3), OptimalTrees(max_depth=2), Forests(10), Thresholds()):
        save_policy(learned(batch, space), tmp_path / "new.capi")
        assert not rows_found(tmp_path / "new.capi")
        assert not pairs_found(tmp_path / "new.capi")


def test_episodes_of_two_rows_of_version_1_are_found_in_the_middle_and_those_of_today_are_not(tmp_path):
    rows, batch = trial(2)
    old = version_1_file(tmp_path / "old.capi", batch)
    assert pairs_found(old) == set(map(tuple, rows.tolist())), "the attack works"
    policy = learned(batch)
    for options in ({}, {"with_episodes": True}):
        save_policy(policy, tmp_path / "new.capi", **options)
        assert not pairs_found(tmp_path / "new.capi")
        assert not rows_found(tmp_path / "new.capi")


def test_a_file_of_version_1_opens_and_saving_it_drops_its_hashes(tmp_path):
    rows, batch = trial(1)
    old = version_1_file(tmp_path / "old.capi", batch)
    policy = load_policy(old)
    np.testing.assert_array_equal(policy.act(batch.states), learned(batch).act(batch.states))
    assert policy.training.episodes is None
    policy.save(tmp_path / "new.capi")
    assert read_header(tmp_path / "new.capi")["version"] == 2
    assert "episodes" not in read_header(tmp_path / "new.capi")["policy"]["settings"]["training"]
    assert not rows_found(tmp_path / "new.capi")
    assert rows_found(old) == set(rows.ravel().tolist())


@pytest.mark.parametrize(
    "change",
    [
        {"secret": "00"},
        {"bound": 5},
        {"sealed": "x"},
        {"sealed": ["zz" * 16]},
        {"n_twins": -1},
        {"n_episodes": 0},
        {"more": 1},
        {"sealed": ["00" * 16] * 1001},
    ],
    ids=str,
)
def test_records_of_episodes_are_checked(change, tmp_path):
    _, batch = trial(2, n=10)
    save_policy(learned(batch), tmp_path / "a.capi", with_episodes=True)
    header, arrays = archive.read_archive(tmp_path / "a.capi")
    header["policy"]["settings"]["training"]["episodes"].update(change)
    archive.write_archive(tmp_path / "a.capi", header, arrays)
    with pytest.raises(InvalidInputError, match=r"a\.capi cannot be opened as a policy: its"):
        load_policy(tmp_path / "a.capi")


def test_episodes_that_cannot_be_recorded_are_refused_with_the_reason(tmp_path):
    with pytest.raises(InvalidInputError, match=r"all of its episodes have one row\. Save it without them"):
        save_policy(learned(trial(1)[1]), tmp_path / "a.capi", with_episodes=True)
    with pytest.raises(InvalidInputError, match="this policy does not know them"):
        save_policy(policies()["tree"][0], tmp_path / "a.capi", with_episodes=True)
    assert not list(tmp_path.iterdir())


# Names and dates


def hospital(n=200):
    rng = np.random.default_rng(0)
    ward = rng.choice(["east", "west"], n).astype(object)
    ward[:3] = "Rapunzel's room"
    admitted = [date(2021, 5, 17) + timedelta(days=int(i)) for i in rng.integers(0, 300, n)]
    admitted[0] = date(2021, 3, 14)
    return pd.DataFrame(
        {
            "ward": ward,
            "admitted": admitted,
            "age": rng.normal(60, 9, n),
            "a": rng.integers(2, size=n),
            "r": rng.random(n),
        }
    )


def test_rare_names_and_the_earliest_date_do_not_travel(tmp_path):
    roles = {"state": ["ward", "admitted", "age"], "action": "a", "reward": "r"}
    batch = Transitions.from_frame(hospital(), **roles)
    save_policy(learned(batch), tmp_path / "a.capi")
    text = json.dumps(read_header(tmp_path / "a.capi"))
    assert "Rapunzel" not in text
    assert "2021-03-14" not in text
    assert '"2021-01-01"' in text
    loaded = load_policy(tmp_path / "a.capi")
    np.testing.assert_array_equal(loaded.schema.encode(hospital()), batch.states)  # file and learner agree
    asked = Transitions.from_frame(hospital(), **roles, min_category_rows=1)
    save_policy(learned(asked), tmp_path / "b.capi")
    assert "Rapunzel" in json.dumps(read_header(tmp_path / "b.capi"))


# States


HOLD_STATES = {
    *("neighbors", "neighbors-distance", "local-averages", "kernel", "kernel-values", "kernel-values-exact"),
    *("kernel-span-values", "linear-onehot", "linear-radialcentres", "linear-kerneldictionary"),
    *("linear-fourier", "linear-radialgrid", "linear-tiles"),  # the range of each column
    *(
        "fitted-values",
        "fitted-values-input",
        "priced-values",
        "lower-bounds",
        "lower-bounds-trees",
    ),  # leaves of fewer than five rows
}


@pytest.mark.parametrize("name", policies())
def test_policies_that_hold_states_are_saved_only_on_request(name, tmp_path):
    policy = policies()[name][0]
    if name not in HOLD_STATES:
        save_policy(policy, tmp_path / "a.capi")
        return
    with pytest.raises(
        InvalidInputError, match=r"Everyone who gets the file gets them\. Save it with with_states=True"
    ):
        policy.save(tmp_path / "a.capi")
    assert not list(tmp_path.iterdir())
    policy.save(tmp_path / "a.capi", with_states=True)


def holds(place, states):
    """Whether a file holds a whole state in the arrays of its members."""
    with zipfile.ZipFile(place) as opened:
        raw = b"".join(opened.read(name) for name in opened.namelist())
    return any(np.ascontiguousarray(state).tobytes() in raw for state in states)


@pytest.mark.parametrize("space", [Trees(), OptimalTrees(max_depth=2), Forests(20), Thresholds()], ids=repr)
def test_no_value_of_a_column_is_in_the_file_of_a_tree(space, tmp_path):
    states, values = sample(seed=3)
    space.improve(states, values).save(tmp_path / "a.capi")
    _, arrays = archive.read_archive(tmp_path / "a.capi")
    numbers = np.concatenate([array.ravel().astype(float) for array in arrays.values()])
    assert not np.isin(states, numbers).any()
    assert not holds(tmp_path / "a.capi", states)


def test_the_search_for_states_finds_them_where_they_are(tmp_path):
    states, values = sample(seed=3)
    Neighbors(3).improve(states, values).save(tmp_path / "a.capi", with_states=True)
    assert holds(tmp_path / "a.capi", states)


# Cuts and leaves


@pytest.mark.parametrize(("below", "above", "cut"), [
    (0, 1, 0.5), (30, 50, 40), (63.4127, 64.9, 64), (1, 4, 2), (36.6, 36.7, 36.65), (-1, 1, 0), (2, 2.0000001, 2.00000005),
])  # fmt: skip
def test_a_cut_is_the_shortest_number_inside_its_interval(below, above, cut):
    assert readable_cut(below, above) == pytest.approx(cut, abs=1e-12)


def test_cuts_lie_inside_their_interval_and_decisions_stay():
    rng = np.random.default_rng(0)
    for below, width in zip(rng.normal(size=500) * 100, 10.0 ** rng.integers(-9, 3, 500), strict=True):
        cut = readable_cut(below, below + width)
        assert below + 0.05 * width < cut < below + 0.95 * width
    states, values = sample(seed=5)
    policy = Trees(max_depth=None, min_samples_leaf=1).improve(states, values)
    np.testing.assert_array_equal(policy.act(states), values.argmax(axis=1))  # each state is still on its side
    assert not np.isin(policy.tree.nodes["threshold"], states).any()


def leaves_of(record):
    return [record] if "action" in record else [*leaves_of(record["then"]), *leaves_of(record["else"])]


@pytest.mark.parametrize("space", [Trees(max_depth=4), OptimalTrees(max_depth=3), Forests(5, max_depth=4)], ids=repr)
def test_counts_and_sums_of_small_leaves_are_left_out(space, tmp_path):
    states, values = sample(seed=1)
    policy = space.improve(states, values)
    policy.save(tmp_path / "a.capi")
    loaded = load_policy(tmp_path / "a.capi")
    trees = (
        zip(policy.forest.trees, loaded.forest.trees, strict=True)
        if isinstance(space, Forests)
        else [(policy.tree, loaded.tree)]
    )
    n_small = 0
    for before, after in trees:
        small = before.counts < 5
        n_small += small.sum()
        assert (after.counts[small] == 0).all()
        assert not np.isin(
            after.sums[small & (before.sums.max(axis=1) > 0)], before.sums[small][before.sums[small] > 0]
        ).any()
        others = after.counts > 0
        np.testing.assert_array_equal(after.sums[others], before.sums[others])
        assert others.sum() >= (~small).sum() - (small.sum() == 1)
    assert n_small > 0
    np.testing.assert_array_equal(loaded.probabilities(states), policy.probabilities(states))


def test_rules_and_exports_of_a_file_do_not_give_small_leaves(tmp_path):
    states, values = sample(seed=1)
    policy = Trees(max_depth=4).improve(states, values)
    policy.save(tmp_path / "a.capi")
    loaded = load_policy(tmp_path / "a.capi")
    before, after = leaves_of(policy.to_dict()), leaves_of(loaded.to_dict())
    assert any(leaf["states"] < 5 for leaf in before)
    for one, other in zip(before, after, strict=True):
        assert other["action"] == one["action"]
        assert other["states"] is None if one["states"] < 5 else other["states"] in (None, one["states"])
    assert "support not given" in loaded.rules()
    assert "support not given" in loaded.to_dot()
    assert not re.search(r"\([1-4] states?,", loaded.rules())
    assert re.search(r"\([1-4] states?,", policy.rules())
    assert "support not given" in "".join(text.get_text() for text in loaded.plot().axes[0].texts)
    assert (loaded.importances() >= 0).all()


def test_a_single_small_leaf_is_not_the_difference_of_known_numbers(tmp_path):
    x = np.arange(40.0)[:, None]
    values = np.stack([(x[:, 0] < 3) * 1.0, (x[:, 0] >= 3) * 1.0 * (x[:, 0] < 20), (x[:, 0] >= 20) * 1.0], axis=1)
    policy = Trees(max_depth=2).improve(x, values)
    assert sorted(policy.tree.counts.tolist()) == [3, 17, 20]
    policy.save(tmp_path / "a.capi")
    assert sorted(load_policy(tmp_path / "a.capi").tree.counts.tolist()) == [0, 0, 20]


def test_checkpoints_keep_what_files_leave_out():
    """A run that resumes must go on with the same numbers."""
    states, values = sample(seed=1)
    policy = Trees(max_depth=4).improve(states, values)
    np.testing.assert_array_equal(from_arrays(to_arrays(policy)).tree.counts, policy.tree.counts)
