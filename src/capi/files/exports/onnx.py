"""Export of a policy as an ONNX model: the input is 32-bit states (n, d) with NaN for missing values, the output action indices (n,).

States are those of the library: features in the order of ``feature_names``, encoded as the schema says. Names and labels are in the
model's metadata. Where the policy refuses to decide, the model returns -1. Thresholds are rounded so that 32-bit numbers fall on the
same side of them as in the library.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import numpy as np

from capi._utils.late import onnx
from capi._utils.validation import Floats
from capi._utils.versions import __version__
from capi.errors import InvalidInputError
from capi.files.exports.flat_tree import FlatTree
from capi.files.exports.program import Program, Scores
from capi.files.metadata import schema_to_json
from capi.policy_spaces.rules import Forbidden
from capi.trees.projections import TERMS, Projections

OPSETS = {"": 17, "ai.onnx.ml": 3}
IR_VERSION = 8
BARRED = -1e9  # lower than any score


def onnx_model(program: Program, note: str = "") -> bytes:
    """Return the bytes of the model."""
    if find_spec("onnx") is None:
        raise InvalidInputError(
            "exports to ONNX need the package onnx; it is not installed. Run pip install capi[onnx]."
        )
    return _Model(program).bytes(note)


def at_most(x: float) -> float:
    """Return the largest 32-bit number that is at most ``x``."""
    with np.errstate(over="ignore"):
        near = np.float32(x)
    return float(near if float(near) <= x else np.nextafter(near, np.float32(-np.inf)))


class _Model:
    """Writer of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.columns: dict[int, str] = {}
        self.inputs = "states"  # of the trees

    def bytes(self, note: str) -> bytes:
        program, helper, kinds = self.program, onnx.helper, onnx.TensorProto
        barred = self._barred()
        if program.combinations is not None:
            self.inputs = self._combined(program.combinations)
        scores = self._trees(barred) if program.scores is None else self._linear(program.scores, barred)
        self._refusing(self._add("ArgMax", [scores], axis=1, keepdims=0), barred)
        d = len(program.schema.feature_names)
        graph = helper.make_graph(
            self.nodes,
            "policy",
            [helper.make_tensor_value_info("states", kinds.FLOAT, ["n", d])],
            [helper.make_tensor_value_info("action", kinds.INT64, ["n"])],
            self.constants,
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="capi", producer_version=__version__
        )
        words = {"schema": json.dumps(schema_to_json(program.schema), ensure_ascii=False), "note": note}
        words["feature_names"] = json.dumps(program.schema.feature_names, ensure_ascii=False)
        words["action_labels"] = json.dumps([str(x) for x in program.schema.action_labels], ensure_ascii=False)
        helper.set_model_props(model, words)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        name = output or f"v{len(self.nodes)}"
        domain = "ai.onnx.ml" if kind.startswith("Tree") else ""
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def _constant(self, value: Any, dtype: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def _column(self, j: int) -> str:
        """Return a feature (n,)."""
        if j not in self.columns:
            self.columns[j] = self._add("Gather", ["states", self._constant(j, np.int64)], axis=1)
        return self.columns[j]

    def _barred(self) -> str | None:
        """Return which actions the rules forbid (n, A), or None without rules."""
        found = None
        for rule in self.program.forbidden:
            holds = self._add("Unsqueeze", [self._holds(rule), self._constant([1], np.int64)])
            actions = np.isin(np.arange(self.program.n_actions), rule.actions)[None]
            here = self._add("And", [holds, self._constant(actions, np.bool_)])
            found = here if found is None else self._add("Or", [found, here])
        return found

    def _holds(self, rule: Forbidden) -> str:
        """Return where the condition of a rule holds (n,)."""
        known = self._add("IsNaN", [self._column(next(iter([*rule.box.low, *rule.box.high]), 0))])
        found = self._add("Or", [known, self._add("Not", [known])])  # everywhere
        for kind, sign, bounds in (("GreaterOrEqual", -1, rule.box.low), ("LessOrEqual", 1, rule.box.high)):
            for j, bound in bounds.items():
                limit = self._constant(sign * at_most(sign * bound), np.float32)
                inside = self._add(kind, [self._column(j), limit])
                if rule.rule.if_missing:
                    inside = self._add("Or", [inside, self._add("IsNaN", [self._column(j)])])
                found = self._add("And", [found, inside])
        return found

    def _trees(self, barred: str | None) -> str:
        """Return the votes for each action (n, A)."""
        n = self.program.n_actions
        if barred is None:
            return self._ensemble(self.program.trees, np.eye(1, n)[0])
        votes = []
        for tree in self.program.trees:
            ranks = self._ensemble((tree,), np.arange(n, 0, -1.0))
            left = self._add("Where", [barred, self._constant(BARRED, np.float32), ranks])
            first = self._add("ArgMax", [left], axis=1, keepdims=0)
            depth, on_off = self._constant([n], np.int64), self._constant([0, 1], np.float32)
            votes.append(self._add("OneHot", [first, depth, on_off]))
        return self._add("Sum", votes)

    def _ensemble(self, trees: tuple[FlatTree, ...], points: Floats) -> str:
        """Return the sum over trees of points (n, A): the first, second, ... action of a state's leaf gets the first, second, ... of ``points`` (A,)."""
        table: dict[str, list[Any]] = {
            f"nodes_{key}": []
            for key in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
        }
        table["nodes_missing_value_tracks_true"] = []
        leaves: dict[str, list[Any]] = {f"target_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}
        for t, tree in enumerate(trees):
            self._add_nodes(t, tree, points, table, leaves)
        attributes: dict[str, Any] = {
            "n_targets": self.program.n_actions,
            "aggregate_function": "SUM",
            **table,
            **leaves,
        }
        if self.wide:
            for name in ("nodes_values", "target_weights"):
                numbers = np.array(attributes.pop(name), dtype=np.float64)
                attributes[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(numbers, name)
        return self._add("TreeEnsembleRegressor", [self.inputs], **attributes)

    @property
    def wide(self) -> bool:
        """Whether trees compare 64-bit numbers: combinations of 32-bit numbers are not among these."""
        return self.program.combinations is not None

    def _combined(self, combinations: Projections) -> str:
        """Return the states and their combinations (n, d + k) in 64-bit precision."""
        x, total = self._add("Cast", ["states"], to=onnx.TensorProto.DOUBLE), ""
        for t in range(TERMS):
            columns = self._add("Gather", [x, self._constant(combinations.columns[:, t], np.int64)], axis=1)
            weights = combinations.coefficients[:, t]
            term = self._add("Mul", [columns, self._constant(weights[None], np.float64)])
            added = self._add("Add", [total, term]) if t else term
            total = (
                self._add("Where", [self._constant(weights[None] == 0, np.bool_), total, added]) if t == 2 else added
            )
        return self._add("Concat", [x, total], axis=1)

    def _add_nodes(
        self, t: int, tree: FlatTree, points: Floats, table: dict[str, list[Any]], leaves: dict[str, list[Any]]
    ) -> None:
        for node, number, left in tree.renumbered():
            row = (t, number, 0, 0.0, "LEAF", 0, 0, 0)
            if tree.left[node] >= 0:
                cut, missing = tree.at_most[node], int(tree.missing_left[node])
                low = cut if self.wide else at_most(cut)
                row = (t, number, tree.feature[node], low, "BRANCH_LEQ", left, left + 1, missing)
            for key, entry in zip(table, row, strict=True):
                table[key].append(entry)
            for action, weight in zip(tree.actions[node], points, strict=False):
                for key, entry in zip(leaves, (t, number, action, float(weight)), strict=True):
                    leaves[key].append(entry)

    def _linear(self, scores: Scores, barred: str | None) -> str:
        """Return the scores (n, A) in 64-bit precision."""
        x = self._add("Cast", ["states"], to=onnx.TensorProto.DOUBLE)
        apart = self._add("Sub", [x, self._constant(scores.origin[None], np.float64)])
        scaled = self._add("Div", [apart, self._constant(scores.unit[None], np.float64)])
        product = self._add("MatMul", [scaled, self._constant(scores.weights[:, :-1].T, np.float64)])
        total = self._add("Add", [product, self._constant(scores.weights[:, -1][None], np.float64)])
        if barred is None:
            return total
        return self._add("Where", [barred, self._constant(-np.inf, np.float64), total])

    def _refusing(self, action: str, barred: str | None) -> None:
        """Add the output: the actions, or -1 where the policy does not decide."""
        refused = None
        for j in self.program.needed:
            missing = self._add("IsNaN", [self._column(j)])
            refused = missing if refused is None else self._add("Or", [refused, missing])
        if barred is not None:
            every = self._add(
                "ReduceMin", [self._add("Cast", [barred], to=onnx.TensorProto.INT32)], axes=[1], keepdims=0
            )
            nothing = self._add("Cast", [every], to=onnx.TensorProto.BOOL)
            refused = nothing if refused is None else self._add("Or", [refused, nothing])
        if refused is None:
            self._add("Identity", [action], "action")
        else:
            self._add("Where", [refused, self._constant(-1, np.int64), action], "action")
