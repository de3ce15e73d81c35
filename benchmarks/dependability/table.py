"""The table: pure functions of the records."""

from dataclasses import dataclass

import numpy as np

from capi.experiments.records import is_finished, key_of

from .settings import CONTROL, DEPTHS, GROUPS, MDPS, SIZES, SOURCES, WEIGHTED, WEIGHTINGS, seeds, settings, weighted

HEADINGS = ("problem", "runs", "median", "worst", "below the bar", "to reach", "verdict", "CPU s", "note")
GOOD_RATIO, MOST_BAD = 0.9, 2  # 18 of 20 seeds must reach the ratio
GOOD_CORRELATION = 0.6
LEGEND = """\
Ratio of a control problem: (returned - random) / (best iterate of its own run - random), in true undiscounted returns over 200
episodes; of an MDP: (returned - random) / (best depth-3 tree found with the model - random), exact. HIV: discounted return over
1,000 decisions. In logs of control problems each decision is random with probability 1/2, otherwise that of a heuristic: push in
the direction of motion (Mountain-Car), push to the side to which 0.5 position + velocity + 10 angle + 2 angular velocity points
(poles), torque in the direction in which the second joint turns (Acrobot). In the HIV tables the first 30 patients are treated at
random, the others with 15 % random decisions."""
HIV_BARS = {
    "hiv-tree": (5e8, 9e8),
    "hiv-forest": (8e8, 9.5e8),
    "hiv-new": (3e8, None),
}  # of each run, and of the median


@dataclass(frozen=True)
class Row:
    """One line of the table: the numbers of several runs, and what must be true of them."""

    name: str
    numbers: list  # one per run; None is a failure
    n_wanted: int
    bar: float | None = None  # of each run
    most_below: int | None = None  # how many runs may be below the bar
    least_median: float | None = None
    cpu_seconds: float = float("nan")  # mean of the runs
    note: str = ""

    @property
    def sorted(self):
        return np.sort([-np.inf if number is None else number for number in self.numbers])

    @property
    def median(self):
        ordered = self.sorted
        middle = ordered[[(len(ordered) - 1) // 2, len(ordered) // 2]]
        return float(middle[0] if middle[0] == middle[1] else middle.mean())

    @property
    def n_below(self):
        return 0 if self.bar is None else int((self.sorted < self.bar).sum())

    @property
    def verdict(self):
        """Whether what must be true is true; failures that no further run can mend are reported at once."""
        if self.most_below is None and self.least_median is None:
            return "no target"
        if self.most_below is not None and self.n_below > self.most_below:
            return "not reached"
        if len(self.numbers) < self.n_wanted:
            return f"{len(self.numbers)} of {self.n_wanted} runs"
        enough = self.least_median is None or self.median >= self.least_median
        return "reached" if enough else "not reached"

    @property
    def target(self):
        parts = []
        if self.most_below is not None:
            parts.append(f"{self.most_below} of {self.n_wanted} below {shown(self.bar)}")
        if self.least_median is not None:
            parts.append(f"median {shown(self.least_median)}")
        return ", ".join(parts) or "-"

    def cells(self):
        """Return the line as texts."""
        if not self.numbers:
            return [self.name, "0", "-", "-", "-", self.target, self.verdict, "-", self.note]
        below = "-" if self.bar is None else str(self.n_below)
        cost = "-" if np.isnan(self.cpu_seconds) else f"{self.cpu_seconds:.0f}"
        numbers = [str(len(self.numbers)), shown(self.median), shown(self.sorted[0]), below]
        return [self.name, *numbers, self.target, self.verdict, cost, self.note]


def shown(number):
    """Return a number with three digits, a whole number below 100,000 with all of them; minus infinity is a failure."""
    if number == -np.inf:
        return "failed"
    if 1000 <= abs(number) < 100_000:
        return f"{number:,.0f}"
    return f"{number:.3g}".replace("e+0", "e").replace("e+", "e")


def ratio(results, best=None):
    """Return (returned - random) / (best - random), None if the best is no better than random.

    The best is that of the run's own iterates unless it is given.
    """
    best = max(results["returns"]) if best is None else best
    gain = best - results["random"]
    return (results["returned"] - results["random"]) / gain if gain > 0 else None


def rows(records, variant, groups=GROUPS, first_seed=0):
    """Return the lines of the table for the finished ``records`` of a variant, as many seeds of each group as it has."""
    chosen = [setting for group in groups for setting in settings(group, variant)]
    names = {key_of(setting.values): setting.name for setting in chosen}
    wanted = {setting.name: seeds(setting.name.partition("/")[0], first_seed) for setting in chosen}
    by_name = {setting.name: [] for setting in chosen}
    for record in filter(is_finished, records):
        name = names.get(key_of(record["values"]))
        if name is not None and record["seed"] in wanted[name]:
            by_name[name].append(record)
    makers = {"control": _control, "mdps": _mdps, "rank": _rank}
    return [row for group in groups if group != "states" for row in makers.get(group, _hiv)(group, by_name)]


def states_text(records):
    """Return the group states as a Markdown table: medians over the seeds, the worst one in parentheses, and the number of seeds."""
    found = {key_of(record["values"]): [] for record in records}
    for record in filter(is_finished, records):
        found[key_of(record["values"])].append(record["results"])
    lines = [["problem", "depth", *WEIGHTINGS, "runs", "effective rows"]]
    lines.append(["---"] * len(lines[0]))
    for name in WEIGHTED:
        for depth in DEPTHS:
            cells = [found.get(key_of(weighted(name, depth, one).values), []) for one in WEIGHTINGS]
            returned = [np.array([results["returned"] for results in cell]) for cell in cells]
            shares = [f"{shown(np.median(cell))} ({shown(cell.min())})" if len(cell) else "-" for cell in returned]
            rows_visited = [results["effective_rows"][-1] for results in cells[1]]
            effective = shown(round(np.median(rows_visited))) if rows_visited else "-"
            lines.append([name, str(depth), *shares, str(min(map(len, cells))), effective])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _hiv(group, records):
    mine, (bar, median) = records[group], HIV_BARS[group]
    numbers = [one["results"]["returned"] for one in mine]
    return [Row(group, numbers, GROUPS[group], bar, 0, median, _cost(mine), _medians(mine))]


def _control(group, records):
    lines = []
    for name in CONTROL:
        mine = records[f"control/{name}"]
        ratios = [ratio(one["results"]) for one in mine]
        failed = sum(number is None for number in ratios)
        note = _medians(mine) + (f"; {failed} without an iterate better than random" if failed else "")
        lines.append(Row(f"control/{name}", ratios, GROUPS[group], GOOD_RATIO, MOST_BAD, None, _cost(mine), note))
    return lines


def _mdps(group, records):
    lines = []
    for source in SOURCES:
        for n in SIZES:
            parts = {name: records[f"mdps/{name}/{source}-{n}"] for name in MDPS}
            ratios = {name: [ratio(one["results"], MDPS[name][1]) for one in mine] for name, mine in parts.items()}
            target = GOOD_RATIO if (source, n) == ("pairs", 20_000) else None
            lines += [
                Row(
                    f"mdps/{name}/{source}-{n}",
                    ratios[name],
                    GROUPS[group],
                    None,
                    None,
                    None,
                    _cost(mine),
                    _medians(mine),
                )
                for name, mine in parts.items()
            ]
            every = [number for name in MDPS for number in ratios[name]]
            lines.append(Row(f"mdps, {source}, {n:,} rows", every, GROUPS[group] * len(MDPS), None, None, target))
    return lines


def _rank(group, records):
    lines = []
    for setting in settings(group):
        mine = records[setting.name]
        numbers = [one["results"]["correlation"] for one in mine]
        lines.append(Row(setting.name, numbers, GROUPS[group], None, None, None, _cost(mine), _range(mine)))
    medians = [line.median for line in lines if line.numbers]
    lines.append(Row("rank, median over problems", medians, len(lines), None, None, GOOD_CORRELATION))
    return lines


def _cost(records):
    return float(np.mean([one["run"]["cpu_seconds"] for one in records])) if records else float("nan")


def _medians(records):
    """Return the medians of the true returns of random decisions, the log, the returned policy and the best iterate."""
    if not records:
        return ""
    results = [one["results"] for one in records]
    numbers = {name: np.median([one[name] for one in results]) for name in ("random", "log", "returned")}
    numbers["best iterate"] = np.median([max(one["returns"]) for one in results])
    return ", ".join(f"{name} {shown(number)}" for name, number in numbers.items())


def _range(records):
    """Return the true returns of the worst, the best and the best-scored candidate."""
    if not records:
        return ""
    results = records[0]["results"]
    chosen = results["returns"][int(np.argmax(results["scores"]))]
    low, high = min(results["returns"]), max(results["returns"])
    return f"candidates return {shown(low)} to {shown(high)}, the one with the best score {shown(chosen)}"


def text(lines):
    """Return the lines as a Markdown table."""
    cells = [HEADINGS, ["---"] * len(HEADINGS), *(line.cells() for line in lines)]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
