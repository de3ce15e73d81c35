"""The certificate of a run as the page shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from capi.report.evaluation import number_or_none
from capi.report.run_records import read_run_record
from capi.report.wording import short
from capi.runs.certify import CERTIFICATE, FORMAT

ROWS = {
    "held_out_loss": ("Held-out loss", "of the last improvement, on the half of the data that it was not learned from"),
    "loss_bound": ("Bound", "on the expected loss"),
    "least_loss": ("Least loss of the policy space", "on the same held-out half"),
    "excess_bound": ("Bound on the excess", "over the best policy of the space"),
    "values_loss": (
        "Uncertain values",
        "what decisions that are best by one half lose by the other; an estimate, not a bound",
    ),
    "stakes": ("Worst decisions", "a bound above this says nothing"),
}
LONGEST_VERDICT = 800  # characters


def certificate_record(folder: Path) -> dict[str, Any] | None:
    """Return the certificate in a run's folder as rows and a sentence, or None if there is none, or one of another policy."""
    found = read_run_record(folder, CERTIFICATE, FORMAT, "capi certify")
    if found is None:
        return None
    delta = number_or_none(found.get("delta"))
    return {
        "verdict": short(str(found.get("verdict", "")), LONGEST_VERDICT),
        "rows": [
            {"name": name, "value": number_or_none(found.get(key)), "words": words, "main": key == "loss_bound"}
            for key, (name, words) in ROWS.items()
        ],
        "n_draws": number_or_none(found.get("n_draws")),
        "per_episode": number_or_none(found.get("per_episode")),
        "confidence": 1 - delta if delta is not None and 0 < delta < 1 else None,
    }
