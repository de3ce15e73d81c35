"""Policies under rules, with the rules as stated and as compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi.errors import InvalidInputError
from capi.files import codecs
from capi.files.packing import Contents, Kind, Packed, from_json_number, json_number, json_value
from capi.policy_spaces.constrained import ConstrainedPolicy, _Compiled, _Limit, _Shifted
from capi.policy_spaces.rules import Box, Budget, Cap, Costs, Forbidden, Monotone, Never, Only, Rule

RULES: dict[str, Any] = {kind.__name__: kind for kind in (Never, Only, Monotone, Budget, Cap, Costs)}


def _pack(policy: ConstrainedPolicy) -> Packed:
    rules, compiled = list(policy.kept_rules), policy.compiled
    settings = {
        "n_actions": int(policy.n_actions),
        "n_features": int(policy.n_features),
        "rules": [_rule_json(rule) for rule in rules],
        "forbidden": [
            {"rule": rules.index(f.rule), "actions": list(map(int, f.actions)), **_box_json(f.box)}
            for f in compiled.forbidden
        ],
        "monotone": {str(j): int(direction) for j, direction in compiled.monotone.items()},
        "limits": [{"rule": rules.index(limit.rule), "at_most": float(limit.at_most)} for limit in compiled.limits],
    }
    limit_costs = np.array([limit.costs for limit in compiled.limits]).reshape(len(compiled.limits), policy.n_actions)
    arrays = {"costs": compiled.costs, "limit_costs": limit_costs, "multipliers": policy.multipliers}
    return Packed("constrained", settings, arrays, {"policy": codecs.to_arrays(policy.policy)})


def _unpack(contents: Contents) -> ConstrainedPolicy:
    n_actions, d = contents.n_actions(), contents.n_features()
    policy = contents.part("policy", decides=True)
    if policy.n_actions != n_actions or getattr(policy, "n_features", d) != d:
        raise contents.refuse("its policy must have the same actions and features")
    rules = [_rule(contents, value) for value in _list(contents, "rules")]
    forbidden = tuple(_forbidden(contents, value, rules, n_actions, d) for value in _list(contents, "forbidden"))
    said = _list(contents, "limits")
    costs = contents.floats("limit_costs", (len(said), n_actions))
    limits = tuple(_limit(contents, value, rules, row) for value, row in zip(said, costs, strict=True))
    compiled = _Compiled(forbidden, _monotone(contents, d), contents.floats("costs", (n_actions,)), limits)
    multipliers = contents.floats("multipliers", (len(limits),))
    return ConstrainedPolicy(policy, tuple(rules), compiled, multipliers, d)


def _rule_json(rule: Rule) -> dict[str, Any]:
    said: dict[str, Any] = {"rule": type(rule).__name__}
    for name, value in vars(rule).items():
        plain: Any = list(map(list, value.items())) if name == "costs" else value
        said[name] = json_value(sorted(value, key=repr) if isinstance(value, set | frozenset) else plain, str(rule))
    return said


def _rule(contents: Contents, value: Any) -> Rule:
    try:
        said = dict(value)
        kind = RULES[said.pop("rule")]
        if "costs" in said:
            said["costs"] = dict(said["costs"])
        if "when" in said and not isinstance(said["when"], str | None):
            raise InvalidInputError("when must be text.")
        if not isinstance(said.get("if_missing", False), bool):
            raise InvalidInputError("if_missing must be true or false.")
        rule: Rule = kind(**said)
        str(rule)
    except (LookupError, TypeError, ValueError) as error:
        raise contents.refuse(f"a rule cannot be read ({error})") from error
    return rule


def _box_json(box: Box) -> dict[str, Any]:
    sides = {"low": box.low, "high": box.high}
    return {side: {str(j): json_number(bound) for j, bound in bounds.items()} for side, bounds in sides.items()}


def _forbidden(contents: Contents, value: Any, rules: list[Rule], n_actions: int, d: int) -> Forbidden:
    rule = _rule_of(contents, value, rules, {"rule", "actions", "low", "high"})
    actions = value["actions"]
    known = isinstance(actions, list) and all(type(a) is int and 0 <= a < n_actions for a in actions)
    if not known or not isinstance(rule, Never | Only):
        raise contents.refuse("each forbidden entry must list actions and refer to a rule")
    return Forbidden(rule, tuple(actions), Box(*(_bounds(contents, value[side], d) for side in ("low", "high"))))


def _bounds(contents: Contents, value: Any, d: int) -> dict[int, float]:
    bounds = {
        _feature(contents, key, d): from_json_number(b) for key, b in (value.items() if isinstance(value, dict) else ())
    }
    if not isinstance(value, dict) or None in bounds.values():
        raise contents.refuse("bounds must map features to numbers")
    return {j: bound for j, bound in bounds.items() if bound is not None}


def _monotone(contents: Contents, d: int) -> dict[int, int]:
    value = contents.value("monotone")
    if not isinstance(value, dict) or not all(type(v) is int and v in (1, -1) for v in value.values()):
        raise contents.refuse("monotone must map features to 1 or -1")
    return {_feature(contents, key, d): direction for key, direction in value.items()}


def _limit(contents: Contents, value: Any, rules: list[Rule], costs: Any) -> _Limit:
    rule, at_most = _rule_of(contents, value, rules, {"rule", "at_most"}), from_json_number(value["at_most"])
    if not isinstance(rule, Budget | Cap) or at_most is None:
        raise contents.refuse("a limit must be a number and refer to a rule")
    return _Limit(rule, costs, at_most)


def _rule_of(contents: Contents, value: Any, rules: list[Rule], keys: set[str]) -> Rule:
    number = value.get("rule") if isinstance(value, dict) and set(value) == keys else None
    if type(number) is not int or not 0 <= number < len(rules):
        raise contents.refuse("each compiled rule must refer to one of the rules")
    return rules[number]


def _feature(contents: Contents, key: str, d: int) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < d and key == str(int(key))):
        raise contents.refuse(f"{key[:20]!r} is not the index of a feature")
    return int(key)


def _list(contents: Contents, name: str) -> list[Any]:
    value = contents.value(name)
    if not isinstance(value, list):
        raise contents.refuse(f"{name} must be a list")
    return value


def _pack_priced(q: _Shifted) -> Packed:
    return Packed("priced values", arrays={"prices": q.prices}, parts={"q": codecs.to_arrays(q.q)})


def _unpack_priced(contents: Contents) -> _Shifted:
    q = contents.part("q")
    return _Shifted(q, contents.floats("prices", (q.n_actions,)))


KINDS = {
    "constrained": Kind(_pack, _unpack),
    "priced values": Kind(_pack_priced, _unpack_priced, decides=False),
}
