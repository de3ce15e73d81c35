"""Parts shared by policies and action values: units, kernels, dictionaries and features of states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import comb
from typing import Any, TypeAlias

import numpy as np
from sklearn.preprocessing import PolynomialFeatures

from capi._utils.state_rows import StateRows
from capi.errors import InvalidInputError
from capi.features.bases import Fourier, OneHot, Polynomial, RadialCentres, RadialGrid, Tiles
from capi.features.dictionary import KernelDictionary
from capi.features.kernels import Gaussian, Kernel, LinearKernel
from capi.features.scaling import Scaling
from capi.features.tables import FittedFeatures
from capi.files.packing import Contents, Packed, json_value
from capi.policy_spaces.linear.kernel import DictionaryAndConstant
from capi.policy_spaces.linear.linear import StatesAndConstant

RADIAL = {"RadialGrid": RadialGrid, "RadialCentres": RadialCentres}
SCALED = {"Polynomial": Polynomial, "Fourier": Fourier, "Tiles": Tiles, **RADIAL}
Radial: TypeAlias = RadialGrid | RadialCentres


def no_code(what: Any) -> InvalidInputError:
    """Return the error that says why an object of another library cannot be saved."""
    return InvalidInputError(
        f"{what!r} cannot be saved in a file: it is not a kind of this library, and files hold no code."
    )


def pack_scaling(packed: Packed, scaling: Scaling) -> None:
    """Add the units of states."""
    packed.arrays |= {"origin": scaling.origin, "unit": scaling.unit}
    packed.holds_states |= scaling.extremes


def unpack_scaling(contents: Contents, n_features: int) -> Scaling:
    """Return the units of states."""
    return Scaling(contents.floats("origin", (n_features,)), contents.positive("unit", (n_features,)))


def scale_json(scale: Any) -> Any:
    """Return how units were learned: a name, a box or None."""
    return scale if scale is None or isinstance(scale, str) else np.asarray(scale, dtype=np.float64).tolist()


def unpack_scale(contents: Contents, n_features: int) -> Any:
    """Return how units were learned; this is only for information."""
    scale = contents.value("scale")
    if scale in (None, "range", "deviation"):
        return scale
    try:
        box = np.array(scale, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        box = np.zeros(0)
    if box.shape != (2, n_features) or not (np.isfinite(box).all() and (box[0] < box[1]).all()):
        raise contents.refuse("scale must be range, deviation, a box or null")
    return box


def kernel_json(kernel: Kernel) -> dict[str, Any]:
    """Return a kernel of this library as JSON."""
    if type(kernel) is Gaussian:
        return {"kernel": "Gaussian", "bandwidth": float(kernel.bandwidth)}
    if type(kernel) is LinearKernel:
        return {"kernel": "Linear"}
    raise no_code(kernel)


def unpack_kernel(contents: Contents) -> Kernel:
    """Return the kernel."""
    if contents.choice("kernel", ("Gaussian", "Linear")) == "Linear":
        return LinearKernel()
    return Gaussian(contents.number("bandwidth"))


def pack_dictionary(packed: Packed, dictionary: KernelDictionary) -> None:
    """Add a dictionary of states."""
    packed.settings |= {
        **kernel_json(dictionary.kernel),
        "threshold": float(dictionary.threshold),
        "max_size": None if dictionary.max_size is None else int(dictionary.max_size),
        "scale": scale_json(dictionary.scale),
        "saturated": bool(dictionary.saturated_),
    }
    packed.arrays |= {"centres": dictionary.centres_, "factor": dictionary.factor_, "rows": dictionary.rows_}
    packed.holds_states = True
    pack_scaling(packed, dictionary.scaling_)


def unpack_dictionary(contents: Contents, n_features: int) -> KernelDictionary:
    """Return the dictionary, as if it had been fitted."""
    kernel, centres = unpack_kernel(contents), contents.floats("centres", (None, n_features))
    factor = contents.floats("factor", (len(centres), len(centres)))
    if not (np.diagonal(factor) > 0).all():
        raise contents.refuse("the diagonal of factor must be positive")
    size = contents.integer_or_none("max_size", 1, 2**62)
    threshold, scale = contents.number("threshold", 0.0), unpack_scale(contents, n_features)
    dictionary = KernelDictionary(kernel, threshold=threshold, max_size=size, scale=scale)
    dictionary.centres_, dictionary.factor_ = centres, factor
    dictionary.rows_ = contents.integers("rows", (len(centres),), 0, 2**62)
    dictionary.scaling_, dictionary.saturated_ = unpack_scaling(contents, n_features), contents.flag("saturated")
    dictionary.n_features_in_ = n_features
    return dictionary


def pack_features(packed: Packed, features: FittedFeatures) -> None:
    """Add features of states: the states themselves, or a transformer of this library."""
    packed.settings |= {"n_features": int(features.n_features), "n_columns": int(features.n_columns)}
    transform = features.transform
    if isinstance(transform, StatesAndConstant):
        packed.settings["features"] = "states"
        pack_scaling(packed, transform.scaling)
    elif isinstance(transform, DictionaryAndConstant):
        packed.settings["features"] = "dictionary and constant"
        pack_dictionary(packed, transform.dictionary)
    elif getattr(transform, "__name__", "") == "transform":
        _pack_transformer(packed, getattr(transform, "__self__", None))
    else:
        raise no_code(transform)


def _pack_transformer(packed: Packed, transformer: Any) -> None:
    name = type(transformer).__name__
    if type(transformer) not in (OneHot, KernelDictionary, *SCALED.values()):
        raise no_code(transformer)
    packed.settings["features"] = name
    if isinstance(transformer, KernelDictionary):
        pack_dictionary(packed, transformer)
        return
    if isinstance(transformer, OneHot):
        packed.settings["n_values"] = None if transformer.n_values is None else int(transformer.n_values)
        packed.arrays["values"] = transformer.values_
        packed.holds_states = transformer.n_values is None
        return
    packed.settings["scale"] = scale_json(transformer.scale)
    pack_scaling(packed, transformer.scaling_)
    packed.holds_states |= isinstance(transformer.scale, str) and transformer.scale == "range"  # of loaded ones, too
    if name in RADIAL:
        packed.settings |= kernel_json(transformer.kernel_)
        packed.arrays["centres"] = transformer.centres_
        packed.holds_states |= isinstance(transformer, RadialCentres)  # a cluster can be a single state
    names = sorted(set(transformer.get_params()) - {"scale"})
    packed.settings["params"] = {key: json_value(getattr(transformer, key), key) for key in names}


def unpack_features(contents: Contents, n_columns: int) -> FittedFeatures:
    """Return ``n_columns`` fitted features; their number is checked before they are created."""
    d, p = contents.n_features(), contents.integer("n_columns", n_columns, n_columns)
    names = ("states", "dictionary and constant", "OneHot", "KernelDictionary", *SCALED)
    name = contents.choice("features", names)
    if name == "states":
        _check_count(contents, d + 1, p)
        transform: Any = StatesAndConstant(unpack_scaling(contents, d))
    elif name == "dictionary and constant":
        transform = DictionaryAndConstant(unpack_dictionary(contents, d))
        _check_count(contents, len(transform.dictionary.centres_) + 1, p)
    else:
        transform = _UNPACK[name](contents, d, p).transform
    return FittedFeatures(transform, d, p, name in ("OneHot", "Tiles"))


def source_of(features: FittedFeatures) -> Any:
    """Return the transformer of features from a file, which holds their settings, or None if there is none."""
    return getattr(features.transform, "__self__", None)


def _unpack_one_hot(contents: Contents, d: int, p: int) -> OneHot:
    values, n_values = contents.floats("values", (p, d)), contents.integer_or_none("n_values", 1, 2**62)
    if n_values is not None and (n_values != p or d != 1):
        raise contents.refuse("n_values must be the number of values of a single column")
    transformer = OneHot(n_values)
    transformer.values_ = values
    return transformer


def _unpack_own_dictionary(contents: Contents, d: int, p: int) -> KernelDictionary:
    dictionary = unpack_dictionary(contents, d)
    _check_count(contents, len(dictionary.centres_), p)
    return dictionary


def _unpack_polynomial(contents: Contents, d: int, p: int) -> Polynomial:
    (degree,) = _params(contents, degree=(1, 2**10))
    _check_count(contents, comb(d + degree, degree), p)
    transformer = Polynomial(degree, unpack_scale(contents, d))
    transformer.scaling_ = unpack_scaling(contents, d)
    transformer.powers_ = PolynomialFeatures(degree).fit(np.zeros((1, d)))
    return transformer


def _unpack_fourier(contents: Contents, d: int, p: int) -> Fourier:
    (order,) = _params(contents, order=(0, 2**20))
    _check_count(contents, _power(order + 1, d), p)
    return _refitted(Fourier(order, unpack_scale(contents, d)), contents, d)


def _unpack_tiles(contents: Contents, d: int, p: int) -> Tiles:
    tiles, tilings = _params(contents, n_tiles=(1, 2**20), n_tilings=(1, 2**20))
    _check_count(contents, tilings * _power(tiles + 1, d), p)
    return _refitted(Tiles(tilings, tiles, unpack_scale(contents, d)), contents, d)


def _params(contents: Contents, **limits: tuple[int, int]) -> list[int]:
    """Return the parameters of a transformer that are integers between limits."""
    params = contents.value("params")
    if not isinstance(params, dict) or set(params) != set(limits):
        raise contents.refuse(f"params must be {', '.join(limits)}")
    for name, (low, high) in limits.items():
        if type(params[name]) is not int or not low <= params[name] <= high:
            raise contents.refuse(f"{name} must be an integer from {low} to {high}")
    return [params[name] for name in limits]


def _unpack_radial(contents: Contents, d: int, p: int, kind: type[Radial]) -> Radial:
    params, scale = contents.value("params"), unpack_scale(contents, d)
    try:
        transformer = kind(**params, scale=scale)
    except TypeError as error:
        raise contents.refuse("params must be those of radial features") from error
    transformer.centres_, transformer.kernel_ = contents.floats("centres", (p - 1, d)), _gaussian(contents)
    transformer.scaling_ = unpack_scaling(contents, d)
    return transformer


def _gaussian(contents: Contents) -> Gaussian:
    kernel = unpack_kernel(contents)
    if not isinstance(kernel, Gaussian):
        raise contents.refuse("the kernel must be a Gaussian")
    return kernel


def _refitted(transformer: Any, contents: Contents, d: int) -> Any:
    """Return a transformer whose tables follow from its settings and the number of columns, in the saved units."""
    scale, transformer.scale = transformer.scale, None
    transformer.fit(np.zeros((1, d)))
    transformer.scale, transformer.scaling_ = scale, unpack_scaling(contents, d)
    return transformer


def _power(base: int, d: int) -> int:
    """Return ``base ** d``, or a number that is too large for any file."""
    return base**d if base == 1 or d <= 64 else 2**64


def _check_count(contents: Contents, count: int, p: int) -> None:
    if count != p:
        raise contents.refuse(f"there must be {count} features; there are {p}")


_UNPACK: dict[str, Callable[[Contents, int, int], Any]] = {
    "OneHot": _unpack_one_hot,
    "KernelDictionary": _unpack_own_dictionary,
    "Polynomial": _unpack_polynomial,
    "Fourier": _unpack_fourier,
    "Tiles": _unpack_tiles,
    "RadialGrid": partial(_unpack_radial, kind=RadialGrid),
    "RadialCentres": partial(_unpack_radial, kind=RadialCentres),
}


def pack_state_rows(packed: Packed, rows: StateRows | None) -> None:
    """Add the features of a model's states, if they have any."""
    if rows is not None:
        packed.arrays["features"] = rows.features


def unpack_state_rows(contents: Contents, n_states: int) -> StateRows | None:
    """Return the features of a model's states, or None."""
    if not contents.has_array("features"):
        return None
    try:
        return StateRows(contents.floats("features", (n_states, None)))
    except InvalidInputError as error:
        raise contents.refuse(str(error).rstrip(".")) from error
