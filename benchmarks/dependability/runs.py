"""The runs: a setting and a seed -> numbers."""

from functools import cache
from hashlib import sha256
from pathlib import Path
from time import process_time
from unittest.mock import patch

from scipy.stats import spearmanr

from capi._utils.sources import digest_of
from capi._utils.threads import one_blas_thread

from .candidates import candidates
from .learners import DEFAULTS, VARIANTS, learned, learner_of, scores_of
from .problems import problem_of

LIBRARY = (  # what the runs use of the library
    "capi.learning.capi",
    "capi.evaluators.fitted_q",
    "capi.policy_spaces.trees.optimal",
    "capi.policy_spaces.trees.forests",
    "capi.learning.keeping",
    "capi.learning.episode_scores",
    "capi.learning.rules",
    "capi.offline.score",
    "capi.simulation.returns",
    "capi.simulation.sampling",
    "capi.domains.cart_pole",
    "capi.domains.mountain_car",
    "capi.experiments.hiv.run",
    "capi.finite.mdp",
)
DIGITS = 6


def run(values, seed, n_jobs):
    """Return the numbers of a setting with a seed, computed with one thread: runs are parallel to each other."""
    code = digest()  # before the run: the sources may change during it
    with one_blas_thread(), patch("os.sched_getaffinity", return_value={0}, create=True):  # so that -1 is one thread
        found = {"learning": learning, "ranking": ranking}[values["task"]](values, seed)
    return {**found, "digest": code}


def learning(values, seed):
    """Learn once; return the true returns of all iterates, of the returned policy, of random decisions and of the log."""
    problem = problem_of(values)
    data = problem.data(seed)
    returns = []
    variant = VARIANTS.get(values["learner"].get("defaults"), VARIANTS[DEFAULTS])
    found = learned(learner_of(values, seed), data, lambda step: returns.append(problem.worth(step.policy)), variant)
    if len(returns) != len(found.history):
        raise AssertionError(f"fit made {len(found.history)} rounds; {len(returns)} were seen.")
    return {
        "returned": rounded(problem.worth(found.policy)),
        "round": found.round,
        "returns": [rounded(number) for number in returns],
        "random": rounded(problem.random_worth()),
        "log": rounded(problem.log_worth(data)),
        **{name: by_round(found.history, name) for name in ("changed", "score", "careful_score", "effective_rows")},
        "learner": found.settings,
        "learning_cpu_seconds": round(found.cpu_seconds, 2),
    }


def ranking(values, seed):
    """Return the scores and the true returns of the fixed list of candidates, and their rank correlation."""
    problem = problem_of(values)
    data = problem.data(seed)
    policies, last = candidates(problem, data, seed)
    started = process_time()
    scores = scores_of(policies, last, data, problem.discount, values["learner"]["score"])
    seconds = process_time() - started
    returns = [problem.worth(policy) for policy in policies]
    differ = len(set(scores)) > 1 and len(set(returns)) > 1
    return {
        "correlation": rounded(float(spearmanr(scores, returns).statistic)) if differ else 0.0,
        "scores": [rounded(number) for number in scores],
        "returns": [rounded(number) for number in returns],
        "random": rounded(problem.random_worth()),
        "scoring_cpu_seconds": round(seconds, 2),
    }


def by_round(history, name):
    """Return a number of each round, None where there is none."""
    return [rounded(step[name]) if step.get(name) is not None else None for step in history]


def rounded(number):
    """Return a number with few digits, so that records stay small."""
    return float(f"{number:.{DIGITS}g}")


@cache
def digest():
    """Return the start of a digest of all code that a run depends on: this folder and the library."""
    own = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return sha256(b"".join(own) + "".join(map(digest_of, LIBRARY)).encode()).hexdigest()[:16]


def prepare():
    """Compile everything once, so that no run's time includes compilation."""
    values = {"task": "learning", "problem": "control", "of_problem": {"name": "pole", "n_rows": 200}, "discount": 0.9}
    for space in ("tree", "forest"):
        options = {"space": space, "of_space": {}, "evaluator": {"n_sweeps": 2}, "loop": {"n_iterations": 2}}
        learning({**values, "learner": options}, 0)
