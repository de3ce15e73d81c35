"""Policies that need no learning, composite policies, and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capi._utils.validation import Ints
from capi.files import codecs
from capi.files.codecs.parts import pack_state_rows, unpack_state_rows
from capi.files.packing import Contents, Kind, Packed
from capi.policies import Constant, EpsilonGreedy, Mixture, NonStationary, Tabular, Uniform
from capi.policy_spaces.thresholds import ThresholdPolicy
from capi.policy_spaces.unrestricted import GreedyPolicy
from capi.types import Policy


def _pack_constant(policy: Constant) -> Packed:
    return Packed("constant", {"action": int(policy.action), "n_actions": int(policy.n_actions)})


def _unpack_constant(contents: Contents) -> Constant:
    n_actions = contents.n_actions()
    return Constant(contents.integer("action", 0, n_actions - 1), n_actions)


def _pack_uniform(policy: Uniform) -> Packed:
    return Packed("uniform", {"n_actions": int(policy.n_actions)})


def _unpack_uniform(contents: Contents) -> Uniform:
    return Uniform(contents.n_actions())


def _pack_epsilon_greedy(policy: EpsilonGreedy) -> Packed:
    parts = {"policy": codecs.to_arrays(policy.policy)}
    return Packed("epsilon greedy", {"epsilon": float(policy.epsilon)}, parts=parts)


def _unpack_epsilon_greedy(contents: Contents) -> EpsilonGreedy:
    return EpsilonGreedy(contents.part("policy", decides=True), contents.number("epsilon", 0.0, 1.0))


def _pack_tabular(policy: Tabular) -> Packed:
    packed = Packed("tabular", {"n_actions": int(policy.n_actions)}, {"actions": policy.actions})
    pack_state_rows(packed, policy.features)
    return packed


def _unpack_tabular(contents: Contents) -> Tabular:
    n_actions = contents.n_actions()
    actions = contents.integers("actions", (None,), 0, n_actions - 1)
    return Tabular(actions, n_actions, unpack_state_rows(contents, len(actions)))


def _pack_mixture(policy: Mixture) -> Packed:
    settings = {"min_weight": float(policy.min_weight)}
    return Packed("mixture", settings, {"weights": policy.weights}, _numbered(policy.policies))


def _unpack_mixture(contents: Contents) -> Mixture:
    members = _members(contents)
    return Mixture(members, contents.floats("weights", (len(members),)), contents.number("min_weight", 0.0, 1.0))


def _pack_non_stationary(policy: NonStationary) -> Packed:
    then = {} if policy.then is None else {"then": codecs.to_arrays(policy.then)}
    return Packed("non-stationary", parts={**_numbered(policy.policies), **then})


def _unpack_non_stationary(contents: Contents) -> NonStationary:
    then = contents.part("then", decides=True) if "then" in contents.names() else None
    return NonStationary(_members(contents), then)


def _pack_greedy(policy: Any) -> Packed:
    return Packed("greedy", {"masked": bool(policy.masked)}, parts={"q": codecs.to_arrays(policy.q)})


def _unpack_greedy(contents: Contents) -> GreedyPolicy:
    return GreedyPolicy(contents.part("q"), masked=contents.flag("masked"))


def _pack_threshold(policy: ThresholdPolicy) -> Packed:
    names = ("feature", "n_actions", "n_features")
    settings: dict[str, Any] = {name: int(getattr(policy, name)) for name in names}
    settings["cut"] = None if policy.cut == np.inf else float(policy.cut)  # None: all states are on the low side
    return Packed("threshold", {**settings, "masked": bool(policy.masked)}, {"ranking": policy.ranking})


def _unpack_threshold(contents: Contents) -> ThresholdPolicy:
    n_actions, n_features = contents.n_actions(), contents.n_features()
    feature, cut = contents.integer("feature", 0, n_features - 1), contents.number_or_none("cut")
    ranking = unpack_ranking(contents, "ranking", (2, n_actions))
    low, high = (int(a) for a in ranking[:, 0])
    cut = np.inf if cut is None else cut
    return ThresholdPolicy(feature, cut, low, high, n_actions, n_features, ranking, contents.flag("masked"))


def unpack_ranking(contents: Contents, name: str, shape: tuple[int, int]) -> Ints:
    """Return rankings: each row has every action exactly once."""
    ranking = contents.integers(name, shape, 0, shape[1] - 1)
    if not (np.sort(ranking, axis=1) == np.arange(shape[1])).all():
        raise contents.refuse(f"{name} must have every action exactly once in each row")
    return ranking


def _numbered(policies: Sequence[Policy]) -> dict[str, Packed]:
    return {f"policy{i}": codecs.to_arrays(policy) for i, policy in enumerate(policies)}


def _members(contents: Contents) -> list[Policy]:
    return [contents.part(f"policy{i}", decides=True) for i in range(len(contents.names()))]


KINDS = {
    "constant": Kind(_pack_constant, _unpack_constant),
    "uniform": Kind(_pack_uniform, _unpack_uniform),
    "epsilon greedy": Kind(_pack_epsilon_greedy, _unpack_epsilon_greedy),
    "tabular": Kind(_pack_tabular, _unpack_tabular),
    "mixture": Kind(_pack_mixture, _unpack_mixture),
    "non-stationary": Kind(_pack_non_stationary, _unpack_non_stationary),
    "greedy": Kind(_pack_greedy, _unpack_greedy),
    "threshold": Kind(_pack_threshold, _unpack_threshold),
}
