"""Lower bounds of action values, with the Qs that they follow from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capi.evaluators.fitted_values import FittedValues
from capi.evaluators.pessimistic import LARGEST_SEED, PessimisticValues
from capi.files import codecs
from capi.files.packing import Contents, Kind, Packed

MOST_MODELS = 2**20
MOST_SWEEPS = 2**62


def _pack(q: PessimisticValues) -> Packed:
    parts = [q.mean, *q.models]
    settings = {
        "kappa": q.kappa,
        "spread": q.spread,
        "seed": q.seed,
        "n_models": len(q.models),
        **{f"{name}{i}": getattr(part, name, 0) for i, part in enumerate(parts) for name in ("age", "n_sweeps")},
    }
    return Packed("lower bounds", settings, parts={f"q{i}": codecs.to_arrays(part) for i, part in enumerate(parts)})


def _unpack(contents: Contents) -> PessimisticValues:
    spread = contents.choice("spread", ("bootstrap", "halves", "trees"))
    n_models = contents.integer("n_models", 0, MOST_MODELS)
    rule = {"bootstrap": n_models >= 2, "halves": n_models == 2, "trees": n_models == 0}
    if not rule[spread]:
        raise contents.refuse(f"{n_models} models do not fit the spread {spread}")
    mean, *models = (_part(contents, i) for i in range(n_models + 1))
    if any(model.n_actions != mean.n_actions for model in models):
        raise contents.refuse("all models must have the same actions")
    if spread == "trees" and not (
        isinstance(mean, FittedValues) and all(len(model.forest.trees) > 1 for model in mean.models)
    ):
        raise contents.refuse("the spread over trees needs at least two trees per model")
    kappa, seed = contents.number("kappa", 0.0), contents.integer("seed", 0, LARGEST_SEED)
    return PessimisticValues(mean, tuple(models), kappa, spread, seed)


def _part(contents: Contents, i: int) -> Any:
    q = contents.part(f"q{i}")
    age, n_sweeps = (contents.integer(f"{name}{i}", 0, MOST_SWEEPS) for name in ("age", "n_sweeps"))
    return replace(q, age=age, n_sweeps=n_sweeps) if isinstance(q, FittedValues) else q


KINDS = {"lower bounds": Kind(_pack, _unpack, decides=False)}
