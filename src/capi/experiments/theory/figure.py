"""Table, figures and the claims of the analysis as predicates, from the records of its experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from capi._utils.statistics import all_hold, standard_error
from capi._utils.validation import Floats
from capi.experiments.comparison import Between, differences, positive
from capi.experiments.experiment import Claim, Record, Row
from capi.experiments.theory.settings import BATCHES, CASES, SCHEDULES, ZETAS, settings
from capi.plotting.style import PALETTE, add_legend, marker_of, name_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("group", "problem", "case", "level", "seed", "loss")
CLOSE = 0.15  # of a measured exponent to the one that the analysis gives
PARALLEL = 0.35  # an exponent this far above -1 is slower than 1 / n
UNITS = {"mountain-car": "steps to the goal", "hiv": "log10 of the return"}
TITLES = {
    "later": "The same budget, spent early, evenly or late",
    "damping": "Loss of greedy decisions against the error of the values",
    "rates": "Loss against the number of samples",
    "methods": "Methods with equal numbers of transitions, on the chain",
    "regularities": "Values and policies with and without regularity, on the chain",
    "losses": "The gap-weighted loss and the 0/1 loss",
    "informative": "Where new transitions come from",
}
LEVELS = {
    "damping": "largest error of the values",
    "rewards": "rewards per action and state",
    "states": "states",
    "methods": "transitions",
    "regularities": "transitions",
}
WORDS = {
    "mountain-car": "Mountain-Car",
    "hiv": "HIV (higher is better)",
    "chain-1-0.7": "chain, variant 1, success 0.7",
    "chain-1-0.9": "chain, variant 1, success 0.9",
    "chain-2-0.9": "chain, variant 2, success 0.9",
    "rewards": "noisy values",
    "states": "exact values, sampled states",
    "large-gaps": "all gaps 1",
    "fits": "a perfect policy in the space",
    "does-not-fit": "none in the space",
    "capi": "CAPI",
    "cpi": "CPI, safe step",
    "cpi-0.1": "CPI, step 0.1",
    "dpi": "DPI",
    "cbmpi": "CBMPI",
    "zero-one": "0/1",
    "uniform": "all states",
    "important": "large gaps",
    "uncertain": "small, uncertain",
} | {f"zeta-{zeta:g}": f"zeta = {zeta:g}" for zeta in ZETAS}
EXPECTED = {("damping", f"zeta-{zeta:g}"): 1 + zeta for zeta in ZETAS} | {  # exponents of the analysis
    ("rates", "zeta-1"): -1.0,
    ("rates", "zeta-0.5"): -0.75,
    ("rates", "fits"): -1.0,
    ("rates", "does-not-fit"): -0.5,
}
Key: TypeAlias = tuple[str, str, str]  # group, problem, case
Lines: TypeAlias = dict[Key, dict[float, list[float]]]  # losses by level
Found: TypeAlias = dict[Key, dict[int, Record]]  # by seed


def table(records: Sequence[Record]) -> list[Row]:
    """Return one row per setting, level and seed."""
    return [
        {
            "group": r["group"],
            "problem": r["problem"],
            "case": r["case"],
            "level": level,
            "seed": r["seed"],
            "loss": loss,
        }
        for r in records
        for level, loss in zip(r["levels"], r["losses"], strict=True)
    ]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per setting, with the mean loss at each level and its standard error."""
    lines = []
    for key, levels in _points(rows).items():
        shown = [f"{level:g}: {_short(losses)}" if level else _short(losses) for level, losses in levels.items()]
        lines.append([*key, str(max(len(losses) for losses in levels.values())), "   ".join(shown)])
    return (
        "The analysis: mean losses by level (s.e. over seeds)",
        ["group", "problem", "case", "seeds", "losses"],
        lines,
    )


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per group."""
    points = _points(rows)
    found = {}
    for group, title in TITLES.items():
        own = {key: levels for key, levels in points.items() if key[0] == group}
        if own:
            found[f"theory-{group}.png"] = _two_by_two(own, title) if group == "regularities" else _panels(own, title)
    return found


def _panels(lines: Lines, title: str) -> Figure:
    """Return one panel per problem; the laws of the gap share one."""
    group = next(iter(lines))[0]
    problems = [""] if group == "damping" else list(dict.fromkeys(problem for _, problem, _ in lines))
    with_levels = group in ("damping", "rates", "methods")
    width = 6.4 * len(problems) if with_levels else max(2.8 * len(problems), 4.4)
    figure, panels = new_figure(width, 3.8, n_cols=len(problems))
    for axes, problem in zip(panels, problems, strict=True):
        own = {key: levels for key, levels in lines.items() if problem in ("", key[1])}
        (_draw_lines if with_levels else _draw_cases)(axes, own)
        what = WORDS.get(problem, problem) if len(problems) > 1 or not with_levels else ""
        name_axes(axes, y=UNITS.get(problem, "loss"), title=what)
    _name_figure(figure, title)
    return figure


def _two_by_two(lines: Lines, title: str) -> Figure:
    """Return one panel per case, on the same axes."""
    figure, panels = new_figure(7.0, 5.2, n_rows=2, n_cols=2)
    top = max(max(losses) for levels in lines.values() for losses in levels.values())
    for axes, case in zip(panels, CASES, strict=True):
        chosen = {key: levels for key, levels in lines.items() if key[2] == case}
        if chosen:
            _draw_lines(axes, chosen, legend=False)
        axes.set_ylim(0.0, 1.2 * max(top, 0.1))
        name_axes(axes, y="loss", title=case.replace("/", " values, ").replace("-", " "))
    _name_figure(figure, title)
    return figure


def _name_figure(figure: Figure, title: str) -> None:
    figure.suptitle(f"{title} (bars: one standard error)", fontsize="medium", parse_math=False)


def _draw_lines(axes: Axes, lines: Lines, *, legend: bool = True) -> None:
    group, problem, _ = next(iter(lines))
    for number, ((_, own, case), levels) in enumerate(lines.items()):
        name = own if group == "damping" else case
        means = [float(np.mean(losses)) for losses in levels.values()]
        errors = [np.nan_to_num(standard_error(np.array(losses))) for losses in levels.values()]
        style: dict[str, Any] = {"color": PALETTE[number % len(PALETTE)], "marker": marker_of(number), "capsize": 2}
        exponent = EXPECTED.get((group, name))
        label = WORDS.get(name, name) + ("" if exponent is None else f" (dashes: exponent {exponent:g})")
        axes.errorbar(list(levels), means, yerr=errors, label=label, **style)
        if exponent is not None:
            _draw_power(axes, np.array(list(levels)), np.array(means), exponent, style["color"])
    axes.set_xscale("log")
    ticks = sorted({level for levels in lines.values() for level in levels})
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.minorticks_off()
    if group in ("damping", "rates"):
        axes.set_yscale("log", nonpositive="mask")
    else:
        top = max(max(losses) for levels in lines.values() for losses in levels.values())
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(0.0, 2 * max(top, 0.1))
    name_axes(axes, x=LEVELS.get(group) or LEVELS.get(problem, "samples"))
    if legend:
        add_legend(axes, "")


def _draw_power(axes: Axes, levels: Floats, means: Floats, exponent: float, colour: str) -> None:
    """Draw the power law with the exponent of the analysis through the last point with a loss."""
    known = means > 0
    if known.any():
        x, y = levels[known][-1], means[known][-1]
        axes.plot(levels, y * (levels / x) ** exponent, "--", color=colour, linewidth=1, label="_nolegend_")


def _draw_cases(axes: Axes, lines: Lines) -> None:
    """Draw one pale dot per seed, and their mean."""
    names = []
    for number, ((_, problem, case), levels) in enumerate(lines.items()):
        [losses] = levels.values()
        values = np.array(losses) * (-1 if problem == "hiv" else 1)  # its losses are negative logarithms
        colour = PALETTE[number % len(PALETTE)]
        places = number + 0.3 * (np.arange(len(values)) + 0.5) / len(values) - 0.15
        axes.plot(places, values, "o", color=colour, markersize=2.5, alpha=0.35, linewidth=0)
        error = np.nan_to_num(standard_error(values))
        axes.errorbar(number, float(values.mean()), yerr=error, color=colour, marker=marker_of(number), capsize=4)
        names.append(WORDS.get(case, case))
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    if not any(problem in UNITS for _, problem, _ in lines):
        axes.set_ylim(bottom=0.0)


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return what the paper says about its analysis; with few seeds, and without runs, the claims stay undecided."""
    found: Found = {}
    for r in records:
        found.setdefault((r["group"], r["problem"], r["case"]), {})[r["seed"]] = r
    made: dict[str, Claim] = {}
    for part in (_later, _damping, _rates, _methods, _regularities, _losses, _informative):
        made |= part(found)
    return made


def _later(found: Found) -> dict[str, Claim]:
    made = {}
    for problem in _problems("later"):
        cases = _paired(found, [("later", problem, case) for case in SCHEDULES], lambda r: r["losses"][0])
        early, even, late = cases
        made[f"later/{problem}"] = Claim(
            f"{_place(problem)}: with the same budget, it is better to spend more of it in later rounds.",
            "Section 4.2, after Theorem 2",
            all_hold([positive(early - late), positive(even - late)]),
            _numbers(dict(zip(SCHEDULES, cases, strict=True))),
            differences({"early - late": early - late, "evenly - late": even - late}),
        )
    return made


def _damping(found: Found) -> dict[str, Claim]:
    made = {}
    for zeta in ZETAS:
        slopes = _paired(found, [("damping", f"zeta-{zeta:g}", "greedy")], slope)
        made[f"damping/zeta-{zeta:g}"] = Claim(
            f"The loss falls like the error to the power of 1 + zeta = {1 + zeta:g} (to within {CLOSE:g}).",
            "Section 4.1, after Theorem 1",
            _close(slopes[0], 1 + zeta),
            _numbers({"exponent": slopes[0]}),
            differences({"exponent - expected": slopes[0] - 1 - zeta}, Between(-CLOSE, CLOSE)),
        )
    slopes = _paired(found, [("damping", "chain", "greedy")], slope)
    made["damping/chain"] = Claim(
        "On the chain, too, the loss falls faster than the error.",
        "Section 4.1, after Theorem 1",
        positive(slopes[0] - 1),
        _numbers({"exponent": slopes[0]}),
        differences({"exponent - 1": slopes[0] - 1}),
    )
    return made


def _rates(found: Found) -> dict[str, Claim]:
    made = {}
    for name, expected in (("zeta-1", -1.0), ("zeta-0.5", -0.75)):
        slopes = _paired(found, [("rates", "rewards", name)], lambda r: slope(r, last=3))
        made[f"rates/{name}"] = Claim(
            f"If values are means of n rewards, the loss falls like n to the power of -(1 + zeta) / 2 = {expected:g} (to within {CLOSE:g}).",
            "Section 4.1, after Theorem 1",
            _close(slopes[0], expected),
            _numbers({"exponent": slopes[0]}),
            differences({"exponent - expected": slopes[0] - expected}, Between(-CLOSE, CLOSE)),
        )
    both = _paired(
        found, [("rates", "rewards", "large-gaps"), ("rates", "rewards", "zeta-1")], lambda r: r["losses"][2]
    )
    made["rates/large-gaps"] = Claim(
        "With large gaps the loss vanishes sooner than with small ones, although there is more to lose.",
        "Section 2.2",
        positive(both[1] - both[0]),
        _numbers({"large gaps": both[0], "small gaps": both[1]}),
        differences({"small gaps - large gaps": both[1] - both[0]}),
    )
    slopes = _paired(found, [("rates", "states", case) for case in ("fits", "does-not-fit")], slope)
    made["rates/fast-if-the-space-fits"] = Claim(
        "With exact values and a space that contains a perfect policy, the loss falls at least as fast as 1 / n.",
        "Section 4.1, on r*",
        positive(-1 + CLOSE - slopes[0]),
        _numbers({"exponent": slopes[0]}),
        differences({"-1 - exponent": -1 - slopes[0]}, Between(-CLOSE)),
    )
    made["rates/slow-if-it-does-not"] = Claim(
        "In the hardest problem for n whose best policy is not perfect, the excess falls more slowly.",
        "Section 6, on the rates of DPI",
        positive(slopes[1] - (-1 + PARALLEL)),
        _numbers({"exponent": slopes[1]}),
        differences({"exponent + 1": slopes[1] + 1}, Between(PARALLEL)),
    )
    return made


def _methods(found: Found) -> dict[str, Claim]:
    made = {}
    for other in ("cpi", "cpi-0.1", "dpi", "cbmpi"):
        both = _paired(
            found, [("methods", "chain", "capi"), ("methods", "chain", other)], lambda r: float(np.mean(r["losses"]))
        )
        made[f"methods/capi-and-{other}"] = Claim(
            f"Chain: with as many transitions, CAPI loses less than {WORDS.get(other, other)}, on average over their numbers.",
            "Section 6",
            positive(both[1] - both[0]),
            _numbers({"capi": both[0], other: both[1]}),
            differences({f"{other} - capi": both[1] - both[0]}),
        )
    return made


def _regularities(found: Found) -> dict[str, Claim]:
    made = {}
    for i, n in enumerate(BATCHES):
        cases = _paired(found, [("regularities", "chain", case) for case in CASES], lambda r, i=i: r["losses"][i])  # type: ignore[misc]
        both, *others = cases
        made[f"regularities/{n}-transitions"] = Claim(
            f"Chain, {n:,} transitions: smooth values and a small policy space together lose less than either alone, and than neither.",
            "title and Section 1",
            all_hold(positive(other - both) for other in others),
            _numbers(dict(zip(CASES, cases, strict=True))),
            differences({f"{case} - both": other - both for case, other in zip(CASES[1:], others, strict=True)}),
        )
    return made


def _losses(found: Found) -> dict[str, Claim]:
    made = {}
    for problem in _problems("losses"):
        both = _paired(
            found, [("losses", problem, case) for case in ("gap-weighted", "zero-one")], lambda r: r["losses"][0]
        )
        made[f"losses/{problem}"] = Claim(
            f"{_place(problem)}: the policy that minimises the gap-weighted loss is better than the one that minimises the 0/1 loss.",
            "Sections 1 and 3",
            positive(both[1] - both[0]),
            _numbers({"gap-weighted": both[0], "zero-one": both[1]}),
            differences({"0/1 - gap-weighted": both[1] - both[0]}),
        )
    return made


def _informative(found: Found) -> dict[str, Claim]:
    made = {}
    for case, words in (("uncertain", "where gaps are small and uncertain"), ("important", "where gaps are large")):
        keys = [("informative", "mountain-car", each) for each in (case, "uniform")]
        both = _paired(found, keys, lambda r: r["losses"][0])
        made[f"informative/{case}"] = Claim(
            f"Mountain-Car: new transitions from states {words} are worth more than from all states alike.",
            "Section 7, on the sampling distribution",
            positive(both[1] - both[0]),
            _numbers({case: both[0], "uniform": both[1]}),
            differences({f"uniform - {case}": both[1] - both[0]}),
        )
    return made


def _place(problem: str) -> str:
    name = "HIV" if problem == "hiv" else WORDS.get(problem, problem)
    return name[:1].upper() + name[1:]


def slope(record: Record, last: int | None = None) -> float:
    """Return the slope of the logarithm of the loss against that of the level, over the (last) levels with a loss."""
    levels, losses = np.array(record["levels"], dtype=float), np.array(record["losses"])
    if last is not None:
        levels, losses = levels[-last:], losses[-last:]
    used = losses > 0
    if used.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(levels[used]), np.log(losses[used]), 1)[0])


def _problems(group: str) -> list[str]:
    values = [setting.values for setting in settings("full")]
    return list(dict.fromkeys(one["problem"] for one in values if one["group"] == group))


def _paired(found: Found, keys: Sequence[Key], number: Callable[[Record], float]) -> list[Floats]:
    """Return a number of each key's records, for the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(found.get(key, ())) for key in keys)))
    values = [np.array([number(found[key][seed]) for seed in seeds], dtype=float) for key in keys]
    known = np.all([np.isfinite(each) for each in values], axis=0)
    return [each[known] for each in values]


def _close(values: Floats, expected: float) -> bool | None:
    """Return whether the mean is within `CLOSE` of what is expected."""
    return all_hold([positive(values - expected + CLOSE), positive(expected + CLOSE - values)])


def _numbers(found: dict[str, Floats]) -> dict[str, Any]:
    return {
        name: {
            "mean": float(np.mean(values)),
            "standard_error": standard_error(values) if len(values) > 1 else None,
            "seeds": len(values),
        }
        for name, values in found.items()
        if len(values)
    }


def _points(rows: Iterable[Row]) -> Lines:
    found: Lines = {}
    for row in rows:
        key = (row["group"], row["problem"], row["case"])
        found.setdefault(key, {}).setdefault(row["level"], []).append(row["loss"])
    return found


def _short(losses: Sequence[float]) -> str:
    error = standard_error(np.array(losses))
    return f"{np.mean(losses):.3g}" + ("" if np.isnan(error) else f" ({error:.1g})")
