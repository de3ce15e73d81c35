"""Write the golden policy files of this format version with their decisions: ``python scripts/make_golden_files.py``.

Golden files never change: existing files are not overwritten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from capi import save_policy
from capi.files.policy_file import VERSION

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "files" / "golden"
N_STATES = 40


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from files.all_kinds import masks, policies  # noqa: PLC0415  in the tests folder

    FOLDER.mkdir(exist_ok=True)
    for name, (policy, all_states) in policies().items():
        place = FOLDER / f"v{VERSION}-{name}.capi"
        if place.exists():
            continue
        states = all_states[:: max(1, len(all_states) // N_STATES)]
        allowed = masks(policy, states)
        save_policy(policy, place, settings={"name": name}, with_states=True)
        known = {
            "states": [[None if np.isnan(x) else float(x) for x in state] for state in states],
            "allowed": None if allowed is None else allowed.astype(int).tolist(),
            "actions": policy.act(states, allowed).tolist(),
        }
        place.with_suffix(".json").write_text(json.dumps(known) + "\n")
        print(place)


if __name__ == "__main__":
    main()
