"""Write docs/reproduction.md and the pages of docs/reproduction/ from the committed records.

python scripts/make_reproduction.py          # write the pages, and the poster to results/poster.html
python scripts/make_reproduction.py --check  # exit with an error if a page is not what the records give
"""

import argparse
import re
import sys
from pathlib import Path

from capi.experiments import NAMES
from capi.experiments.comparison import number_text, runs_text
from capi.experiments.evidence import RULES, evidence, tally_text
from capi.experiments.mountain_car.figure import LEVELS
from capi.experiments.overview import VERDICTS, overview
from capi.experiments.poster import write_poster
from capi.experiments.setting import ALGORITHM_1
from capi.experiments.small_trees.settings import BATCH_PROBLEMS, PROBLEMS

ROOT = Path(__file__).parent.parent
REPRODUCTION = ROOT / "docs" / "reproduction"
POSTER = ROOT / "results" / "poster.html"
SECTIONS = {
    "chain": "1D chain walk (Section 5.1)",
    "hiv": "HIV drug schedule (Section 5.2)",
    "mountain-car": "Mountain-Car (appendix)",
    "pole": "Pole balancing (appendix; Sections 6 and 7)",
    "sensitivity": "What the paper does not state",
    "theory": "Claims of the analysis (Sections 1 to 7)",
}
BEYOND = {
    "readable": "What does readability cost? One tree against a forest",
    "combinations": "Every evaluator under one space, every space under one evaluator",
    "patients": "How few patients are enough?",
    "small-trees": "Small trees for finite problems, beside proved optima",
}
NEAR_OPTIMAL = next(level for name, level, _ in LEVELS["steps"] if name == "near-optimal")
BY_DEFAULTS = "The loop is `CAPI()` with the defaults of the library, not the paper's Algorithm 1 (`learner` in the values of the settings names these defaults)."
ABOUT = {
    "hiv": "In the plan of the long runs most groups have 20 seeds. `own-eta_v-5` has 10 and `own-new-trees` has 5, the fewest that can decide a claim: their runs cost most, "
    "and the two groups only show whether these choices change the main results.",
    "pole": "In the plan of the long runs `new-trees` has 5 seeds, the fewest that can decide a claim: its runs cost most, and only their times are judged.",
    "sensitivity": "The base cases are smaller than the paper's experiments, so that a seed takes minutes (`capi.experiments.sensitivity.settings`). "
    "The lead is the score of CAPI minus that of the value-based method, both learned from the same batch; a verdict is whether one other choice changes it. "
    "Five seeds can show a change, but not that there is none.",
    "readable": f"{BY_DEFAULTS} The same batch and evaluator, but one tree instead of a forest of 30: in every round of the loop, or once, after the last round, to replace the forest. "
    "HIV is scored by the return over 5,000 days, the pole by steps (at most 3,000).",
    "combinations": "Mountain-Car, 1,000 samples of a random policy, 50 iterations of the paper's Algorithm 1 ("
    + ", ".join(f"`{name}={value!r}`" for name, value in ALGORITHM_1.items())
    + "), not the default loop. Evaluators and spaces have the library's defaults except what follows, which was set once by hand and not tuned: linear evaluators "
    "have Fourier features of order 8 of the unit square, `Pessimistic` takes the spread of the trees, kernels and neighbours scale states to the unit square, trees and the classifier have depth 4, `OptimalTrees` depth 2 with "
    "32 thresholds, and the partition has 10 cells per column. Rollouts simulate "
    "instead of reading the batch. A positive difference means that the other part takes more steps than `FittedQ` with `Trees`; near-optimal is "
    f"{NEAR_OPTIMAL:g}.",
    "patients": f"{BY_DEFAULTS} A part of the patients of one log per seed (ten rounds of 20, 200 decisions each), drawn at random; more patients include those of fewer. Selection learns with 10 trees "
    "per forest instead of 30, because it learns every candidate several times.",
    "small-trees": "The best tree of a depth, by its exact value from the start. From the model: `capi` is the loop with exact values, from the optimal policy, the random one, the imitation tree and the best tree with "
    "one level less, with each kind of state weights, ten rounds each, the best iterate or start by its exact value, so from the model it cannot be behind imitation; `capi-search` changes single nodes of its best trees as long as the exact value rises; "
    "`imitation` minimises the loss in the optimal values where the optimum and its earlier trees are (ten rounds), with optimal trees; `viper` is the same with CART on the optimal actions, weighted by the largest gap, as in "
    "VIPER (Bastani, Pu and Solar-Lezama 2018), but with exact values and occupancies; `greedy` is the loop with greedily grown trees; `milp` is the program in `capi.experiments.small_trees.milp`, which HiGHS solves, with a limit of ten minutes, at depths 1 to 3. "
    "Cells are empty where a setting has not run or does not exist; which ones have not run is said below, and `capi reproduce small-trees --full --out docs/reproduction/small-trees` continues. From batches (5,000 transitions from random states with random actions): "
    "`capi` and `greedy` are the loop with `FittedQ` and the defaults of the library, `imitation` is the best tree by the values of Tree-FQI. Nothing is random from the model, so there are no seeds and no intervals; from batches, the five batches take the place of seeds. "
    f"{len(BATCH_PROBLEMS)} of {len(PROBLEMS)} problems have batches. "
    f"{', '.join(f'`{name}`' for name in PROBLEMS if name not in BATCH_PROBLEMS)} have none: two are third variants of problems that have batches, and the others have the most pairs of "
    "a state and an action, of which 5,000 transitions would show few or none. Problems are described in [domains](../domains.md); "
    "`inventory-published` has the rewards of the published arrays. A value of 0 is that of random actions and 1 the optimum of all policies.",
    "theory": "The paper has no experiments on these; problems and sizes are ours. Seeds 20 to 49 were added only where claims were undecided, without a correction for "
    "looking twice, so the verdicts on the late budget on the chain and on the losses on two chains may be optimistic.",
}
INTRO = """# Reproduction of the paper

Every sentence of the paper's experimental sections and appendix, in our words, with our numbers and a verdict. `python scripts/make_reproduction.py` writes this page from
[the committed records](reproduction/README.md); no result is typed by hand. It also writes `results/poster.html`, one HTML page with the same verdicts and all figures, like
`capi reproduce all`, which computes the runs as well.

## How verdicts are reached

{rules}
"""


def pages(folder=REPRODUCTION):
    """Return the text of each page by its path in docs."""
    found = {name: overview(name, folder / name) for name in NAMES}
    text = [
        INTRO.format(rules="\n\n".join(RULES)),
        _glance({name: found[name] for name in (*SECTIONS, *BEYOND) if name in found}),
    ]
    text += [_section(f"## {title}", found[name]) for name, title in SECTIONS.items() if name in found]
    beyond = {name: title for name, title in BEYOND.items() if name in found}
    if beyond:
        links = [f"- [{title}](reproduction/{name}.md)" for name, title in beyond.items()]
        text.append("\n".join(["## Beyond the paper", "", *links, ""]))
    text.append(_costs(found))
    result = {"reproduction.md": "\n".join(text)}
    for name, title in beyond.items():
        result[f"reproduction/{name}.md"] = (
            _section(f"# {title}", found[name], level="##") + "\n" + _costs({name: found[name]})
        )
    return result


def _glance(found):
    lines = [
        [f"[{name}]({'#' + _anchor(SECTIONS[name]) if name in SECTIONS else f'reproduction/{name}.md'})"]
        + [str(one.n_verdicts()[verdict]) for verdict in VERDICTS]
        + [runs_text(one.n_runs_per_setting)]
        for name, one in found.items()
    ]
    return "## At a glance\n\n" + _table(["experiment", *VERDICTS, "runs per setting"], lines)


def _anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _section(title, one, level="###"):
    judged = [each for each in one.judgements if each.verdict is not None]
    said = [each for each in one.judgements if each.verdict is None]
    of_paper = bool(said)
    parts = [title, "", f"`capi reproduce {one.name}`", ""]
    if one.name in ABOUT:
        parts += [ABOUT[one.name], ""]
    heading = "the paper says" if of_paper else "claim"
    if one.notes:
        parts += ["\n".join(f"- {note}" for note in one.notes), ""]
    if of_paper:
        parts += [f"{level} What came out", ""]
        lines = [[str(i), each.sentence.says, _verdict(each), each.ours] for i, each in enumerate(judged, 1)]
        parts += [_table(["", heading, "verdict", "remark"], lines)]
        parts += [f"{level} What it did, and what was done here", ""]
        parts += [_table([heading, "here"], [[each.sentence.says, each.ours] for each in said])]
        parts += [f"{level} The numbers behind the verdicts", ""]
    numbered = [
        [
            line.number if of_paper else judged[int(line.number) - 1].sentence.says,
            (f"`{line.claim}`: " if line.claim else "") + line.part,
            *(line.mean, line.interval, line.needed, line.bootstrap, line.seeds, line.verdict),
        ]
        for line in evidence(judged)
    ]
    headings = ["mean difference", "95 % t interval", "needed", "95 % bootstrap interval", "seeds", "verdict"]
    parts += [_table(["" if of_paper else heading, "part", *headings], _merged(numbered))]
    name, headings, lines = one.summary
    parts += [f"{level} Numbers of the figures", "", f"{name}.", ""]
    parts += [_table(headings, lines)] if lines else []
    groups = [[g.name, str(g.n_settings), g.text, f"{g.n_records:,}"] for g in one.groups]
    parts += [f"{level} Which seeds ran", "", _table(["group", "settings", "seeds", "runs"], groups)]
    makers = "; ".join(f"{made_by}: {n:,} runs" for made_by, n in sorted(one.made_by.items()))
    libraries = ", ".join(f"{library} {version}" for library, version in one.versions.items())
    parts += [f"{makers}. Libraries: {libraries}.", ""] if makers else []
    return "\n".join(parts)


def _verdict(judgement):
    tally = tally_text(judgement)
    return f"**{judgement.verdict}**" + (f" ({tally})" if tally else "")


def _merged(lines):
    """Return the lines with repeated first cells left empty."""
    return [["" if i and lines[i - 1][0] == line[0] else line[0], *line[1:]] for i, line in enumerate(lines)]


def _costs(found):
    lines = [
        [
            name,
            f"{one.cost.n_runs:,}",
            number_text(one.cost.cpu_hours),
            number_text(one.cost.hours),
            f"{one.cost.full_runs:,}",
            number_text(one.cost.full_cpu_hours) + (" and more" if one.cost.unknown else ""),
        ]
        for name, one in found.items()
    ]
    missing = [f"- {name}: {one.cost.not_counted}" for name, one in found.items() if one.cost.unknown]
    return "\n".join(
        [
            "## What it costs",
            "",
            "Measured while the machine did other work, with one thread per run. Hours are the sum over runs, up to two of which ran at a time.",
            "The cost of `--full` (or of all seeds) follows from the mean of the runs of each setting.",
            "",
            _table(["experiment", "runs", "CPU hours", "hours", "runs of `--full`", "CPU hours of `--full`"], lines),
            *(
                ["Settings without a record have no known cost and are not counted in `--full`:", "", *missing, ""]
                if missing
                else []
            ),
        ]
    )


def _table(headings, lines):
    rows = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in row) + " |" for row in rows) + "\n"


def differing(text, other):
    """Return the first line in which pages differ by more than one unit of the last digit, or None."""
    number = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")
    ours, theirs = text.splitlines(), other.splitlines()
    for line, former in zip(ours, theirs, strict=False):
        same_words = number.sub("0", line) == number.sub("0", former)
        pairs = zip(number.findall(line), number.findall(former), strict=False)
        if not same_words or any(not _close(one, two) for one, two in pairs):
            return line
    return None if len(ours) == len(theirs) else "the number of lines"


def _close(one, two):
    a, b = (float(each.replace(",", "")) for each in (one, two))
    return abs(a - b) <= 0.011 * max(abs(a), abs(b))


def main():
    """Read the options and write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare the pages with the records")
    options = parser.parse_args()
    for name, text in pages().items():
        path = ROOT / "docs" / name
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or differing(text, path.read_text(encoding="utf-8")):
            sys.exit(f"{path} is not what the records give: run python scripts/make_reproduction.py")
    if not options.check:
        POSTER.parent.mkdir(exist_ok=True)
        print(f"poster: {write_poster({name: REPRODUCTION / name for name in NAMES}, POSTER)}")


if __name__ == "__main__":
    main()
