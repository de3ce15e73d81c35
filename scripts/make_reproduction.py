"""Write docs/reproduction.md and the pages of docs/reproduction/ from the committed records.

python scripts/make_reproduction.py          # write the pages
python scripts/make_reproduction.py --check  # exit with an error if a page is not what the records give
"""

import argparse
import re
import sys
from pathlib import Path

from capi.experiments import NAMES
from capi.experiments.comparison import number_text
from capi.experiments.overview import VERDICTS, overview, seeds_text

ROOT = Path(__file__).parent.parent
REPRODUCTION = ROOT / "docs" / "reproduction"
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
ABOUT = {
    "sensitivity": "The base cases are smaller than the paper's experiments, so that a seed takes minutes (`capi.experiments.sensitivity.settings`). "
    "The lead is the score of CAPI minus that of the value-based method, both learned from the same batch; a verdict is whether one other choice changes it. "
    "Five seeds can show a change, but not that there is none.",
    "readable": "The same batch and action values, but one tree instead of a forest of 30: in every round of the loop, or once, after the last round, to replace the forest. "
    "HIV is scored by the return over 5,000 days, the pole by steps (at most 3,000).",
    "combinations": "Mountain-Car, 1,000 samples of a random policy, 50 iterations, library defaults, nothing tuned (`capi.experiments.combinations.settings`). Rollouts simulate "
    "instead of reading the batch. A positive difference means that the other part takes more steps than `FittedQ` with `Trees`, near-optimal is 49.",
    "patients": "A part of the patients of one log per seed (ten rounds of 20, 200 decisions each), drawn at random; more patients include those of fewer. Selection learns with 10 trees "
    "per forest instead of 30, because it learns every candidate several times.",
    "small-trees": "The best tree of a depth, by its exact value from the start. From the model: `capi` is the loop with exact values, from the optimal policy, the random one, the imitation tree and the best tree with "
    "one level less, with each kind of state weights, ten rounds each, the best iterate or start by its exact value, so from the model it cannot be behind imitation; `capi-search` changes single nodes of its best trees as long as the exact value rises; "
    "`imitation` minimises the loss in the optimal values where the optimum and its earlier trees are (ten rounds), with optimal trees; `viper` is the same with CART on the optimal actions, weighted by the largest gap, as in "
    "VIPER (Bastani, Pu and Solar-Lezama 2018), but with exact values and occupancies; `greedy` is the loop with greedily grown trees; `milp` is the program in `capi.experiments.small_trees.milp`, which HiGHS solves, with a limit of ten minutes. "
    "Settings that have not run yet are empty or missing below, larger problems, batches and most depths of `milp` among them; `capi reproduce small-trees --full --out docs/reproduction/small-trees` continues. From batches (5,000 transitions from random states with random actions): "
    "`capi` and `greedy` are the loop with `FittedQ` and its default state weights, `imitation` is the best tree by the values of Tree-FQI. Problems are described in [domains](../domains.md); "
    "`inventory-published` has the rewards of the published arrays. A value of 0 is that of random actions and 1 the optimum of all policies.",
    "theory": "The paper has no experiments on these; problems and sizes are ours. Seeds 20 to 49 were added only where claims were undecided, without a correction for "
    "looking twice, so the verdicts on the late budget on the chain and on the losses on two chains may be optimistic.",
}
INTRO = """# Reproduction of the paper

Every sentence of the paper's experimental sections and appendix, in our words, with our numbers and a verdict. `python scripts/make_reproduction.py` writes this page from
[the committed records](reproduction/README.md); no number is typed by hand. `capi reproduce all` writes the same verdicts with all figures as one HTML page, `poster.html`.

**Verdicts.** A claim compares methods by the differences of paired seeds. It *holds* or *fails* if the 95 % t interval of the mean difference excludes zero (or the stated
margin) with five seeds or more, and stays *open* otherwise. A sentence with several parts (values of eta_pi, numbers of samples, readings of what the paper does not state)
*holds in part* if some parts hold and others fail or are open. Intervals in the tables are 95 % percentile bootstrap intervals of the mean difference, which is positive if it
speaks for the claim unless its name says otherwise. Many parts are tested without a correction, so one in twenty may be decided by chance.
"""


def pages(folder=REPRODUCTION):
    """Return the text of each page by its path in docs."""
    found = {name: overview(name, folder / name) for name in NAMES if (folder / name).is_dir()}
    found = {name: one for name, one in found.items() if one is not None}
    text = [INTRO, _glance({name: found[name] for name in (*SECTIONS, *BEYOND) if name in found})]
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
        + [_fewest(one)]
        for name, one in found.items()
    ]
    return "## At a glance\n\n" + _table(["experiment", *VERDICTS, "complete seeds (by group)"], lines)


def _anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _fewest(one):
    n_seeds = sorted({len(group.seeds) for group in one.groups})
    return f"{n_seeds[0]}" if len(n_seeds) == 1 else f"{n_seeds[0]} to {n_seeds[-1]}"


def _section(title, one, level="###"):
    judged = [each for each in one.judgements if each.verdict is not None]
    said = [each for each in one.judgements if each.verdict is None]
    of_paper = bool(said)
    parts = [title, "", f"`capi reproduce {one.name}`", ""]
    if one.name in ABOUT:
        parts += [ABOUT[one.name], ""]
    heading = "the paper says" if of_paper else "claim"
    if of_paper:
        parts += [f"{level} What came out", ""]
        lines = [
            [str(i), each.sentence.says, f"**{each.verdict}**", each.sentence.ours] for i, each in enumerate(judged, 1)
        ]
        parts += [_table(["", heading, "verdict", "remark"], lines)]
        parts += [f"{level} What it did, and what was done here", ""]
        parts += [_table([heading, "here"], [[each.sentence.says, each.sentence.ours] for each in said])]
        parts += [f"{level} The numbers behind the verdicts", ""]
    shown = {}
    numbered = [
        [str(i) if of_paper else each.sentence.says, *line]
        for i, each in enumerate(judged, 1)
        for line in _evidence(each, str(i), shown)
    ]
    parts += [
        _table(
            ["" if of_paper else heading, "part", "mean difference", "95 % interval", "seeds", "verdict"],
            _merged(numbered),
        )
    ]
    name, headings, lines = one.summary
    parts += [f"{level} Numbers of the figures", "", f"{name}.", "", _table(headings, lines)]
    groups = [[g.name, str(g.n_settings), seeds_text(g.seeds), str(g.n_records)] for g in one.groups]
    parts += [
        f"{level} Which seeds ran",
        "",
        _table(["group", "settings", "seeds of which all settings are finished", "runs"], groups),
    ]
    makers = "; ".join(f"{made_by}: {n:,} runs" for made_by, n in sorted(one.made_by.items()))
    parts += [f"{makers}.", ""]
    return "\n".join(parts)


def _evidence(judgement, number, shown):
    """Return the lines of a sentence: one per difference, or what a claim measured instead; each claim is shown once."""
    lines = []
    for name, claim in judgement.claims.items():
        start = f"`{name}`"
        if shown.setdefault(name, number) != number:
            lines.append([f"{start}: see {shown[name]}", "", "", "", claim.verdict])
            continue
        if not claim.differences:
            lines.append([start + (_measured(claim.numbers) or ": not run"), "", "", "", claim.verdict])
        for part, found in claim.differences.items():
            interval = "" if found.low is None else f"{number_text(found.low)} to {number_text(found.high)}"
            verdict = {True: "holds", False: "fails", None: "open"}[found.supports]
            text = f"{start}: {part}"
            lines.append([text, number_text(found.mean), interval, str(found.n_seeds), verdict])
    return lines or [["not run", "", "", "", "open"]]


def _measured(numbers):
    """Return numbers in words, nested ones by their names."""
    found = []
    for name, value in numbers.items():
        if isinstance(value, dict):
            inner = ", ".join(
                f"{key.replace('_', ' ')} {_value(item)}"
                for key, item in value.items()
                if not isinstance(item, dict | list)
            )
            found += [f"{name.replace('_', ' ')}: {inner}"] if inner else []
        elif not isinstance(value, list):
            found.append(f"{name.replace('_', ' ')} {_value(value)}")
    return ": " + "; ".join(found) if found else ""


def _value(value):
    return (
        number_text(value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else "never"
        if value is None
        else str(value)
    )


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
            number_text(one.cost.full_cpu_hours)
            + (f" without {one.cost.n_unknown} settings that never ran" if one.cost.n_unknown else ""),
        ]
        for name, one in found.items()
    ]
    return "\n".join(
        [
            "## What it costs",
            "",
            "Measured while the machine did other work, with one thread per run. Hours are the sum over runs, up to two of which ran at a time.",
            "The cost of `--full` (or of all seeds) follows from the mean of the runs of each setting.",
            "",
            _table(["experiment", "runs", "CPU hours", "hours", "runs of `--full`", "CPU hours of `--full`"], lines),
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


if __name__ == "__main__":
    main()
