"""Render a record as one self-contained HTML page."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from os import fsencode
from pathlib import Path
from typing import Any

from capi._utils.late import jinja2, markupsafe
from capi.errors import InvalidInputError
from capi.files.atomic import write_text
from capi.report import charts, drawings
from capi.report.record import report_record
from capi.report.svg import TOLD_APART, colour_of
from capi.report.wording import count_text, hidden_text, number_text, percent_text, short
from capi.runs import RunSettings
from capi.runs.certify import CERTIFICATE
from capi.runs.diagnose import DIAGNOSIS
from capi.runs.fit import CHECKPOINT, EVALUATION, HISTORY, LOCK, POLICY, SETTINGS, VALUES
from capi.runs.secret import SECRET
from capi.runs.select import SELECTION

NAME = "report.html"
LONGEST_NAME = 200  # bytes: a longer temporary name is used while the file is written
IN_SCRIPT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_report(run: str | Path, out: str | Path | None = None, *, include_cases: bool = False) -> Path:
    r"""Write the report of a finished run as one HTML page and return its path.

    The page contains its pictures and its script, makes no network requests and can be sent to people who have nothing installed. The
    same run gives the same bytes.

    Parameters
    ----------
    run : str or Path
        The folder of a finished run; its table must still be where the run read it. The report includes ``values.zip`` and
        ``evaluation.json`` if the folder has them, and says so if it does not; and ``diagnosis.json``, ``certificate.json`` and ``selection.json``.
    out : str or Path, optional
        The file to write; ``report.html`` in the run's folder by default. It is written completely or not at all.
    include_cases : bool
        Whether to include up to 2,000 rows of the table, which lets a reader see the logged cases nearest to a state. Otherwise the page
        holds aggregates only, none of them over fewer than five rows.

    Returns
    -------
    Path

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from capi.runs import RunSettings, fit_run
    >>> with TemporaryDirectory() as folder:
    ...     table = Path(folder) / "visits.csv"
    ...     rows = [f"{age},{'drug' if age % 2 else 'none'},{age % 2 * (age - 45)}" for age in range(20, 80)]
    ...     _ = table.write_text("\n".join(["age,dose,gain", *rows]))
    ...     roles = {"state": ["age"], "action": "dose", "reward": "gain"}
    ...     settings = RunSettings(str(table), roles, discount=0.0, n_iterations=1, space="thresholds")
    ...     run = fit_run(settings, Path(folder) / "run").folder
    ...     page = write_report(run)
    ...     page.name, "What would it do?" in page.read_text(encoding="utf-8")
    ('report.html', True)
    """
    target = _target(Path(run), out)
    html = page_of(report_record(run, include_cases))
    write_text(target, html)
    return target


def _target(run: Path, out: str | Path | None) -> Path:
    """Return the path of the page; refuse invalid file names and the files that the report is built from."""
    target = run / NAME if out is None else Path(out)
    try:
        usable = 0 < len(fsencode(target.name)) <= LONGEST_NAME and "\0" not in str(target) and target.name != ".."
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInputError(f"out must be the name of a file, such as report.html; got {short(str(out))!r}.")
    try:
        return _apart(target, run)
    except (OSError, RuntimeError) as error:  # invalid parts of the path, or circular links
        raise InvalidInputError(
            f"out must be the name of a file, such as report.html: {short(str(error), 200)}."
        ) from error


def _apart(target: Path, run: Path) -> Path:
    """Return ``target``; refuse it if it is a folder or one of the files that the report is built from."""
    if target.is_dir():
        raise InvalidInputError(f"out must be a file; {target} is a folder. Choose another name.")
    kept = [
        run / name
        for name in (
            SETTINGS,
            POLICY,
            HISTORY,
            VALUES,
            EVALUATION,
            DIAGNOSIS,
            CERTIFICATE,
            SELECTION,
            CHECKPOINT,
            SECRET,
            LOCK,
        )
    ]
    if (run / SETTINGS).is_file():
        kept.append(Path(RunSettings.from_toml(run / SETTINGS).table))
    for path in kept:
        if target.resolve() == path.resolve() or (target.exists() and path.exists() and target.samefile(path)):
            raise InvalidInputError(f"out must not be {path}, which the report is built from. Choose another name.")
    return target


def page_of(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("capi.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count_text,
        "or_hidden": hidden_text,
        "percent": percent_text,
        "number": number_text,
    }
    environment.globals |= {"charts": charts, "drawings": drawings, "colour_of": colour_of, "told_apart": TOLD_APART}
    script = _template("report.js")
    return environment.get_template("report.html").render(
        record,
        style=markupsafe.Markup(_template("report.css")),  # a file of this package
        script=markupsafe.Markup(script),  # a file of this package
        script_hash=f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}",  # the only script allowed to run
        panel_data=markupsafe.Markup(script_json({"panel": record["panel"]})),  # cannot close its element
    )


def script_json(value: Any) -> str:
    """Return JSON that cannot close the script element around it; numbers keep all their digits."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, instead in IN_SCRIPT.items():
        text = text.replace(letter, instead)
    return text


def _template(name: str) -> str:
    return files("capi.report").joinpath("templates", name).read_text(encoding="utf-8")
