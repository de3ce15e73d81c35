"""Settings of HIV treatment. The paper does not state the number of iterations or whether methods share their data.

"own": each method collects its own rounds, as in the protocol of Ernst et al., with paired seeds; "shared": all methods
learn from the one batch that Tree-FQI's rounds have collected; "embedded": they learn from the batch that comes with the
package. The paper's trees for values have eta_v 50 and are grown in every sweep; here they are kept for ten sweeps, and
the groups with eta_v 5 and with new trees show the effect of those choices.
"""

from collections.abc import Iterable
from typing import Any

from capi.experiments.setting import Setting, Size

ETAS = (2, 10, 20, 50, 100, 200, 300, 500, 1000, 2000)  # smallest node of a policy tree that may split
SEEDS = {"quick": 1, "full": 50}

PROTOCOL = {"n_patients": 30, "n_steps": 200, "n_rounds": 10, "exploration": 0.15}
LEARNING = {"n_trees": 30, "eta_v": 50, "n_iterations": 400, "refresh_every": 10}
LAST = {
    "n_last": 5,
    "last_every": 10,
}  # iterates whose returns are recorded: the final one and some before, which may differ a lot
RETURN_STEPS = 1000  # 5000 days


def settings(size: Size) -> list[Setting]:
    """Return one setting per kind of data, kind of value trees and method.

    The quick size learns from the embedded batch, five rounds instead of ten, with half as many iterations.
    """
    if size == "quick":
        return _group("embedded", {"data": "embedded"}, (None, 20, 500), n_iterations=200)
    own, shared = {"data": "own", **PROTOCOL}, {"data": "shared", **PROTOCOL}
    return [
        *_group("own", own, (None, *ETAS)),
        *_group("shared", shared, (None, *ETAS)),
        *_group("own-eta_v-5", own, (None, 20, 100, 500), eta_v=5),
        *_group("own-new-trees", own, (None, 20), refresh_every=1),
    ]


def _group(name: str, data: dict[str, Any], etas: Iterable[int | None], **changes: int) -> list[Setting]:
    """Return one setting per method; None is Tree-FQI, and a number is Tree-CAPI with that eta_pi."""
    return [
        Setting(
            f"{name}/" + ("tree-fqi" if eta is None else f"tree-capi-{eta}"),
            {"group": name, **data, **LEARNING, **LAST, **changes, "eta_pi": eta},
        )
        for eta in etas
    ]
