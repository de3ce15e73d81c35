"""A fuzz net for policy files: any file opens or is refused, and a policy that opened decides or says why not, in our own words."""

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capi import load_policy, save_policy
from capi.errors import CapiError, InvalidInputError
from capi.files.archive import read_archive, write_archive
from files.all_kinds import masks, policies

STRANGE = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    7,
    2**15,
    2**31,
    10**30,
    0.5,
    -2.5,
    1e308,
    5e-324,
    "",
    "x",
    "inf",
    "nan",
    [],
    {},
    [[]],
    [None],
    {"p": None},
]
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 5e-324, 1e-160, 1e160]
TYPES = ["<f8", "<f4", "<i8", "<i4", "<i2", "|u1", "|b1"]  # fmt: skip


@cache
def original(name, folder):
    """Return the bytes, the header and the arrays of a kind's file."""
    place = folder / "original.capi"
    save_policy(policies()[name][0], place, with_states=True)
    return place.read_bytes(), *read_archive(place)


def plain_copy(value):
    if isinstance(value, dict):
        return {key: plain_copy(item) for key, item in value.items()}
    return [plain_copy(item) for item in value] if isinstance(value, list) else value


def change_header(header, data):
    """Replace or remove one entry of the policy's header, anywhere."""
    place = header["policy"]
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 4)):
            place = place[key]
            continue
        if isinstance(place, dict) and not data.draw(st.integers(0, 3)):
            del place[key]
        else:
            place[key] = plain_copy(data.draw(st.sampled_from(STRANGE)))
        return


def change_array(arrays, data):
    """Change the numbers, the shape or the type of one array, or all of its numbers at once."""
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    how = data.draw(st.sampled_from(["value", "value", "all", "shape", "type", "large", "gone"]))
    if how == "gone":
        del arrays[name]
    elif how == "type":
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            arrays[name] = array.astype(data.draw(st.sampled_from(TYPES)))
    elif how == "shape":
        shapes = [array[:-1], np.concatenate([array, array]), array[None], array.ravel(), array[:0], array.T.copy()]
        arrays[name] = shapes[data.draw(st.integers(0, len(shapes) - 1))]
    elif how == "large":
        arrays[name] = np.zeros((*array.shape[:-1], 3000), dtype=array.dtype)
    else:
        info = None if array.dtype.kind in "fb" else np.iinfo(array.dtype)
        values = NUMBERS if info is None else [0, 1, 2, -1, -2, 7, info.max, info.min]
        value = data.draw(st.sampled_from([0, 1] if array.dtype.kind == "b" else values))
        arrays[name] = array.copy()
        where = ... if how == "all" or not array.size else data.draw(st.integers(0, array.size - 1))
        with np.errstate(over="ignore"):  # an earlier change may have made it float32
            if where is ...:
                arrays[name][...] = value
            else:
                arrays[name].flat[where] = value


def change_bytes(content, data):
    """Flip bits, cut the file off, or add to it."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if not data.draw(st.integers(0, 4)):
        changed = changed[: data.draw(st.integers(0, len(changed)))]
    return bytes(changed) + data.draw(st.binary(max_size=8))


def changed_file(name, data, folder):
    content, header, arrays = original(name, folder)
    place = folder / "changed.capi"
    if not data.draw(st.integers(0, 3)):
        place.write_bytes(change_bytes(content, data))
        return place
    header, arrays = plain_copy(header), dict(arrays)
    for _ in range(data.draw(st.integers(1, 2))):
        if arrays and data.draw(st.booleans()):
            change_array(arrays, data)
        else:
            change_header(header, data)
    write_archive(place, header, arrays)
    return place


def check_file(data, folder):
    name = data.draw(st.sampled_from(sorted(policies())))
    place = changed_file(name, data, folder)
    try:
        policy = load_policy(place)
    except InvalidInputError as error:
        if str(place) not in str(error):
            raise AssertionError("the error must name the file") from error
        return
    states = policies()[name][1][:20]
    n_features = getattr(policy, "n_features", states.shape[1])
    states = np.resize(states, (20, n_features)) if n_features <= 100 else states
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of numbers that overflow
        try:
            actions = policy.act(states, masks(policy, states))
            if hasattr(policy, "rules"):
                assert isinstance(policy.rules(), str)
        except CapiError as error:
            if not str(error):
                raise AssertionError("an error must say something") from error
            return
    assert actions.shape == (20,) or len(states) < 20
    assert ((actions >= 0) & (actions < policy.n_actions)).all()


SAMPLE = settings(max_examples=80, derandomize=True, deadline=None, database=None)
FULL = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@SAMPLE
@given(st.data())
def test_some_files_open_or_are_refused(folder, data):
    check_file(data, folder)


@pytest.mark.slow
@FULL
@given(st.data())
def test_20000_files_open_or_are_refused(folder, data):
    check_file(data, folder)
