"""How a learner is built, run and scored: the only file that knows the interface of the library's learners.

A variant is a set of options that a setting carries whole, so that a changed variant has new records.
"""

from dataclasses import dataclass
from time import process_time
from typing import Any

from capi import CAPI
from capi.evaluators import FittedQ
from capi.offline import fitted_value
from capi.policy_spaces import Forests, OptimalTrees

TREES = {"max_depth": 3, "work_limit": 1_500_000_000}
VARIANTS = {  # by the tag that stands in the records as ``defaults``
    "capi-fit-0.1": {  # what `capi fit` does in version 0.1
        "loop": {"n_iterations": 50, "keep": "last"},
        "evaluator": {"n_sweeps": 5},
        "tree": TREES,
        "forest": {},
        "score": "fitted_value",
    },
}
DEFAULTS = "capi-fit-0.1"


def options_of(variant, space):
    """Return what a setting says about its learner: the tag, and all options that matter for the space."""
    options = {name: value for name, value in VARIANTS[variant].items() if name not in ("tree", "forest", "score")}
    return {"defaults": variant, "space": space, "of_space": VARIANTS[variant][space], **options}


def learner_of(values, seed):
    """Return the learner of a setting, with one thread."""
    options, kind = values["learner"], {"tree": OptimalTrees, "forest": Forests}
    return CAPI(
        FittedQ(**options["evaluator"], n_jobs=1),
        kind[options["space"]](**options["of_space"], n_jobs=1),
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
    learner.fit(data.batch)  # data.starts: where episodes begin, if the batch does not show it
    seconds = process_time() - started - spent
    return Learned(learner.policy_, learner.policy_.training.n_iterations - 1, seconds, learner.history_)


def scores_of(policies, data, discount):
    """Return the score by which the library compares policies, of each policy."""
    return [fitted_value(policy, data.batch, discount=discount, n_jobs=1) for policy in policies]
