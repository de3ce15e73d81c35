"""Settings of the comparison of small trees. The paper has none of its own: problems come from the literature on small trees.

model    everything is known: exact values, exact occupancies
batch    transitions from random states with random actions; the batch is part of the setting, so there is one seed
"""

from capi.experiments.setting import Setting, Size

SEEDS = {"quick": 1, "full": 1}
DEPTHS = (1, 2, 3, 4)
PROVED_DEPTHS = (1, 2, 3)  # that the solver tries
TIME_LIMIT = 600.0  # seconds of the solver
QUICK_TIME_LIMIT = 60.0
MODEL_METHODS = ("capi", "capi-search", "imitation", "viper", "greedy")
BATCH_METHODS = ("capi", "imitation", "greedy")
N_SAMPLES = 5_000
N_BATCHES = 5
PROBLEMS = (  # from small to large
    "machine",
    "frozen-lake-4x4",
    "frozen-lake-8x8",
    "administrator-tree",
    "navigation",
    "frozen-lake-12x12",
    "blackjack",
    "traffic",
    "inventory",
    "inventory-published",
    "administrator-1",
    "administrator-2",
    "tiger-antelope",
    "tic-tac-toe",
)
QUICK_PROBLEMS = PROBLEMS[:3]
BATCH_PROBLEMS = (
    "machine",
    "frozen-lake-4x4",
    "frozen-lake-8x8",
    "administrator-tree",
    "navigation",
    "blackjack",
    "traffic",
    "administrator-1",
)


def settings(size: Size) -> list[Setting]:
    """Return the settings: three problems, or all of them; the solver comes last, because it takes most of the time."""
    chosen = PROBLEMS if size == "full" else QUICK_PROBLEMS
    found = [_model(problem, depth, method) for problem in chosen for depth in DEPTHS for method in MODEL_METHODS]
    for number in range(N_BATCHES if size == "full" else 1):
        for problem in (name for name in chosen if name in BATCH_PROBLEMS):
            found += [_batch(problem, depth, method, number) for depth in DEPTHS for method in BATCH_METHODS]
    limit = TIME_LIMIT if size == "full" else QUICK_TIME_LIMIT
    return found + [_proof(problem, depth, limit) for depth in PROVED_DEPTHS for problem in chosen]


def _model(problem: str, depth: int, method: str) -> Setting:
    values = {"group": "model", "problem": problem, "depth": depth, "method": method}
    return Setting(f"model/{problem}/{depth}/{method}", values)


def _proof(problem: str, depth: int, limit: float) -> Setting:
    values = {"group": "model", "problem": problem, "depth": depth, "method": "milp", "time_limit": limit}
    return Setting(f"model/{problem}/{depth}/milp-{limit:g}", values)


def _batch(problem: str, depth: int, method: str, number: int) -> Setting:
    values = {
        "group": "batch",
        "problem": problem,
        "depth": depth,
        "method": method,
        "batch": number,
        "n_samples": N_SAMPLES,
    }
    return Setting(f"batch/{problem}/{depth}/{method}/{number}", values)
