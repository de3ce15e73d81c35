"""Action values: tables for finite state spaces, and kernel expansions."""

from __future__ import annotations

from capi.evaluators._ridge import ExactBasis, KeptFeatures, SparseBasis
from capi.evaluators._rkhs import KernelSpanValues
from capi.evaluators.kernel_fitted_q import KernelValues
from capi.files.codecs.parts import (
    kernel_json,
    no_code,
    pack_dictionary,
    pack_scaling,
    pack_state_rows,
    unpack_dictionary,
    unpack_kernel,
    unpack_scaling,
    unpack_state_rows,
)
from capi.files.packing import MOST_ACTIONS, Contents, Kind, Packed
from capi.finite.mdp import TabularQ


def _pack_tabular(q: TabularQ) -> Packed:
    packed = Packed("tabular values", arrays={"table": q.table})
    pack_state_rows(packed, q.features)
    return packed


def _unpack_tabular(contents: Contents) -> TabularQ:
    table = contents.floats("table", (None, None))
    if table.shape[1] > MOST_ACTIONS:
        raise contents.refuse(f"there must be at most {MOST_ACTIONS} actions")
    return TabularQ(table, unpack_state_rows(contents, len(table)))


def _pack_span(q: KernelSpanValues) -> Packed:
    arrays = {"centres": q.centres, "coefficients": q.weights}
    settings = {**kernel_json(q.kernel), "n_features": q.centres.shape[1]}
    packed = Packed("kernel span values", settings, arrays, holds_states=True)
    packed.settings["n_actions"] = q.weights.shape[1]
    pack_scaling(packed, q.scaling)
    return packed


def _unpack_span(contents: Contents) -> KernelSpanValues:
    d, n_actions = contents.n_features(), contents.n_actions()
    centres = contents.floats("centres", (None, d))
    weights = contents.floats("coefficients", (len(centres), n_actions))
    return KernelSpanValues(unpack_kernel(contents), unpack_scaling(contents, d), centres, weights)


def _pack_kernel(q: KernelValues) -> Packed:
    basis = q.features.basis
    packed = Packed("kernel values", {"n_actions": q.n_actions, "n_features": int(q.n_features)})
    packed.arrays = {f"coefficients{a}": weights for a, weights in enumerate(q.coefficients)}
    if isinstance(basis, SparseBasis):
        packed.settings["basis"] = "dictionary"
        pack_dictionary(packed, basis.dictionary)
    elif isinstance(basis, ExactBasis):
        packed.settings |= {"basis": "exact", **kernel_json(basis.kernel)}
        packed.holds_states = True
        packed.arrays |= {f"centres{a}": centres for a, centres in enumerate(basis.centres)}
        pack_scaling(packed, basis.scaling)
    else:
        raise no_code(basis)
    return packed


def _unpack_kernel(contents: Contents) -> KernelValues:
    d, n_actions = contents.n_features(), contents.n_actions()
    basis: SparseBasis | ExactBasis
    if contents.choice("basis", ("dictionary", "exact")) == "dictionary":
        dictionary = unpack_dictionary(contents, d)
        basis, sizes = SparseBasis(dictionary, n_actions), [len(dictionary.centres_)] * n_actions
    else:
        centres = tuple(contents.floats(f"centres{a}", (None, d)) for a in range(n_actions))
        basis = ExactBasis(unpack_kernel(contents), unpack_scaling(contents, d), centres)
        sizes = list(map(len, centres))
    coefficients = tuple(contents.floats(f"coefficients{a}", (size,)) for a, size in enumerate(sizes))
    return KernelValues(KeptFeatures(basis), coefficients, d)


KINDS = {
    "tabular values": Kind(_pack_tabular, _unpack_tabular, decides=False),
    "kernel span values": Kind(_pack_span, _unpack_span, decides=False),
    "kernel values": Kind(_pack_kernel, _unpack_kernel, decides=False),
}
