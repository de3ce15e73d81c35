"""How a learner is built, run and scored: the only file that knows the interface of the library's learners.

A variant is a set of options that a setting carries whole, so that a changed variant has new records.
"""

from dataclasses import dataclass
from time import process_time
from typing import Any

from capi import CAPI
from capi.evaluators import FittedQ
from capi.learning.keeping import score_policies
from capi.policy_spaces import Forests, OptimalTrees
from capi.types import StateSample

BEFORE = {"keep": "last", "state_weights": "batch"}
VARIANTS = {  # by the tag that stands in the records as ``defaults``
    "capi-fit-0.1": {  # what `capi fit` did before there were rules
        "loop": {"n_iterations": 50, **BEFORE},
        "evaluator": {"n_sweeps": 5},
        "tree": {"max_depth": 3, "work_limit": 1_500_000_000},
        "forest": {},
        "score": "honest pair",
    },
    "rules-1": {  # CAPI(discount=...), and for forests CAPI(space=Forests(), discount=...)
        "loop": {},
        "evaluator": None,
        "tree": None,
        "forest": {},
        "score": "honest pair",
    },
}
DEFAULTS = "rules-1"


def options_of(variant, space):
    """Return what a setting says about its learner: the tag, and all options that matter for the space."""
    options = {name: value for name, value in VARIANTS[variant].items() if name not in ("tree", "forest", "score")}
    return {"defaults": variant, "space": space, "of_space": VARIANTS[variant][space], **options}


def learner_of(values, seed):
    """Return the learner of a setting."""
    options, kind = values["learner"], {"tree": OptimalTrees, "forest": Forests}[values["learner"]["space"]]
    return CAPI(
        None if options["evaluator"] is None else FittedQ(**options["evaluator"], n_jobs=1),
        None if options["of_space"] is None else kind(**options["of_space"], n_jobs=1),
        discount=values["discount"],
        random_state=seed,
        **options["loop"],
    )


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of a run of the loop."""

    policy: Any
    round: int  # from 0, of the returned policy
    cpu_seconds: float  # without what ``seen`` took
    history: list  # the numbers of each round


def learned(learner, data, seen):
    """Fit ``learner`` to ``data``, and call ``seen`` with each `Iteration` of that same run."""
    inner, spent = learner.iterate, 0.0

    def watched(*arguments, **options):
        nonlocal spent
        for iteration in inner(*arguments, **options):
            before = process_time()
            seen(iteration)
            spent += process_time() - before
            yield iteration

    learner.iterate = watched  # fit consumes it
    started = process_time()
    learner.fit(data.batch, **({} if data.starts is None else {"starts": data.starts}))
    seconds = process_time() - started - spent
    return Learned(learner.policy_, learner.policy_.training.n_iterations - 1, seconds, learner.history_)


def scores_of(policies, last, data, discount):
    """Return the score by which the library compares policies, of each policy; ``last`` is the last round of an ordinary run."""
    starts = None if data.starts is None else StateSample(*data.starts)
    return score_policies(policies, last, data.batch, discount, starts)
