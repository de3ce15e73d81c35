"""The conclusion of an evaluation: estimates and facts, put together with their caveats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capi.data.elapsed import discount_unit
from capi.offline.caveats import caveats_of, disagreement, dominance, headline, much_extrapolated
from capi.offline.estimate import Estimate
from capi.offline.evidence import BestAction, Comparison, Evidence
from capi.offline.facts import Facts
from capi.offline.log_checks import log_caveats
from capi.offline.sensitivity import Sensitivity
from capi.types import Policy


def concluded(
    policies: Mapping[str, list[Policy]],
    facts: Mapping[str, Facts],
    estimates: Mapping[Any, Estimate],
    best: BestAction | str,
    confounded: Mapping[str, Sensitivity | str],
    kind: str,
    *,
    source: str | None = None,
    sample_rows: int | None = None,
) -> Comparison:
    """Return the evidence about each policy.

    ``estimates`` are those of (name, method), and of ("", "behaviour"); ``best`` and ``confounded`` are reasons where there is no best action or
    sensitivity.
    """
    log = next(iter(facts.values())).log
    settings, of_log = log.settings, list(log_caveats(log))
    warned = {name: [*caveats_of(policies[name], f), *of_log] for name, f in facts.items()}
    method = headline(facts.values(), settings.methods) if settings.method == "auto" else settings.method
    behaviour = estimates["", "behaviour"]
    origin = "arrays" if log.batch.origin is None else log.batch.origin.name
    found: dict[str, Evidence] = {}
    for name, f in facts.items():
        mine = {m: estimates[name, m] for m in settings.methods}
        apart = disagreement(mine, method) if kind == "table" else None  # a single fold is too small
        more = (much_extrapolated(f.extrapolated_share), apart, dominance(mine[method], behaviour))
        missing = {"best_action": best, "sensitivity": confounded[name]}
        sensitivity = confounded[name]
        found[name] = Evidence(
            name=name,
            method=method,
            estimates=mine,
            behaviour=behaviour,
            behaviour_model=f.behaviour,
            effective_episodes=f.overlap.effective_episodes,
            rarely_taken_share=f.rarely_taken[0],
            extrapolated_share=f.extrapolated_share,
            warnings=(*warned[name], *(caveat for caveat in more if caveat is not None)),
            n_rows=f.n_rows,
            n_episodes=f.n_episodes,
            discount=settings.discount,
            level=settings.level,
            source=origin if source is None else source,
            kind=kind,
            discount_per=discount_unit(log.batch),
            best_action=best if isinstance(best, BestAction) else None,
            sensitivity=sensitivity if isinstance(sensitivity, Sensitivity) else None,
            unavailable={what: reason for what, reason in missing.items() if isinstance(reason, str)},
            sample_rows=sample_rows,
        )
    return Comparison(found)
