"""Print the lowest versions that pyproject.toml allows, as requirements for pip: ``python scripts/lowest.py``.

The list covers all dependencies, the extras that the tests use, and the test tools. Indirect dependencies are not pinned.
"""

import sys
import tomllib
from pathlib import Path

EXTRAS = ("ann", "gymnasium", "minari", "onnx", "plot", "polars")


def lowest(requirement):
    name, separator, floor = requirement.replace(" ", "").partition(">=")
    if not separator or any(sign in floor for sign in ",;<!"):
        sys.exit(f"pyproject.toml: each requirement must be name>=version; got {requirement!r}")
    return f"{name}=={floor}"


def main():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    requirements = [*project["project"]["dependencies"], *project["dependency-groups"]["test"]]
    requirements += [requirement for extra in EXTRAS for requirement in extras[extra]]
    print(*sorted({lowest(requirement) for requirement in requirements}), sep="\n")


if __name__ == "__main__":
    main()
