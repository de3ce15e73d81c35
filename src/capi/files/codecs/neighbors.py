"""Policies that decide by a sample of states, which the file holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi._utils.validation import Floats, is_real
from capi.errors import InvalidInputError
from capi.files.codecs.parts import (
    kernel_json,
    no_code,
    pack_scaling,
    scale_json,
    unpack_kernel,
    unpack_scale,
    unpack_scaling,
)
from capi.files.packing import Contents, Kind, Packed, from_json_number, json_number
from capi.policy_spaces.neighbors._sample import FARTHEST, Losses, NearbyPolicy, Origin, Sample
from capi.policy_spaces.neighbors._search import NearestRows, check_approximate, check_metric, nearest_rows
from capi.policy_spaces.neighbors.local_averages import LocalAverages, LocalAveragesPolicy
from capi.policy_spaces.neighbors.neighbors import Neighbors, NeighborsPolicy

LARGEST_ORDER = 100  # of Minkowski distances: higher powers overflow soon


def _pack(kind: str, policy: NearbyPolicy, sample: Sample) -> Packed:
    if policy.origin is None or not isinstance(policy.origin.settings, Neighbors | LocalAverages):
        raise InvalidInputError(
            f"{type(policy).__name__} cannot be saved in a file: it does not hold the states that it was learned from."
        )
    settings = {
        "n_actions": int(policy.n_actions),
        "n_features": int(sample.n_features),
        "masked": bool(policy.masked),
        "scale": scale_json(policy.origin.settings.scale),
    }
    arrays = {"states": policy.origin.counted_states(), "losses": policy.losses.table}
    packed = Packed(kind, settings, arrays, holds_states=True)
    pack_scaling(packed, sample.scaling)
    return packed


def _unpack(contents: Contents) -> tuple[Losses, Sample, Floats, Any]:
    """Return the losses of the rows, the sample, its states, and how units were learned."""
    n_actions, d, masked = contents.n_actions(), contents.n_features(), contents.flag("masked")
    states = contents.floats("states", (None, d))
    table = contents.positive("losses", (len(states), 2 * n_actions if masked else n_actions + 1), or_zero=True)
    if not table[:, n_actions:].any(axis=1).all():
        raise contents.refuse("every row must have a positive weight")
    scaling = unpack_scaling(contents, d)
    with np.errstate(over="ignore", invalid="ignore"):
        if not (np.abs(scaling(states)) <= FARTHEST).all():
            raise contents.refuse(f"states must lie within {FARTHEST:g} in their units")
    return Losses(table, n_actions, masked), Sample.in_units(states, scaling), states, unpack_scale(contents, d)


def _pack_neighbors(policy: NeighborsPolicy) -> Packed:
    packed = _pack("neighbors", policy, policy.nearest.sample)
    if not isinstance(policy.weighting, str):
        raise no_code(policy.weighting)
    space: Neighbors = policy.origin.settings  # type: ignore[union-attr]  # checked above
    packed.settings |= {
        "n_neighbors": int(policy.nearest.n_wanted),
        "weighting": policy.weighting,
        "metric": space.metric,
        "index": space.algorithm,
        "metric_params": {},
    }
    for name, value in (space.metric_params or {}).items():
        if is_real(value):
            packed.settings["metric_params"][name] = json_number(value)
        else:
            packed.arrays[f"metric_{name}"] = np.asarray(value, dtype=np.float64)
    return packed


def _unpack_neighbors(contents: Contents) -> NeighborsPolicy:
    losses, sample, states, scale = _unpack(contents)
    count = contents.integer("n_neighbors", 1, len(sample.rows))
    weighting = contents.choice("weighting", ("uniform", "distance"))
    metric, params = contents.value("metric"), contents.value("metric_params")
    check_metric(metric, "metric")
    if not isinstance(params, dict):
        raise contents.refuse("metric_params must be a record of numbers")
    params = {**_metric_numbers(contents, params), **_metric_arrays(contents)}
    algorithm = contents.choice("index", ("exact", "approximate"))
    nearest = _nearest(contents, sample, count, metric, params, algorithm)
    space = Neighbors(count, weighting, metric, params or None, scale, algorithm)
    return NeighborsPolicy(losses, Origin(states, None, space), None, nearest, weighting)


def _metric_numbers(contents: Contents, params: dict[str, Any]) -> dict[str, float]:
    numbers = {name: from_json_number(value) for name, value in params.items()}
    order = numbers.get("p", 2.0)
    if None in numbers.values() or order is None or not (1 <= order <= LARGEST_ORDER or order == np.inf):
        raise contents.refuse(
            f"the metric's parameters must be numbers, its order from 1 to {LARGEST_ORDER} or infinite"
        )
    return {name: number for name, number in numbers.items() if number is not None}


def _metric_arrays(contents: Contents) -> dict[str, Any]:
    own = {name: n for name, n in contents.dimensions().items() if name.startswith("metric_")}
    return {name.removeprefix("metric_"): contents.floats(name, (None,) * n) for name, n in own.items()}


def _nearest(
    contents: Contents, sample: Sample, count: int, metric: str, params: dict[str, Any], algorithm: str
) -> NearestRows:
    if algorithm == "approximate":
        check_approximate()
    try:
        nearest = nearest_rows(sample, count, metric, params, approximate=algorithm == "approximate")
        nearest.of(sample.points[:1])
    except InvalidInputError:
        raise
    except Exception as error:  # each of scikit-learn's metrics fails on different parameters
        raise contents.refuse(f"metric {metric!r} cannot be used: {error}") from error
    return nearest


def _pack_local_averages(policy: LocalAveragesPolicy) -> Packed:
    packed = _pack("local averages", policy, policy.sample)
    packed.settings |= kernel_json(policy.kernel)
    return packed


def _unpack_local_averages(contents: Contents) -> LocalAveragesPolicy:
    losses, sample, states, scale = _unpack(contents)
    kernel = unpack_kernel(contents)
    return LocalAveragesPolicy(losses, Origin(states, None, LocalAverages(kernel, scale)), None, sample, kernel)


KINDS = {
    "neighbors": Kind(_pack_neighbors, _unpack_neighbors),
    "local averages": Kind(_pack_local_averages, _unpack_local_averages),
}
