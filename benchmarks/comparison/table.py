"""The table of the records."""

from collections import defaultdict

import numpy as np

from .worlds import WORLDS

LABELS = {
    "random": "random actions",
    "log": "what was done (the log)",
    "heuristic": "the heuristic of the log, without random actions",
    "imitation": "LightGBM, most probable logged action",
    "lightgbm": "LightGBM, fitted Q",
    "lightgbm-restricted": "LightGBM, fitted Q, frequent actions only",
    "cql": "d3rlpy DiscreteCQL",
    "cql-tutorial": "d3rlpy DiscreteCQL, tutorial's settings",
    "double-dqn": "d3rlpy DoubleDQN",
    "double-dqn-tutorial": "d3rlpy DoubleDQN, tutorial's settings",
}
HEADINGS = ["problem", "rows", "method", "budget", "return: median", "worst", "best", "seeds", "CPU s"]


def text(records):
    """Return the records as a Markdown table: returns over the seeds, and the median CPU seconds of learning."""
    found = defaultdict(list)
    for record in records:
        values = record["values"]
        found[values["problem"], values["rows"], values["method"], values["budget"]].append(record["results"])
    methods = list(LABELS)
    problems = [(world.name, n_rows) for world in WORLDS.values() for n_rows in world.sizes]
    order = lambda key: (problems.index(key[:2]), methods.index(key[2]), key[3] or 0)  # noqa: E731
    lines = [HEADINGS, ["---", *["---:" if name in ("rows", *HEADINGS[4:]) else "---" for name in HEADINGS[1:]]]]
    for key in sorted(found, key=order):
        problem, rows, method, budget = key
        returns = np.array([results["return"] for results in found[key]])
        seconds = np.median([results["cpu_seconds"] for results in found[key]])
        unit = "steps" if method.startswith(("cql", "double")) else "sweeps"
        lines.append(
            [
                problem,
                f"{rows:,}",
                LABELS[method],
                f"{budget:,} {unit}" if budget else "",
                *(shown(number) for number in (np.median(returns), returns.min(), returns.max())),
                str(len(returns)),
                f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown(number):
    """Return a number with four digits at most, and no exponent below a million."""
    if abs(number) >= 1e6:
        return f"{number:.3g}"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.1f}"
