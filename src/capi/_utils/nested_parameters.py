"""Parameters of the parts of a learner, by names such as ``evaluator__n_trees``, as scikit-learn writes them.

A part is an estimator (anything with ``get_params`` and ``set_params``) or frozen settings (a frozen dataclass). No part is
changed in place: parts may be shared between learners, so a change makes a new part.

>>> from capi.evaluators import Rollouts
>>> from capi.domains import ChainWalk
>>> part = Rollouts(ChainWalk(), n_rollouts=5)
>>> changed({"evaluator": part}, {"evaluator__n_rollouts": 9}, "CAPI")["evaluator"].n_rollouts
9
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any

from capi._utils.suggestions import did_you_mean
from capi.errors import InvalidInputError

SEPARATOR = "__"
RESULTS = ("act", "values")  # the verbs of policies, action values and models: those are data, not settings


def parameters_of(part: Any) -> dict[str, Any]:
    """Return the parameters of a part by name; estimators may list those of their own parts, too."""
    if isinstance(part, type):
        return {}
    if _is_estimator(part):
        return dict(part.get_params(deep=True))
    if not _is_settings(part):
        return {}
    return {field.name: getattr(part, field.name) for field in fields(part) if field.init and field.repr}


def with_nested(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``parameters``, each followed by those of the part that it is."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        found[name] = value
        for inner, inner_value in with_nested(parameters_of(value)).items():
            found.setdefault(f"{name}{SEPARATOR}{inner}", inner_value)
    return found


def changed(parameters: Mapping[str, Any], changes: Mapping[str, Any], owner: str, path: str = "") -> dict[str, Any]:
    """Return the new values of those ``parameters`` of ``owner`` that ``changes`` affect.

    Parameters
    ----------
    parameters : mapping
        The present values by name.
    changes : mapping
        New values by name, nested names among them.
    owner : str
        Whose parameters they are, for errors.
    path : str
        What precedes the names where the user wrote them, for errors.
    """
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        head = _head(name, parameters)
        if head is None:
            raise InvalidInputError(_unknown(name, parameters, owner, path))
        if head == name:
            direct[name] = value
        else:
            nested.setdefault(head, {})[name[len(head) + len(SEPARATOR) :]] = value
    for head, inner in nested.items():  # after the direct ones: a new part may come with changes of its own
        direct[head] = _with_changes(direct.get(head, parameters[head]), inner, f"{path}{head}{SEPARATOR}")
    return direct


def _with_changes(part: Any, changes: Mapping[str, Any], path: str) -> Any:
    """Return a new part like ``part`` with ``changes``."""
    values = changed(parameters_of(part), changes, type(part).__name__, path)
    if _is_estimator(part):
        return deepcopy(part).set_params(**values)
    return replace(part, **values)


def _head(name: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the longest parameter that is ``name`` or whose part ``name`` points into."""
    fitting = [known for known in parameters if name == known or name.startswith(f"{known}{SEPARATOR}")]
    return max(fitting, key=len, default=None)


def _unknown(name: str, parameters: Mapping[str, Any], owner: str, path: str) -> str:
    if not parameters:
        return f"{path}{name} cannot be set: {path.removesuffix(SEPARATOR)} is a {owner}, which has no parameters."
    choices = ", ".join(map(repr, parameters))
    found = repr(name) if not path else f"{name!r} (in {path}{name})"
    return f"a parameter of {owner} must be one of {choices}; got {found}.{did_you_mean(name, parameters)}"


def _is_estimator(part: Any) -> bool:
    return not isinstance(part, type) and hasattr(part, "get_params") and hasattr(part, "set_params")


def _is_settings(part: Any) -> bool:
    frozen: bool = is_dataclass(part) and getattr(part, "__dataclass_params__").frozen  # noqa: B009  not in its type
    return frozen and not any(hasattr(part, verb) for verb in RESULTS)
