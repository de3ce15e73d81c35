"""Shared by tests of runs: column roles, settings, and an interruption."""

from capi.runs import RunSettings

ROLES = {"episode": "id", "state": ["age", "dose"], "action": "drug", "reward": "gain", "terminated": "dead"}
OPTIONS = [f"--{role}={name}" for role, names in ROLES.items() for name in (names if role == "state" else [names])]


def settings_for(table, space="trees", evaluator="fitted-q", **options):
    evaluators = {"fitted-q": {"n_trees": 4, "n_sweeps": 2}, "kernel-fitted-q": {"ridge": 1.0}}
    spaces = {"trees": {"max_depth": 2}, "forests": {"n_trees": 3}, "optimal-trees": {"max_depth": 1}}
    common = {"discount": 0.8, "n_iterations": 6, **options}
    return RunSettings(
        table, ROLES, **common, evaluator=evaluator, space=space,
        evaluator_options=evaluators[evaluator], space_options=spaces.get(space, {}),
    )  # fmt: skip


def interrupted(after):
    def shown(rounds, done, total):
        for iteration in rounds:
            yield iteration
            if iteration.k == after:
                raise KeyboardInterrupt

    return shown
