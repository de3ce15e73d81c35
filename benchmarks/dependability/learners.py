"""How a learner is built, run and scored: the only file that knows the interface of the library's learners.

A variant is a set of options that a setting carries whole, under a tag that says which defaults of the library filled in the rest.
A new tag gives new records: change it whenever the library's defaults change.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from time import process_time
from typing import Any
from unittest.mock import patch

from capi import CAPI
from capi.evaluators import FittedQ
from capi.learning import episode_scores, keeping, rules
from capi.learning.iteration import start_sample
from capi.learning.keeping import score_in_episodes, score_policies
from capi.learning.rules import with_rules
from capi.offline import fitted_value
from capi.policy_spaces import Forests, OptimalTrees

BY_RULE = {"loop": {}, "evaluator": None, "tree": None, "forest": {}}
VARIANTS = {  # by tag
    "rules-6": {**BY_RULE, "score": "episodes"},
    "rules-5": {**BY_RULE, "score": "episodes", "more_worlds": 0},
    "begins-once": {
        **BY_RULE,
        "score": "episodes",
        "from_log": 0,
        "more_worlds": 0,
    },  # no rounds that begin with what was done
    "rules-3": {**BY_RULE, "score": "one-model", "from_log": 0},
    "halves": {**BY_RULE, "score": "halves"},  # another score, for ranks
    "fit-0.1": {  # what `capi fit` did before there were rules
        "loop": {"n_iterations": 50, "keep": "last", "state_weights": "batch"},
        "evaluator": {"n_sweeps": 5},
        "tree": {"max_depth": 3, "work_limit": 1_500_000_000},
        "forest": {},
        "score": "fitted-value",
    },
}
DEFAULTS = "rules-6"
SPACES = {"tree": OptimalTrees, "forest": Forests}


def options_of(variant, space):
    """Return what a setting says about its learner: the tag, and all options that matter for the space."""
    given = VARIANTS[variant]
    return {
        "defaults": variant,
        "space": space,
        "of_space": given[space],
        "evaluator": given["evaluator"],
        "loop": given["loop"],
    }


def learner_of(values, seed):
    """Return the learner of a setting; parts without options are left to the library."""
    options = values["learner"]
    evaluator, space = options["evaluator"], options["of_space"]
    return CAPI(
        None if evaluator is None else FittedQ(**evaluator),
        None if space is None else SPACES[options["space"]](**space),
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
    settings: dict  # those of the loop, after the library's rules


def library_of(variant):
    """Return a context in which the library scores iterates, and begins its rounds, as a variant says."""
    context = ExitStack()
    if variant["score"] == "one-model":
        context.enter_context(patch.object(keeping, "episode_scores", lambda *given: None))
    if "more_worlds" in variant:
        context.enter_context(patch.object(episode_scores, "MORE_WORLDS", variant["more_worlds"]))
    if "from_log" in variant:
        context.enter_context(patch.object(rules, "FROM_LOG", variant["from_log"]))
    return context


def learned(learner, data, seen, variant=VARIANTS[DEFAULTS]):
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
    with library_of(variant):
        learner.fit(data.batch, starts=data.starts)
    del learner.iterate  # a cycle of references would keep the forests of all runs
    seconds = process_time() - started - spent
    loop = with_rules(learner.loop(), data.batch, None)
    names = ("evaluator", "space", "n_iterations", "keep", "state_weights", "accept")
    settings = {name: str(getattr(loop, name)) for name in names}
    return Learned(learner.policy_, learner.policy_.training.n_iterations - 1, seconds, learner.history_, settings)


def scores_of(policies, last, data, discount, score):
    """Return the score of each policy; ``last`` is the last `Iteration` of the run whose models score them."""
    if score == "fitted-value":
        return [fitted_value(policy, data.batch, discount=discount, n_jobs=1) for policy in policies]
    starts = start_sample(data.starts, data.batch)
    if score == "episodes":
        found = score_in_episodes(policies, last, data.batch, discount, starts)
        if found is not None:
            return found.values.tolist()
    return score_policies(policies, last, data.batch, discount, starts, halves=score == "halves")
