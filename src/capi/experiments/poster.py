"""One HTML page with the figures, claims and verdicts of all experiments."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capi._utils.late import jinja2, markupsafe
from capi._utils.versions import versions
from capi.experiments.comparison import Difference, number_text
from capi.experiments.experiment import Claim
from capi.experiments.overview import VERDICTS, Overview, overview, seeds_text
from capi.experiments.sentences import Judgement
from capi.files.atomic import write_text
from capi.report.wording import count_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 110
PART_VERDICTS = {True: "holds", False: "fails", None: "open"}


def write_poster(folders: Mapping[str, str | Path], target: str | Path) -> Path | None:
    """Write one HTML page with the figures, claims and verdicts of experiments.

    The page contains its pictures, makes no network requests and can be read without anything installed.

    Parameters
    ----------
    folders : dict
        The folder of the results of each experiment, by its name; experiments without a finished run are left out.
    target : str or Path
        The file to write.

    Returns
    -------
    Path or None
        The path of the page; None if no experiment has a finished run, and nothing is written.
    """
    found = [one for one in (overview(name, folder) for name, folder in folders.items()) if one is not None]
    if not found:
        return None
    path = Path(target)
    write_text(path, poster_of(found))
    return path


def poster_of(overviews: Sequence[Overview]) -> str:
    """Return the page of some experiments."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("capi.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": count_text}
    counts = [one.n_verdicts() for one in overviews]
    tally = [(verdict, sum(count[verdict] for count in counts)) for verdict in VERDICTS]
    style = files("capi.report").joinpath("templates", "report.css").read_text(encoding="utf-8")
    return environment.get_template("poster.html").render(
        style=markupsafe.Markup(style),  # a file of this package
        parts=[_part(one) for one in overviews],
        tally=tally,
        n_judged=sum(number for _, number in tally),
        n_runs=sum(one.cost.n_runs for one in overviews),
        version=versions()["capi"],
    )


def _part(one: Overview) -> dict[str, Any]:
    judged = [each for each in one.judgements if each.verdict is not None]
    said = [each for each in one.judgements if each.verdict is None]
    title, headings, lines = one.summary
    return {
        "name": one.name,
        "title": one.title[:1].upper() + one.title[1:],
        "groups": [{"name": g.name, "n_records": g.n_records, "seeds": seeds_text(g.seeds)} for g in one.groups],
        "cpu_hours": number_text(one.cost.cpu_hours),
        "figures": [_picture(name, figure, one.title) for name, figure in one.figures().items()],
        "of_paper": bool(said),
        "judged": [
            {"says": each.sentence.says, "verdict": each.verdict, "ours": each.sentence.ours} for each in judged
        ],
        "evidence": list(_evidence(judged)),
        "said": [{"says": each.sentence.says, "ours": each.sentence.ours} for each in said],
        "summary_title": title,
        "headings": headings,
        "lines": lines,
    }


def _evidence(judged: Sequence[Judgement]) -> Iterator[dict[str, str]]:
    """Yield one row per difference, and one per claim without differences; each claim once, at its first sentence."""
    shown: set[str] = set()
    for number, judgement in enumerate(judged, 1):
        for name, claim in judgement.claims.items():
            if name not in shown:
                shown.add(name)
                yield from _rows(str(number), name, claim)


def _rows(number: str, name: str, claim: Claim) -> Iterator[dict[str, str]]:
    start = {"number": number, "claim": name}
    if not claim.differences:
        empty = dict.fromkeys(("mean", "interval", "seeds"), "")
        yield {**start, "part": claim.statement, **empty, "verdict": claim.verdict}
    for part, found in claim.differences.items():
        yield {**start, "part": part, **_numbers(found)}


def _numbers(found: Difference) -> dict[str, str]:
    interval = (
        "" if found.low is None or found.high is None else f"{number_text(found.low)} to {number_text(found.high)}"
    )
    return {
        "mean": number_text(found.mean),
        "interval": interval,
        "seeds": str(found.n_seeds),
        "verdict": PART_VERDICTS[found.supports],
    }


def _picture(name: str, figure: Figure, title: str) -> dict[str, Any]:
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
    width, height = figure.get_size_inches() * DOTS_PER_INCH
    return {
        "data": b64encode(picture.getvalue()).decode(),
        "alt": f"{title}: {Path(name).stem.replace('-', ' ')}; its numbers are below",
        "width": round(float(width)),
        "height": round(float(height)),
    }
