"""Exports of policies as text, JSON, Graphviz, Python, SQL and ONNX.

Trees, forests, threshold, linear and constant policies are exported exactly, with the pointwise rules that they follow; other policies are
exported as a small tree that imitates them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike

from capi._utils.validation import check_choice
from capi.errors import InvalidInputError
from capi.files.exports.onnx import onnx_model
from capi.files.exports.program import program_of
from capi.files.exports.python import python_code
from capi.files.exports.sql import sql_code
from capi.files.exports.text import shown
from capi.policies import Described
from capi.policy_spaces.imitation import DEPTH, Imitation, imitation
from capi.policy_spaces.supported import SupportedPolicy

Format: TypeAlias = Literal["text", "json", "dot", "python", "sql", "onnx"]
FORMATS = ("text", "json", "dot", "python", "sql", "onnx")


def export_policy(
    policy: Any,
    to: Format,
    *,
    imitate: bool = False,
    states: ArrayLike | None = None,
    allowed: ArrayLike | None = None,
    max_depth: int = DEPTH,
    table: str | None = None,
) -> str | bytes:
    """Return a policy in a format that other programs read; it decides as ``policy.act`` does, missing values included.

    Parameters
    ----------
    policy : Policy
    to : "text", "json", "dot", "python", "sql" or "onnx"
        Readable rules; nested dictionaries; Graphviz; a module with the function ``decide``, which needs nothing but Python; one SQL
        expression for SQLite and DuckDB, where NULL means missing; an ONNX model (bytes, 32-bit numbers, needs ``capi[onnx]``).
    imitate : bool
        Whether to export a small tree that imitates the policy instead, with the share of equal decisions.
    states : array of shape (n, d), optional
        States on which that tree imitates the policy. By default the states that the policy was learned from, if it keeps them.
    allowed : array of shape (n, A), optional
        Allowed actions in these states; required if the policy was learned with masks.
    max_depth : int
        Maximum depth of that tree.
    table : str, optional
        In SQL, the table of the columns: ``"table"."column"``.

    Notes
    -----
    Exports sum the scores of linear policies in a different order, so decisions may differ in states where two scores agree to the
    last digits. Without ``table``, SQLite reads the name of a column that does not exist as text.

    Examples
    --------
    >>> import numpy as np
    >>> from capi.policy_spaces import Thresholds
    >>> policy = Thresholds().improve(np.array([[0.0], [1.0]]), np.array([[1.0, 0.0], [0.0, 5.0]]))
    >>> print(export_policy(policy, "sql"))
    CASE WHEN "x0" IS NULL THEN NULL ELSE
    CASE WHEN "x0" <= 0.5e0 THEN
      0
    ELSE
      1
    END
    END
    """
    check_choice(to, "to", FORMATS)
    note = ""
    if imitate:
        found = _imitation(policy, states, allowed, max_depth)
        note = _words(found)
        policy = found.tree
    written = _written(policy, to, note, table)
    if written is None:
        deep = isinstance(
            policy, SupportedPolicy
        )  # its model of what was done is many trees, or its policy is not a tree
        hint = (
            " With a support it can if it is a tree learned with Support(max_depth=...) (--support-depth)."
            if deep
            else ""
        )
        raise InvalidInputError(
            f"{type(policy).__name__} cannot be exported to {to} exactly.{hint} {_offer(policy, states, allowed, max_depth)}"
        )
    return written


def _written(policy: Any, to: Format, note: str, table: str | None) -> str | bytes | None:
    """Return the requested export, or None if the policy can only be imitated."""
    if to in ("text", "json", "dot"):
        return shown(policy, to, note)
    program = program_of(policy)
    if program is None:
        return None
    if to == "python":
        return python_code(program, note)
    if to == "sql":
        return sql_code(program, note, table)
    return onnx_model(program, note)


def _imitation(policy: Any, states: Any, allowed: Any, max_depth: int) -> Imitation:
    if not isinstance(policy, Described):
        raise InvalidInputError(f"{type(policy).__name__} cannot be imitated: it does not derive from Described.")
    asked = policy.learning_states() if states is None and hasattr(policy, "learning_states") else states
    if asked is None:
        raise InvalidInputError(
            "states must be given, because this policy does not keep those that it was learned from."
        )
    return imitation(policy, asked, allowed, max_depth=max_depth)


def _offer(policy: Any, states: Any, allowed: Any, max_depth: int) -> str:
    """Return a sentence on what to do instead."""
    try:
        return f"{_words(_imitation(policy, states, allowed, max_depth))} Pass imitate=True to export it."
    except InvalidInputError as error:
        return f"A small tree may make similar decisions: pass imitate=True and states. ({error})"


def _words(found: Imitation) -> str:
    leaves = found.tree.n_leaves
    return f"A tree with {leaves} leaves makes the same decision in {100 * found.fidelity:.1f} % of {found.n_states} states."
