"""Policies and action values that are linear in features."""

from __future__ import annotations

from typing import Any

from capi._utils.validation import Floats
from capi.evaluators._linear_model import LinearValues
from capi.features.tables import FittedFeatures
from capi.files.codecs.parts import pack_features, source_of, unpack_features
from capi.files.packing import Contents, Kind, Packed
from capi.policy_spaces.linear.kernel import DictionaryAndConstant, KernelPolicy
from capi.policy_spaces.linear.linear import LinearPolicy


def _pack(kind: str, thing: Any) -> Packed:
    packed = Packed(kind, {"n_actions": len(thing.weights)}, {"coefficients": thing.weights})
    pack_features(packed, thing.features)
    return packed


def _unpack(contents: Contents) -> tuple[Floats, FittedFeatures, Any]:
    n_actions = contents.n_actions()
    weights = contents.floats("coefficients", (n_actions, None))
    features = unpack_features(contents, weights.shape[1])
    return weights, features, source_of(features)


def _pack_linear(policy: LinearPolicy) -> Packed:
    packed = _pack("linear", policy)
    packed.settings["masked"] = bool(policy.masked)
    return packed


def _unpack_linear(contents: Contents) -> LinearPolicy:
    return LinearPolicy(*_unpack(contents), masked=contents.flag("masked"))


def _pack_kernel(policy: KernelPolicy) -> Packed:
    packed = _pack_linear(policy)
    packed.kind = "kernel"
    return packed


def _unpack_kernel(contents: Contents) -> KernelPolicy:
    weights, features, _ = _unpack(contents)
    if not isinstance(features.transform, DictionaryAndConstant):
        raise contents.refuse("its features must be a dictionary and a constant")
    return KernelPolicy(weights, features, masked=contents.flag("masked"))


def _pack_values(q: LinearValues) -> Packed:
    return _pack("linear values", q)


def _unpack_values(contents: Contents) -> LinearValues:
    return LinearValues(*_unpack(contents))


KINDS = {
    "linear": Kind(_pack_linear, _unpack_linear),
    "kernel": Kind(_pack_kernel, _unpack_kernel),
    "linear values": Kind(_pack_values, _unpack_values, decides=False),
}
