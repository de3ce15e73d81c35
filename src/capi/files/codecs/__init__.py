"""Registry of the kinds of objects that files can hold, and of those that they cannot, with the reason.

`to_arrays` splits a policy or action values into settings and arrays; `from_arrays` restores them bit for bit. The kinds are in
modules that are imported when one of their kinds is needed.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from capi.errors import InvalidInputError
from capi.files.metadata import schema_from_json, schema_to_json, training_from_json, training_to_json
from capi.files.packing import MOST_ACTIONS, Contents, Kind, Packed
from capi.policies import Described

MODULES = {  # the kinds of each module
    "simple": ("constant", "uniform", "epsilon greedy", "tabular", "mixture", "non-stationary", "greedy", "threshold"),
    "constrained": ("constrained", "priced values"),
    "behaviour": ("cloned behaviour", "supported", "reweighted"),
    "trees": ("tree", "optimal tree", "forest", "fitted values"),
    "linear": ("linear", "kernel", "linear values"),
    "neighbors": ("neighbors", "local averages"),
    "q_functions": ("tabular values", "kernel values", "kernel span values"),
    "lower_bounds": ("lower bounds",),
}
CLASSES = {  # by module and name, so that recognising them needs no imports
    "capi.policies.simple.Constant": "constant",
    "capi.policies.simple.Uniform": "uniform",
    "capi.policies.composite.EpsilonGreedy": "epsilon greedy",
    "capi.policies.simple.Tabular": "tabular",
    "capi.policies.composite.Mixture": "mixture",
    "capi.policies.composite.NonStationary": "non-stationary",
    "capi.policies.simple.Greedy": "greedy",
    "capi.policy_spaces.unrestricted.GreedyPolicy": "greedy",
    "capi.policy_spaces.thresholds.ThresholdPolicy": "threshold",
    "capi.policy_spaces.constrained.ConstrainedPolicy": "constrained",
    "capi.policy_spaces.constrained._Shifted": "priced values",
    "capi.policies.behaviour.ClonedBehaviour": "cloned behaviour",
    "capi.policy_spaces.supported.SupportedPolicy": "supported",
    "capi.policy_spaces.reweighted.ReweightedPolicy": "reweighted",
    "capi.policy_spaces.trees.greedy.TreePolicy": "tree",
    "capi.policy_spaces.trees.optimal.OptimalTreePolicy": "optimal tree",
    "capi.policy_spaces.trees.forests.ForestPolicy": "forest",
    "capi.evaluators.fitted_values.FittedValues": "fitted values",
    "capi.evaluators.pessimistic.PessimisticValues": "lower bounds",
    "capi.policy_spaces.linear.linear.LinearPolicy": "linear",
    "capi.policy_spaces.linear.kernel.KernelPolicy": "kernel",
    "capi.evaluators._linear_model.LinearValues": "linear values",
    "capi.policy_spaces.neighbors.neighbors.NeighborsPolicy": "neighbors",
    "capi.policy_spaces.neighbors.local_averages.LocalAveragesPolicy": "local averages",
    "capi.finite.mdp.TabularQ": "tabular values",
    "capi.evaluators.kernel_fitted_q.KernelValues": "kernel values",
    "capi.evaluators._rkhs.KernelSpanValues": "kernel span values",
}
REASONS = {
    "capi.policies.behaviour.ClassifiedBehaviour": "its classifier is an object of another library, and files hold no code",
    "capi.policy_spaces.partition.PartitionPolicy": "its cell_of is a function, and files hold no code",
    "capi.policy_spaces.classifier.ClassifierPolicy": "its classifier is an object of another library, and files hold no code",
    "capi.evaluators.boosted_q.BoostedValues": "its trees are objects of another library, and files hold no code",
    "capi.evaluators.rollouts.RolloutValues": "its values come from a simulator, and files hold no code",
}
_HOME = {kind: module for module, kinds in MODULES.items() for kind in kinds}


def to_arrays(thing: Any) -> Packed:
    """Return a policy or action values as settings and arrays, or raise an error that says why that is impossible."""
    name = f"{type(thing).__module__}.{type(thing).__qualname__}"
    if name not in CLASSES:
        reason = REASONS.get(name, "files hold only kinds of this library, and no code")
        raise InvalidInputError(
            f"{type(thing).__name__} cannot be saved in a file: {reason}. "
            "To save its decisions, learn or imitate it with another space, such as Trees."
        )
    packed = _kind(CLASSES[name]).pack(thing)
    if thing.n_actions > MOST_ACTIONS:
        raise InvalidInputError(f"policies in files must have at most {MOST_ACTIONS} actions; got {thing.n_actions}.")
    if isinstance(thing, Described):
        packed.settings["schema"] = schema_to_json(thing.schema)
        packed.settings["training"] = training_to_json(thing.training)
    return packed


def withhold(packed: Packed) -> None:
    """Take out of a packed policy what files that travel do not give, and checkpoints do."""
    for part in packed.with_parts():
        take_out = _kind(part.kind).withhold
        if take_out is not None:
            take_out(part)


def from_arrays(packed: Packed, decides: bool = True) -> Any:
    """Return the object that `to_arrays` packed: a policy, or action values if it need not decide. Everything is checked."""
    if packed.kind not in _HOME:
        raise InvalidInputError(f"it contains the kind {packed.kind[:50]!r}, which this version of capi does not know.")
    kind, contents = _kind(packed.kind), Contents(packed, from_arrays)
    if kind.decides != decides:
        raise contents.refuse("this is not a policy" if decides else "this has no action values")
    thing: Any = kind.unpack(contents)
    if isinstance(thing, Described):
        thing = _described(thing, contents)
    contents.close()
    return thing


def _described(thing: Any, contents: Contents) -> Any:
    """Return a policy with its schema and its training summary."""
    schema, training = schema_from_json(contents.value("schema")), training_from_json(contents.value("training"))
    if schema is not None and len(schema.action_labels) != thing.n_actions:
        raise contents.refuse(f"there are {len(schema.action_labels)} labels for {thing.n_actions} actions")
    n_features = getattr(thing, "n_features", None)
    if schema is not None and n_features not in (None, len(schema.feature_names)):
        raise contents.refuse(f"there are {len(schema.feature_names)} names for {n_features} features")
    return replace(thing, schema=schema, training=training)


def _kind(kind: str) -> Kind:
    kinds: dict[str, Kind] = import_module(f"capi.files.codecs.{_HOME[kind]}").KINDS
    return kinds[kind]
