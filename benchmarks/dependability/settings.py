"""The groups of settings, and how many seeds each has."""

from capi.experiments.setting import Setting

from .learners import DEFAULTS, VARIANTS, options_of
from .problems import problem_of

CONTROL = ("mountain-car", "pole", "cart-pole-v1", "mountain-car-v0", "acrobot-v1")
MDPS = {  # the return of the uniformly random policy, and of the best depth-3 tree found with the model
    "frozenlake_4x4": (0.012356, 0.520125),  # proved optimal
    "frozenlake_8x8": (0.001100, 0.391780),  # the others: best iterate with occupancy weights, from the optimal policy
    "frozenlake_12x12": (0.000172, 0.237178),
    "inventory_management": (-961.966, 1026.649),
    "traffic_intersection": (-146.444, 2.003),
    "system_administrator_1": (98.896, 214.037),
}
SIZES, SOURCES = (2_000, 20_000), ("pairs", "log")
GROUPS = {
    "hiv-tree": 20,
    "hiv-forest": 20,
    "control": 20,
    "mdps": 10,
    "rank": 1,
    "hiv-new": 10,
    "states": 10,
}  # numbers of seeds
LAST = "hiv-new"  # looked at once, at the end: only runs if it is named
FIRST_SEEDS = {LAST: 20}  # tables 0 to 19 were looked at with earlier scores
EARLIER = (
    "rules-3"  # the defaults of groups whose runs were made with them: where states repeat nothing has changed since
)
HIV_ROUNDS = 10  # of the group states
DEPTHS, WEIGHTINGS = (1, 2, 3, 4), ("batch", "occupancy", "mixture")
WEIGHTED = {  # the problems of the group states: kind, settings, rows
    **{name: ("mdp", {"name": name, "source": "pairs", "n_rows": 2_000}, 2_000) for name in MDPS},
    **{name: ("control", {"name": name}, 5_000) for name in ("mountain-car", "pole")},
    "hiv": ("hiv", {"source": "embedded"}, 30_000),
}


def seeds(group, first=0, n=None):
    """Return the seeds of a group, counted from ``first`` (by default all that it has)."""
    first += FIRST_SEEDS.get(group, 0)
    return range(first, first + (GROUPS[group] if n is None else n))


def settings(group, variant=DEFAULTS):
    """Return the settings of a group."""
    if group in ("hiv-tree", "hiv-forest"):
        return [_learning(group, "hiv", {"source": "embedded"}, variant, group.removeprefix("hiv-"))]
    if group == "hiv-new":
        return [_learning(group, "hiv", {"source": "new"}, variant)]
    if group == "control":
        return [_learning(f"control/{name}", "control", {"name": name}, variant) for name in CONTROL]
    if group == "mdps":
        return [
            _learning(
                f"mdps/{name}/{source}-{n}", "mdp", {"name": name, "source": source, "n_rows": n}, _earlier(variant)
            )
            for source in SOURCES
            for n in SIZES
            for name in MDPS
        ]
    if group == "states":
        return [weighted(name, depth, weighting) for name in WEIGHTED for depth in DEPTHS for weighting in WEIGHTINGS]
    return [
        _ranking("rank/hiv", "hiv", {"source": "embedded"}, variant),
        *(_ranking(f"rank/{name}", "control", {"name": name}, variant) for name in CONTROL),
        *(
            _ranking(f"rank/{name}", "mdp", {"name": name, "source": "pairs", "n_rows": 20_000}, _earlier(variant))
            for name in MDPS
        ),
    ]


def weighted(name, depth, weighting):
    """Return the setting of the group states: the library's rules, but for the depth and the weights of states.

    With even weights no round of the library begins with what was done, so here none does with any weights. HIV has half as many rounds.
    """
    kind, of_problem, n_rows = WEIGHTED[name]
    rounds = {"n_iterations": HIV_ROUNDS} if kind == "hiv" else {}
    setting = _learning(
        f"states/{name}/depth-{depth}/{weighting}", kind, of_problem, EARLIER if kind == "mdp" else "begins-once"
    )
    space = {
        "max_depth": depth,
        "n_thresholds": 64,
        "min_samples_leaf": max(5, n_rows // 500),
        "work_limit": 500_000_000,
    }
    learner = {**setting.values["learner"], "of_space": space, "loop": {"state_weights": weighting, **rounds}}
    return Setting(setting.name, {**setting.values, "learner": learner})


def _earlier(variant):
    """Return the variant of the records on finite MDPs."""
    return EARLIER if variant == DEFAULTS else variant


def _learning(name, problem, of_problem, variant, space="tree"):
    values = {"task": "learning", "problem": problem, "of_problem": of_problem}
    return Setting(name, {**values, "discount": problem_of(values).discount, "learner": options_of(variant, space)})


def _ranking(name, problem, of_problem, variant):
    values = {"task": "ranking", "problem": problem, "of_problem": of_problem}
    return Setting(name, {**values, "learner": {"defaults": variant, "score": VARIANTS[variant]["score"]}})
