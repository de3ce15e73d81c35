"""Table, figures and the paper's claims as predicates, from the records of the chain walk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from capi._utils.late import matplotlib
from capi.experiments.chain.settings import FIGURES, N_ITERATIONS, SUCCESSES, VARIANTS
from capi.experiments.experiment import Claim, Record, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("variant", "success", "method", "iteration", "loss")
SHOWN_ITERATIONS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 50, 100)
PLOTTED_ITERATIONS = 20
N_OTHERS = 10  # records of a variant and a success probability that are not in the figures

ZERO = 1e-9  # a smaller loss is rounding error: values are of the order of 100
MUCH_MORE = 10.0  # "considerably higher": at least this factor
POOR = 2.0  # "quite poor": at least this many times the loss of the best policy of the space

STYLES = {  # Okabe and Ito's palette; line and marker distinguish the methods without colour, even where they coincide
    "zero-one": ("0/1 loss given Q*", "#CC79A7", ":", "", 0, None),  # a single policy: a line without points
    "capi": ("CAPI", "#D55E00", "-", "o", 8, "none"),
    "vi": ("Value iteration", "#0072B2", "--", "s", 4, None),
    "pi": ("Policy iteration", "#009E73", "-.", "^", 4, None),
}


def table(records: Sequence[Record]) -> list[Row]:
    """Return the loss of every iterate in the figures' settings; other starts and ties are only in the records."""
    return [
        {"variant": r["variant"], "success": r["success"], "method": r["method"], "iteration": k, "loss": loss}
        for r in records
        if _in_figures(r)
        for k, loss in enumerate(r["losses"])
    ]


def summary(rows: Sequence[Row]) -> tuple[str, list[str], list[list[str]]]:
    """Return one line per method with its loss at some iterations."""
    title = "1D chain walk: performance loss by iteration"
    cases: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in rows:
        cases.setdefault((row["variant"], row["success"], row["method"]), {})[row["iteration"]] = row["loss"]
    shown = [k for k in SHOWN_ITERATIONS if all(k in losses for losses in cases.values())]
    headings = ["variant", "success", "method", *(f"{k}" for k in shown)]
    return title, headings, [[*map(str, case), *(_short(losses[k]) for k in shown)] for case, losses in cases.items()]


def figures(rows: Sequence[Row]) -> dict[str, Figure]:
    """Return one figure per variant, with one panel per success probability."""
    titles = {1: "with policy approximation error", 2: "without policy approximation error"}
    files = {1: "chain-with-approximation-error.png", 2: "chain-without-approximation-error.png"}
    return {files[v]: _figure([r for r in rows if r["variant"] == v], f"1D chain walk {titles[v]}") for v in VARIANTS}


def _figure(rows: Sequence[Row], title: str) -> Figure:
    figure = matplotlib.figure.Figure(figsize=(9, 3.8), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(1, len(SUCCESSES), sharey=True)
    for axes, success in zip(panels, SUCCESSES, strict=True):
        _draw(axes, [row for row in rows if row["success"] == success])
        axes.set_title(f"success probability {success:g}", fontsize="medium")
    panels[0].set_ylabel("performance loss (uniform start)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(STYLES), frameon=False)
    return figure


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    for method, (label, colour, line, marker, size, fill) in STYLES.items():
        losses = [r["loss"] for r in rows if r["method"] == method and r["iteration"] <= PLOTTED_ITERATIONS]
        # Rounding-level losses are shown as zero; the axis is linear below 1e-2 so that it can show zero.
        heights = np.where(np.array(losses) < ZERO, 0.0, losses)
        axes.plot(
            heights, label=label, color=colour, linestyle=line, marker=marker, markersize=size, markerfacecolor=fill
        )
    axes.set_yscale("symlog", linthresh=1e-2)
    axes.set_ylim(bottom=-2e-3)  # lines at zero do not touch the axis
    axes.set_xlabel("iteration")
    axes.set_xticks(range(0, PLOTTED_ITERATIONS + 1, 4))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


STATEMENTS = {
    "optimal-policy-outside-space": "No policy with a single threshold is optimal.",
    "capi-reaches-best-of-space": "The loss of CAPI converges to the smallest loss in the policy space.",
    "capi-faster-than-vi": "CAPI reaches that level in fewer iterations than value iteration.",
    "capi-ends-below-vi": f"After {N_ITERATIONS} iterations CAPI has a smaller loss than value iteration.",
    "capi-faster-than-pi": "CAPI reaches that level in fewer iterations than policy iteration.",
    "zero-one-loss-is-poor": f"The minimiser of the 0/1 loss given Q* has at least {POOR:g} times the loss of the best policy in the space.",
    "zero-one-errs-where-gaps-are-large": "That policy is wrong in fewer states than the gap-weighted minimiser, but in states with larger gaps.",
    "optimal-policy-in-space": "Some policy with a single threshold is optimal.",
    "zero-from-iteration-4": "From the fourth iteration on, CAPI and policy iteration have no loss.",
    "zero-one-loss-is-zero": "The minimiser of the 0/1 loss given Q* has no performance loss.",
    "capi-costs-as-much-as-vi": "CAPI makes as many sweeps over the model per iteration as value iteration (plus the choice of a policy).",
    "pi-costs-considerably-more": f"If policies are evaluated by sweeps, policy iteration makes at least {MUCH_MORE:g} times as many sweeps as CAPI.",
}
NAMES_OF = {  # by variant
    1: tuple(STATEMENTS)[:7] + tuple(STATEMENTS)[-2:],
    2: tuple(STATEMENTS)[7:],
}
WHERE = {
    1: "Section 5.1, figure with policy approximation error",
    2: "Section 5.1, figure without policy approximation error",
}
Findings: TypeAlias = dict[
    str, tuple[bool, dict[str, Any]]
]  # by the name of a claim: whether it holds, and its numbers


def claims(records: Sequence[Record]) -> dict[str, Claim]:
    """Return the paper's claims on the chain walk at each success probability; while runs are missing they stay undecided."""
    found: dict[str, Claim] = {}
    for success in SUCCESSES:
        for variant, sentences in ((1, _with_error), (2, _without_error)):
            chosen = [r for r in records if r["variant"] == variant and r["success"] == success]
            main = {r["method"]: r for r in chosen if _in_figures(r)}
            others = [r for r in chosen if not _in_figures(r)]
            complete = len(main) == len(STYLES) and len(others) >= N_OTHERS
            findings: Findings = {**sentences(main, others), **_costs(main)} if complete else {}
            for name in NAMES_OF[variant]:
                holds, numbers = findings.get(name, (None, {}))
                where = "Section 5.1, on computation" if "costs" in name else WHERE[variant]
                found[f"variant-{variant}/success-{success:g}/{name}"] = Claim(STATEMENTS[name], where, holds, numbers)
    return found


def _with_error(main: dict[str, Record], others: Sequence[Record]) -> Findings:
    best = main["zero-one"]["best_in_space"]
    losses = {method: main[method]["losses"] for method in ("capi", "vi", "pi")}
    capi = losses["capi"]
    reached = {method: _first(each, best) for method, each in losses.items()}
    zero_one, by_gap = main["zero-one"]["zero_one"], main["zero-one"]["gap_weighted"]
    right = next(_first(r["losses"], best) for r in others if r["method"] == "pi" and r["start"] == "all-right")
    ends = {"capi": capi[-1], "vi": losses["vi"][-1]}
    return {
        "optimal-policy-outside-space": (best > ZERO, {"least_loss_in_space": best}),
        "capi-reaches-best-of-space": (
            abs(capi[-1] - best) <= ZERO,
            {"capi": capi[-1], "least_loss_in_space": best, "capi_by_iteration": capi[:7]},
        ),
        "capi-faster-than-vi": (
            _earlier(reached["capi"], reached["vi"]),
            {"first_iteration_at_level": {"capi": reached["capi"], "vi": reached["vi"]}},
        ),
        "capi-ends-below-vi": (
            ends["capi"] < ends["vi"] - ZERO,
            {"loss_at_the_end": ends, "value_iteration_is_lower_from_iteration": _lower_from(losses["vi"], capi)},
        ),
        "capi-faster-than-pi": (
            _earlier(reached["capi"], reached["pi"]),
            {
                "first_iteration_at_level": {"capi": reached["capi"], "pi": reached["pi"], "pi_from_all_right": right},
                "pi_at_end": losses["pi"][-1],
            },
        ),
        "zero-one-loss-is-poor": (
            main["zero-one"]["losses"][0] > max(POOR * best, ZERO),
            {"zero_one": main["zero-one"]["losses"][0], "least_loss_in_space": best},
        ),
        "zero-one-errs-where-gaps-are-large": (
            zero_one["states"] < by_gap["states"] and zero_one["mean_gap"] > by_gap["mean_gap"],
            {"zero_one": zero_one, "gap_weighted": by_gap},
        ),
    }


def _without_error(main: dict[str, Record], others: Sequence[Record]) -> Findings:
    best = main["zero-one"]["best_in_space"]
    zero = {method: _first(main[method]["losses"], 0.0) for method in ("capi", "pi", "vi")}
    last = next(_first(r["losses"], 0.0) for r in others if r["method"] == "capi" and r["ties"] == "last")
    return {
        "optimal-policy-in-space": (best <= ZERO, {"least_loss_in_space": best}),
        "zero-from-iteration-4": (
            all(max(main[method]["losses"][4:]) <= ZERO for method in ("capi", "pi")),
            {
                "first_iteration_without_loss": {**zero, "capi_with_last_ties": last},
                "capi": main["capi"]["losses"][:6],
                "pi": main["pi"]["losses"][:6],
            },
        ),
        "zero-one-loss-is-zero": (
            main["zero-one"]["losses"][0] <= ZERO,
            {"zero_one": main["zero-one"]["losses"][0]},
        ),
    }


def _costs(main: dict[str, Record]) -> Findings:
    sweeps = {method: main[method]["sweeps"] for method in ("capi", "vi", "pi")}
    steps = {"capi": len(sweeps["capi"]) - 1, "vi": len(sweeps["vi"]) - 1, "pi": main["pi"]["converged"]}
    each = {method: sweeps[method][steps[method]] / steps[method] for method in steps}
    to_vi: dict[str, Any] = {"sweeps_per_iteration": each}
    to_pi: dict[str, Any] = {"sweeps_per_iteration": each}
    if len({main[method].get("processor", "") for method in steps}) == 1:  # otherwise their times do not compare
        # The median, because the first call is slower than the rest.
        seconds = {m: float(np.median(np.diff(main[m]["seconds"][: steps[m] + 1]))) for m in steps}
        swept = float(np.median(np.diff(main["pi"]["seconds_by_sweeps"][: steps["pi"] + 1])))
        to_vi["seconds_capi_to_vi"] = seconds["capi"] / seconds["vi"]
        to_pi["seconds_by_sweeps_pi_to_capi"] = swept / seconds["capi"]
        to_pi["seconds_by_solving_pi_to_capi"] = seconds["pi"] / seconds["capi"]  # much faster for 200 states
    return {
        "capi-costs-as-much-as-vi": (each["capi"] == each["vi"], to_vi),
        "pi-costs-considerably-more": (each["pi"] >= MUCH_MORE * each["capi"], to_pi),
    }


def _in_figures(record: Record) -> bool:
    return all(record[key] == value for key, value in FIGURES.items())


def _first(losses: Sequence[float], level: float) -> int | None:
    """Return the first iteration whose loss is at most ``level``, or None if there is none."""
    return next((k for k, loss in enumerate(losses) if loss <= level + ZERO), None)


def _lower_from(losses: Sequence[float], others: Sequence[float]) -> int | None:
    """Return the iteration from which losses stay below the others, or None if they do not at the end."""
    above = [k for k, (own, other) in enumerate(zip(losses, others, strict=True)) if own >= other - ZERO]
    first = above[-1] + 1 if above else 0
    return first if first < len(losses) else None


def _earlier(a: int | None, b: int | None) -> bool:
    return a is not None and (b is None or a < b)


def _short(loss: float) -> str:
    return "0" if loss < ZERO else f"{loss:.4g}"
