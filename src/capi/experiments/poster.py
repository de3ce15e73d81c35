"""One HTML page with the figures, claims and verdicts of all experiments."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capi._utils.late import jinja2, markupsafe
from capi._utils.versions import versions
from capi.experiments.comparison import number_text
from capi.experiments.evidence import RULES, evidence, tally_text
from capi.experiments.overview import VERDICTS, Overview, overview
from capi.files.atomic import write_text
from capi.report.wording import count_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS_PER_INCH = 110


def write_poster(folders: Mapping[str, str | Path], target: str | Path) -> Path | None:
    """Write one HTML page with the figures, claims and verdicts of experiments.

    The page contains its pictures, makes no network requests and can be read without anything installed.

    Parameters
    ----------
    folders : dict
        The folder of the results of each experiment, by its name; without a finished run all of its claims are open.
    target : str or Path
        The file to write.

    Returns
    -------
    Path or None
        The path of the page; None if no experiment has a finished run, and nothing is written.
    """
    found = [overview(name, folder) for name, folder in folders.items()]
    if not any(one.cost.n_runs for one in found):
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
    environment.filters |= {"count": count_text, "inline": inline}
    counts = [one.n_verdicts() for one in overviews]
    tally = [(verdict, sum(count[verdict] for count in counts)) for verdict in VERDICTS]
    style = files("capi.report").joinpath("templates", "report.css").read_text(encoding="utf-8")
    return environment.get_template("poster.html").render(
        style=markupsafe.Markup(style),  # a file of this package
        parts=[_part(one) for one in overviews],
        tally=tally,
        n_judged=sum(number for _, number in tally),
        n_runs=sum(one.cost.n_runs for one in overviews),
        rules=RULES,
        version=versions()["capi"],
    )


def _part(one: Overview) -> dict[str, Any]:
    judged = [each for each in one.judgements if each.verdict is not None]
    said = [each for each in one.judgements if each.verdict is None]
    title, headings, lines = one.summary
    return {
        "name": one.name,
        "title": one.title[:1].upper() + one.title[1:],
        "groups": [{"name": g.name, "n_records": g.n_records, "seeds": g.text} for g in one.groups],
        "cost": {
            "cpu_hours": number_text(one.cost.cpu_hours),
            "hours": number_text(one.cost.hours),
            "full_runs": one.cost.full_runs,
            "full_cpu_hours": number_text(one.cost.full_cpu_hours),
            "not_counted": one.cost.not_counted,
        },
        "made_by": [f"{made_by} ({count_text(n)} runs)" for made_by, n in sorted(one.made_by.items())],
        "versions": [f"{library} {version}" for library, version in one.versions.items()],
        "notes": one.notes,
        "figures": [_picture(name, figure, one.title) for name, figure in one.figures().items()],
        "of_paper": bool(said),
        "judged": [
            {"says": each.sentence.says, "verdict": each.verdict, "ours": each.ours, "tally": tally_text(each)}
            for each in judged
        ],
        "evidence": list(evidence(judged)),
        "said": [{"says": each.sentence.says, "ours": each.ours} for each in said],
        "summary_title": title,
        "headings": headings,
        "lines": lines,
    }


def inline(text: str) -> Any:
    """Return text as HTML: escaped, with Markdown's marks for code and emphasis.

    Examples
    --------
    >>> str(inline("`a<b` *holds*"))
    '<code>a&lt;b</code> <em>holds</em>'
    """
    found = str(markupsafe.escape(text))
    for mark, tag in (("`", "code"), (r"\*", "em")):
        found = re.sub(rf"{mark}([^`*]+){mark}", rf"<{tag}>\1</{tag}>", found)
    return markupsafe.Markup(found)  # escaped above


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
