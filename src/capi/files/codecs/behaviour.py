"""Models of what was done, and the policies that stay near it."""

from __future__ import annotations

import numpy as np

from capi.files import codecs
from capi.files.codecs.trees import (
    pack_forest,
    packed_projections,
    unpack_forest,
    unpack_projections,
)
from capi.files.packing import Contents, Kind, Packed
from capi.policies.behaviour import ClonedBehaviour
from capi.policy_spaces.reweighted import ReweightedPolicy
from capi.policy_spaces.supported import SupportedPolicy
from capi.trees.forest import Forest


def _pack_cloned(policy: ClonedBehaviour) -> Packed:
    packed = pack_forest(policy.forest.trees)
    packed.kind = "cloned behaviour"
    packed.settings = {
        "n_actions": int(policy.n_actions),
        "n_features": int(policy.n_features),
        "sharpness": float(policy.sharpness),
    }
    packed.arrays |= packed_projections(policy.forest)
    return packed


def _unpack_cloned(contents: Contents) -> ClonedBehaviour:
    n_actions, n_features = contents.n_actions(), contents.n_features()
    combined = unpack_projections(contents, n_features)
    trees = unpack_forest(contents, n_features + (0 if combined is None else len(combined)), n_actions)
    for tree in trees:
        with np.errstate(all="ignore"):
            shares = tree.means
        if not (np.isfinite(shares).all() and (shares >= 0).all() and (shares.sum(axis=1) > 0).all()):
            raise contents.refuse("the actions in a leaf must have frequencies")
    sharpness = contents.number("sharpness", 1.0) if contents.has_setting("sharpness") else 1.0  # older files have none
    return ClonedBehaviour(n_actions, n_features, Forest(trees, combined), sharpness)


def _pack_supported(policy: SupportedPolicy) -> Packed:
    parts = {"policy": codecs.to_arrays(policy.policy), "behaviour": codecs.to_arrays(policy.behaviour)}
    settings = {"threshold": float(policy.threshold), "masked": bool(policy.masked)}
    return Packed("supported", settings, parts=parts)


def _unpack_supported(contents: Contents) -> SupportedPolicy:
    policy, behaviour = (contents.part(name, decides=True) for name in ("policy", "behaviour"))
    features = {getattr(part, "n_features", None) for part in (policy, behaviour)} - {None}
    if policy.n_actions != behaviour.n_actions or len(features) > 1:
        raise contents.refuse("its policy and its model of the log must have the same actions and features")
    return SupportedPolicy(policy, behaviour, contents.number("threshold", 0.0, 1.0), contents.flag("masked"))


def _pack_reweighted(policy: ReweightedPolicy) -> Packed:
    settings = {
        "temperature": float(policy.temperature),
        "masked": bool(policy.masked),
        "excluded": list(map(int, policy.excluded)),
    }
    parts = {"q": codecs.to_arrays(policy.q), "behaviour": codecs.to_arrays(policy.behaviour)}
    return Packed("reweighted", settings, parts=parts)


def _unpack_reweighted(contents: Contents) -> ReweightedPolicy:
    q, behaviour = contents.part("q"), contents.part("behaviour", decides=True)
    if q.n_actions != behaviour.n_actions:
        raise contents.refuse("its values and its model of the log must have the same actions")
    temperature = contents.number("temperature", 0.0)
    if temperature == 0:
        raise contents.refuse("temperature must be positive")
    excluded = contents.value("excluded")
    if not isinstance(excluded, list) or not all(type(a) is int and 0 <= a < q.n_actions for a in excluded):
        raise contents.refuse("excluded must be a list of actions")
    if len(set(excluded)) >= q.n_actions:
        raise contents.refuse("some action must not be excluded")
    return ReweightedPolicy(q, behaviour, temperature, contents.flag("masked"), tuple(excluded))


KINDS = {
    "cloned behaviour": Kind(_pack_cloned, _unpack_cloned),
    "supported": Kind(_pack_supported, _unpack_supported),
    "reweighted": Kind(_pack_reweighted, _unpack_reweighted),
}
