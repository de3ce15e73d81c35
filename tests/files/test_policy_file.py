"""Policy files keep every bit, open for ever, and whatever is wrong with one is refused by name."""

import io
import json
import os
import struct
import warnings
import zipfile
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capi
from capi import load_policy, save_policy
from capi.errors import CapiError, InvalidInputError
from capi.features.kernels import LinearKernel
from capi.files import archive, codecs
from capi.files.archive import read_archive, write_archive
from capi.files.policy_file import read_header
from capi.policies import Constant, EpsilonGreedy, Tabular, described
from capi.policy_spaces import Classifier, Linear, LocalAverages, Neighbors, Partition, Trees, Unrestricted
from files.all_kinds import LABELS, NEWER, SCHEMA, TRAINING, masks, policies, questions, sample

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.capi"))
FUZZED = settings(max_examples=250, derandomize=True, deadline=None)


@cache
def contents_of(name):
    """Return the bytes of a kind's file."""
    place = Path(os.environ["CAPI_TEST_FOLDER"]) / "example.capi"
    save_policy(policies()[name][0], place, with_states=True)
    return place.read_bytes()


@pytest.fixture(autouse=True, scope="module")
def _folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPI_TEST_FOLDER", str(tmp_path_factory.mktemp("policies")))
        yield


def scratch(data):
    """Return a file with these bytes."""
    place = Path(os.environ["CAPI_TEST_FOLDER"]) / "damaged.capi"
    place.write_bytes(data)
    return place


def rewritten(name, change):
    """Return a kind's file after ``change(header, arrays)``, with all checksums right."""
    header, arrays = read_archive(scratch(contents_of(name)))
    change(header, arrays)
    place = scratch(b"")
    write_archive(place, header, arrays)
    return place


def opens_or_is_refused(place, name):
    """Load and act; whatever is wrong must be said with InvalidInputError. Return whether it opened."""
    try:
        policy = load_policy(place)
    except InvalidInputError as error:
        if str(place) not in str(error):
            raise AssertionError("the error must name the file") from error
        return False
    asked = policies()[name][1][:70]
    asked = asked[:, : policy.n_features] if getattr(policy, "n_features", 9) < asked.shape[1] else asked
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            actions = policy.act(asked, masks(policy, asked))
        except (CapiError, ValueError):
            return True  # it says why it does not decide there: numbers that are too large, for scikit-learn too
    assert actions.shape == (len(asked),)
    assert ((actions >= 0) & (actions < policy.n_actions)).all()
    return True


@pytest.mark.parametrize("name", policies())
def test_a_policy_comes_back_bit_for_bit(name, tmp_path):
    policy, asked = policies()[name]
    save_policy(policy, tmp_path / "policy.capi", with_states=True)
    loaded = load_policy(tmp_path / "policy.capi")
    allowed = masks(policy, asked)
    np.testing.assert_array_equal(loaded.act(asked, allowed), policy.act(asked, allowed))
    np.testing.assert_array_equal(loaded.probabilities(asked, allowed), policy.probabilities(asked, allowed))
    assert loaded.n_actions == policy.n_actions
    save_policy(loaded, tmp_path / "again.capi", with_states=True)
    assert (tmp_path / "again.capi").read_bytes() == (tmp_path / "policy.capi").read_bytes()
    if hasattr(policy, "at"):
        for t in range(3):
            np.testing.assert_array_equal(
                loaded.at(t).probabilities(asked, allowed), policy.at(t).probabilities(asked, allowed)
            )


LEFT_OUT = {  # what files do not keep: results at hand, the rows that were learned from, and settings of speed
    *(
        "known",
        "n_jobs",
        "origin",
        "age",
        "n_sweeps",
        "prepared",
        "sample",
        "search",
        "dictionary",
        "remembers",
        "source",
        "transform",
    ),
    "extremes",  # of scalings: which values may be saved was decided before
    *("above", "leaf_of_row", "nodes"),  # of trees: for growing; of nodes the decisions speak
}


def check_same(one, other, path):
    """Check that two things are the same in all that files keep."""
    if is_dataclass(one):
        assert type(one).__name__.removesuffix("Policy") == type(other).__name__.removesuffix("Policy"), path
        for f in fields(one):
            if f.name not in LEFT_OUT:
                check_same(getattr(one, f.name), getattr(other, f.name), f"{path}.{f.name}")
    elif isinstance(one, list | tuple) and one and is_dataclass(one[0]):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            check_same(*pair, f"{path}[{i}]")
    else:
        np.testing.assert_equal(other, one, path)


def without_small_leaves(policy):
    """Return the policy as files give it: without the counts and sums of leaves with fewer than five rows."""
    packed = codecs.to_arrays(policy)
    codecs.withhold(packed)
    return codecs.from_arrays(packed)


@pytest.mark.parametrize("name", policies())
def test_everything_comes_back_that_is_not_left_out_on_purpose(name, tmp_path):
    policy = without_small_leaves(policies()[name][0])
    save_policy(policy, tmp_path / "policy.capi", with_states=True)
    check_same(policy, load_policy(tmp_path / "policy.capi"), name)


@pytest.mark.parametrize(
    "name", ["tree", "optimal-tree", "threshold", "linear", "constrained-tree", "constrained-linear"]
)
def test_a_policy_tells_its_rules_after_loading(name, tmp_path):
    policy = without_small_leaves(policies()[name][0])
    policy.save(tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    assert loaded.rules() == policy.rules()
    assert loaded.to_dict() == policy.to_dict()


def test_words_and_origin_travel_in_the_file(tmp_path):
    policy = policies()["tree"][0]
    policy.save(tmp_path / "policy.capi")
    loaded = load_policy(tmp_path / "policy.capi")
    assert loaded.schema == SCHEMA
    assert loaded.training == TRAINING
    assert loaded.schema.action_labels == LABELS


def test_neighbors_keep_the_states_that_explain_them(tmp_path):
    policy = policies()["neighbors"][0]
    policy.save(tmp_path / "policy.capi", with_states=True)
    assert load_policy(tmp_path / "policy.capi").rules() == policy.rules()


@pytest.mark.parametrize("place", GOLDEN, ids=lambda path: path.stem)
def test_golden_files_open_for_ever(place):
    known = json.loads(place.with_suffix(".json").read_text())
    states = np.array([[np.nan if x is None else x for x in state] for state in known["states"]])
    allowed = None if known["allowed"] is None else np.array(known["allowed"], dtype=bool)
    np.testing.assert_array_equal(load_policy(place).act(states, allowed), known["actions"])


def test_every_kind_has_a_golden_file():
    wanted = {f"v{version}-{name}" for name in policies() for version in ((2,) if name in NEWER else (1, 2))}
    assert {place.stem for place in GOLDEN} >= wanted


def test_settings_can_be_read_without_the_policy(tmp_path):
    save_policy(Constant(0, 2), tmp_path / "a.capi", settings={"space": "none", "depth": 3})
    header = read_header(tmp_path / "a.capi")
    assert header["settings"] == {"space": "none", "depth": 3}
    assert header["libraries"]["capi"] == capi.__version__
    assert header["policy"]["kind"] == "constant"


class Stranger:
    n_actions = 2

    def act(self, states, allowed=None):
        return np.zeros(len(states), dtype=int)

    def probabilities(self, states, allowed=None):
        return np.tile([1.0, 0.0], (len(states), 1))


def whole(states):
    return np.floor(states[:, 0])


class Simulated:
    n_actions = 3

    def values(self, states):
        return np.zeros((len(states), 3))


def refused_policies():
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    states, values = sample()
    yield "Stranger", Stranger()
    yield "Stranger", EpsilonGreedy(Stranger(), 0.1)
    yield "cell_of is a function", Partition(whole).improve(states, values)
    yield "classifier is an object of its own", Classifier(LogisticRegression()).improve(states, values)
    yield "whole", Linear(lambda x: np.column_stack([whole(x), np.ones(len(x))])).improve(states, values)
    yield "StandardScaler", Linear(StandardScaler()).improve(states, values)
    yield "negative_distances", Neighbors(3, negative_distances).improve(states, values)
    yield "linear_kernel", LocalAverages(linear_kernel).improve(np.abs(states), values)
    yield "Simulated", Unrestricted().improve(states, values, q=Simulated())


def negative_distances(distances):
    return np.exp(-distances)


def linear_kernel(first, second):
    return LinearKernel()(first, second)


def test_what_would_be_code_is_refused_and_nothing_is_written(tmp_path):
    for reason, policy in refused_policies():
        with pytest.raises(InvalidInputError, match="cannot be saved in a file"):
            save_policy(policy, tmp_path / "policy.capi")
        assert list(tmp_path.iterdir()) == [], reason


def test_labels_that_json_has_no_word_for_are_refused(tmp_path):
    policy = described(Constant(0, 1), capi.data.schema.Schema.of(1, 1, ["x"], [object()]), TRAINING)
    with pytest.raises(InvalidInputError, match="label"):
        policy.save(tmp_path / "policy.capi")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    place = tmp_path / "policy.capi"
    save_policy(Constant(0, 2), place)
    before = place.read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        save_policy(Constant(1, 2), place)
    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy.capi"]


@pytest.mark.parametrize("path", ["", "."])
def test_a_path_without_a_name_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match="path must name a file"):
        save_policy(Constant(0, 2), path)


def test_what_is_no_file_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"nothing.capi cannot be opened as a policy: there is no such file"):
        load_policy(tmp_path / "nothing.capi")
    with pytest.raises(InvalidInputError, match="it is not a regular file"):
        load_policy(tmp_path)
    with pytest.raises(InvalidInputError, match="there is no such file"):
        load_policy("nul\0l")
    (tmp_path / "text.capi").write_text("hello")
    with pytest.raises(InvalidInputError, match="not a valid zip file"):
        load_policy(tmp_path / "text.capi")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_does_not_keep_anybody_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match="it is not a regular file"):
        load_policy(tmp_path / "pipe")


# Damage to the zip


@FUZZED
@given(st.sampled_from(["tree", "forest", "linear", "threshold", "constrained-tree", "neighbors"]), st.data())
def test_flipped_bits_open_or_are_refused(name, data):
    damaged = bytearray(contents_of(name))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    opens_or_is_refused(scratch(bytes(damaged)), name)


def test_truncated_files_are_refused():
    whole_file = contents_of("tree")
    for length in range(0, len(whole_file), 13):
        with pytest.raises(InvalidInputError):
            load_policy(scratch(whole_file[:length]))


@FUZZED
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_what_is_added_around_a_file_does_no_harm(before, after):
    opens_or_is_refused(scratch(before + contents_of("threshold") + after), "threshold")


def zip_of(members, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the same name twice
        with zipfile.ZipFile(file, "w", method) as made:
            for name, data in members:
                made.writestr(name, data)
    return file.getvalue()


def members_of(name):
    with zipfile.ZipFile(io.BytesIO(contents_of(name))) as opened:
        return [(info.filename, opened.read(info)) for info in opened.infolist()]


@pytest.mark.parametrize(
    "name",
    [
        "../arrays/x.npy",
        "/etc/passwd",
        "arrays/../x.npy",
        "arrays/a/b.npy",
        "arrays\\x.npy",
        "C:\\x.npy",
        "arrays/.npy",
        "arrays/",
        "arrays/x.npy/",
        "arrays/x.pkl",
        "header.json ",
        "arrays/" + "x" * 5000 + ".npy",
        "arrays/ä.npy",
    ],
)
def test_names_that_do_not_belong_are_refused(name):
    place = scratch(zip_of([*members_of("threshold"), (name, b"")]))
    with pytest.raises(InvalidInputError, match="unexpected member"):
        load_policy(place)


def test_names_that_end_in_the_middle_are_refused():
    data = zip_of([*members_of("threshold"), ("arrays/xYz.npy", b"")]).replace(b"xYz.npy", b"x\0z.npy")
    with pytest.raises(InvalidInputError, match=r"unexpected member|not a valid zip"):
        load_policy(scratch(data))


def test_two_members_of_one_name_are_refused():
    with pytest.raises(InvalidInputError, match="two members with the same name"):
        load_policy(scratch(zip_of([*members_of("threshold"), members_of("threshold")[0]])))


def test_arrays_that_belong_to_nothing_are_refused():
    extra = next(data for name, data in members_of("threshold") if name.endswith("npy"))
    with pytest.raises(InvalidInputError, match="is not part of the policy"):
        load_policy(scratch(zip_of([*members_of("threshold"), ("arrays/more.npy", extra)])))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(method):
    with pytest.raises(InvalidInputError, match="compressed in a way"):
        load_policy(scratch(zip_of(members_of("threshold"), method)))


def test_zip_bombs_are_refused_before_they_are_unpacked(monkeypatch):
    bomb = zip_of([*members_of("threshold"), ("arrays/bomb.npy", bytes(2**25))])
    assert len(bomb) < 2**17
    monkeypatch.setattr(archive, "_unpacked", lambda *args: pytest.fail("unpacked"))
    with pytest.raises(InvalidInputError, match=r"would take \d+ bytes unpacked"):
        load_policy(scratch(bomb), max_bytes=2**24)


def test_a_bomb_that_lies_about_its_size_gives_no_more_than_it_says():
    bomb = zip_of([*members_of("threshold"), ("arrays/bomb.npy", bytes(2**25))])
    lying = bomb.replace(struct.pack("<L", 2**25), struct.pack("<L", 100))
    with pytest.raises(InvalidInputError, match=r"not a valid zip|does not have the size"):
        load_policy(scratch(lying), max_bytes=2**20)


def test_a_large_header_is_refused(monkeypatch):
    monkeypatch.setattr(archive, "MOST_HEADER_BYTES", 50)
    with pytest.raises(InvalidInputError, match="would take"):
        load_policy(scratch(contents_of("threshold")))


def test_too_many_members_are_refused(monkeypatch):
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    with pytest.raises(InvalidInputError, match="members; at most 3"):
        load_policy(scratch(contents_of("tree")))


# Damage inside, with all checksums right


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "does not identify it as a policy file"),
        (b'{"a": 1, "a": 2}', "duplicate key"),
        (b'{"a": NaN}', "NaN, which is not valid JSON"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    ],
    ids=range(8),
)
def test_headers_that_cannot_be_read_are_refused(text, reason):
    with pytest.raises(InvalidInputError, match=reason):
        load_policy(scratch(zip_of([("header.json", text)])))


def test_a_newer_version_is_refused_with_advice():
    with pytest.raises(
        InvalidInputError, match=r"format version 3, but capi .* reads versions up to 2\. Install a newer capi"
    ):
        load_policy(rewritten("tree", lambda header, arrays: header.update(version=3)))


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(InvalidInputError, match="contains the kind 'oracle', which this version of capi does not know"):
        load_policy(rewritten("tree", lambda header, arrays: header["policy"].update(kind="oracle")))


def test_action_values_are_no_policy():
    def only_q(header, arrays):
        header["policy"] = header["policy"]["parts"]["q"]
        for name in list(arrays):
            arrays[name.removeprefix("q.")] = arrays.pop(name)

    with pytest.raises(InvalidInputError, match="fitted values: this is not a policy"):
        load_policy(rewritten("fitted-values", only_q))


def test_policies_in_policies_have_an_end():
    policy = Constant(0, 2)
    for _ in range(40):
        policy = EpsilonGreedy(policy, 0.1)
    with pytest.raises(InvalidInputError, match="nested more than 32 levels deep"):
        save_policy(policy, scratch(b""))


def leaves_of(value, path=()):
    """Return where the plain values of a JSON document are."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [path, *(leaf for key, item in items for leaf in leaves_of(item, (*path, key)))]
    return [path]


STRANGE = [
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31,
    10**30,
    0.5,
    -2.5,
    1e308,
    5e-324,
    "",
    "x",
    "inf",
    "constant",
    [],
    {},
    [[]],
    [None],
]


@FUZZED
@given(st.sampled_from(sorted(policies())), st.data())
def test_strange_headers_open_or_are_refused(name, data):
    def change(header, arrays):
        path = data.draw(st.sampled_from(leaves_of(header["policy"])[1:]))
        *above, last = path
        place = header["policy"]
        for key in above:
            place = place[key]
        if isinstance(place, dict) and data.draw(st.booleans()):
            del place[last]
        else:
            place[last] = data.draw(st.sampled_from(STRANGE))

    opens_or_is_refused(rewritten(name, change), name)


def changed_array(array, data):
    """Return the array with one of its numbers, its shape or its type changed."""
    how = data.draw(st.sampled_from(["value", "value", "value", "shape", "type"]))
    if how == "type":
        return array.astype(data.draw(st.sampled_from(["<f8", "<i8", "<i4", "<i2", "|u1", "|b1"])))
    if how == "shape":
        shapes = [array[:-1], np.concatenate([array, array]), array[None], array.ravel(), array[:0], array.T.copy()]
        return shapes[data.draw(st.integers(0, len(shapes) - 1))]
    array = array.copy()
    if array.dtype.kind == "f":
        values = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 5e-324]
    else:
        info = np.array([0, 1]) if array.dtype.kind == "b" else np.iinfo(array.dtype)
        values = [0, 1] if array.dtype.kind == "b" else [0, 1, 2, -1, -2, 7, info.max, info.min]
    if array.size:
        array.flat[data.draw(st.integers(0, array.size - 1))] = data.draw(st.sampled_from(values))
    return array


@settings(max_examples=600, derandomize=True, deadline=None)
@given(st.sampled_from(sorted(set(policies()) - {"uniform", "constant", "epsilon-greedy"})), st.data())
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_strange_arrays_open_or_are_refused(name, data):
    def change(header, arrays):
        which = data.draw(st.sampled_from(sorted(arrays)))
        arrays[which] = changed_array(arrays[which], data)

    opens_or_is_refused(rewritten(name, change), name)


def set_entry(array, place, value):
    def change(header, arrays):
        arrays[array][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_entry("left", 0, 0), "nodes must be a tree"),
        (set_entry("left", 1, 1), "nodes must be a tree"),
        (set_entry("left", 2, 1), "nodes must be a tree"),
        (set_entry("left", 0, 3), "nodes must be a tree"),
        (set_entry("left", 0, 10_000), "left must lie in"),
        (set_entry("left", 0, -1), "nodes must be a tree"),
        (set_entry("left", -1, -5), "numbered from 0"),
        (set_entry("feature", 0, 3), "feature must lie in 0..2"),
        (set_entry("feature", 0, -1), "feature must lie in 0..2"),
        (set_entry("threshold", 0, np.nan), "threshold must not contain NaN"),
        (set_entry("threshold", 0, -np.inf), "minus infinity"),
        (set_entry("sums", 0, np.nan), "sums must not contain NaN"),
        (set_entry("weights", 0, 0.0), "weights must be above zero"),
        (set_entry("sizes", 0, 4), "one more leaf than splits"),
        (set_entry("sizes", 0, 2**31 - 1), "left must be int32 of shape"),
        (lambda header, arrays: header["policy"]["settings"].update(n_actions=2), "sums must be float64 of shape"),
        (lambda header, arrays: header["policy"]["settings"].update(n_features=2), "feature must lie in|shape 2"),
        (lambda header, arrays: header["policy"]["settings"].update(more=2), "'more' is unknown"),
        (lambda header, arrays: header["policy"]["arrays"].remove("left"), "is not part of the policy"),
        (lambda header, arrays: arrays.pop("left"), "the array left is missing"),
    ],
)
def test_no_tree_but_a_tree_comes_to_the_kernels(change, reason):
    with pytest.raises(InvalidInputError, match=reason):
        load_policy(rewritten("tree", change))


def combine_too_many(header, arrays):
    arrays["combined"], arrays["coefficients"] = np.zeros((2**15, 3), dtype=np.int64), np.zeros((2**15, 3))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_entry("combined", (0, 1), 3), "combined must lie in 0..2"),
        (set_entry("combined", (0, 1), -1), "combined must lie in 0..2"),
        (set_entry("coefficients", (0, 1), np.nan), "coefficients must"),
        (set_entry("coefficients", (0, 1), np.inf), "coefficients must"),
        (set_entry("feature", 0, 7), "feature must lie in 0..6"),
        (combine_too_many, "at most 32767 columns and combinations; there are 3 and 32768"),
        (
            lambda header, arrays: arrays.update(combined=arrays["combined"][:2]),
            "coefficients must be float64 of shape",
        ),
        (lambda header, arrays: arrays.update(combined=arrays["combined"][:, :2]), "combined must be int64 of shape"),
        (lambda header, arrays: arrays.pop("coefficients"), "the array coefficients is missing"),
        (lambda header, arrays: header["policy"]["arrays"].remove("combined"), "is not part of the policy"),
    ],
)
def test_combinations_of_a_forest_are_checked(change, reason):
    with pytest.raises(InvalidInputError, match=reason):
        load_policy(rewritten("forest-combined", change))


def test_words_that_do_not_fit_the_policy_are_refused():
    other = described(Constant(0, 2), capi.data.schema.Schema.of(3, 2), TRAINING)
    words = read_archive_of(other)["policy"]["settings"]["schema"]
    with pytest.raises(InvalidInputError, match="2 labels for 3 actions"):
        load_policy(rewritten("tree", lambda header, arrays: header["policy"]["settings"].update(schema=words)))


def read_archive_of(policy):
    place = scratch(b"")
    save_policy(policy, place)
    return read_archive(place)[0]


def test_arrays_are_matched_and_never_evaluated():
    def with_header(text):
        header = text.encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(48)

    for text in (
        "{'descr': '|O', 'fortran_order': False, 'shape': (6,), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (6,), 'x': print(1), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (7,), }\n",
        "{'descr': '>f8', 'fortran_order': False, 'shape': (6,), }\n",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-6,), }\n",
    ):
        members = [(n, with_header(text) if n.endswith("ranking.npy") else d) for n, d in members_of("threshold")]
        with pytest.raises(InvalidInputError, match=r"not an array in the format|does not have the size"):
            load_policy(scratch(zip_of(members)))


def test_arrays_keep_the_order_of_their_memory(tmp_path):
    for array in (
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.zeros(3, dtype=bool),
    ):
        write_archive(tmp_path / "a.zip", {}, {"x": array})
        found = read_archive(tmp_path / "a.zip")[1]["x"]
        np.testing.assert_array_equal(found, array)
        assert (found.strides, found.dtype) == (array.strides, array.dtype)


def test_large_trees_of_one_feature_act_after_loading(tmp_path):
    states, values = sample(seed=4)
    policy = Trees(max_depth=None, min_samples_leaf=1).improve(states[:, :1], values)
    policy.save(tmp_path / "policy.capi")
    asked = questions(1, missing=True, n=1000)
    np.testing.assert_array_equal(load_policy(tmp_path / "policy.capi").act(asked), policy.act(asked))


def test_tables_of_states_stay_integers(tmp_path):
    save_policy(Tabular(np.array([1, 0], dtype=np.int32), 2), tmp_path / "a.capi")
    np.testing.assert_array_equal(load_policy(tmp_path / "a.capi").act([[0], [1]]), [1, 0])
