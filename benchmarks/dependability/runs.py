"""The runs: a setting and a seed -> numbers."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from scipy.stats import spearmanr

from capi._utils.sources import digest_of
from capi._utils.threads import one_blas_thread

from .candidates import candidates
from .learners import learned, learner_of, scores_of
from .problems import problem_of

LIBRARY = (  # what the runs use of the library
    "capi.learning.capi",
    "capi.evaluators.fitted_q",
    "capi.policy_spaces.trees.optimal",
    "capi.policy_spaces.trees.forests",
    "capi.learning.keeping",
    "capi.learning.decision_points",
    "capi.learning.rules",
    "capi.simulation.returns",
    "capi.simulation.sampling",
    "capi.domains.cart_pole",
    "capi.domains.mountain_car",
    "capi.experiments.hiv.run",
    "capi.finite.mdp",
)
DIGITS = 6


def run(values, seed, n_jobs):
    """Return the numbers of a setting with a seed, computed with one thread."""
    with one_blas_thread():
        found = {"learning": learning, "ranking": ranking}[values["task"]](values, seed)
    return {**found, "digest": digest()}


def learning(values, seed):
    """Learn once; return the true returns of all iterates, of the returned policy, of random decisions and of the log."""
    problem = problem_of(values)
    data = problem.data(seed)
    returns = []
    found = learned(learner_of(values, seed), data, lambda step: returns.append(problem.worth(step.policy)))
    if len(returns) != len(found.history):
        raise AssertionError(f"fit made {len(found.history)} rounds; {len(returns)} were seen.")
    return {
        "returned": rounded(problem.worth(found.policy)),
        "round": found.round,
        "returns": [rounded(number) for number in returns],
        "random": rounded(problem.random_worth()),
        "log": rounded(problem.log_worth(data)),
        "changed": [rounded(step["changed"], 3) for step in found.history],
        "learning_cpu_seconds": round(found.cpu_seconds, 2),
    }


def ranking(values, seed):
    """Return the scores and the true returns of the fixed list of candidates, and their rank correlation."""
    problem = problem_of(values)
    data = problem.data(seed)
    policies, last = candidates(problem, data, seed)
    scores, returns = scores_of(policies, last, data, problem.discount), [problem.worth(policy) for policy in policies]
    differ = len(set(scores)) > 1 and len(set(returns)) > 1
    return {
        "correlation": rounded(float(spearmanr(scores, returns).statistic)) if differ else 0.0,
        "scores": [rounded(number) for number in scores],
        "returns": [rounded(number) for number in returns],
        "random": rounded(problem.random_worth()),
    }


def rounded(number, digits=DIGITS):
    """Return a number with few digits, so that records stay small."""
    return float(f"{number:.{digits}g}")


@cache
def digest():
    """Return the start of a digest of all code that a run depends on: this folder and the library."""
    own = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return sha256(b"".join(own) + "".join(map(digest_of, LIBRARY)).encode()).hexdigest()[:16]


def prepare():
    """Compile everything once, so that no run's time includes compilation."""
    values = {"task": "learning", "problem": "control", "of_problem": {"name": "pole", "n_rows": 200}, "discount": 0.9}
    for space in ("tree", "forest"):
        options = {"space": space, "of_space": {}, "evaluator": {"n_sweeps": None}, "loop": {"n_iterations": 2}}
        learning({**values, "learner": options}, 0)
