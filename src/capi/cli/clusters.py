"""The option that names a cluster, shared by the commands whose work can be divided."""

from __future__ import annotations

from typing import Annotated

import typer

Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Work on a Dask cluster: the address of its scheduler, or local to start one on this machine. The result does not depend on it. Tables "
        "of at most a million rows are read into the memory of this machine.",
        show_default="this machine alone",
    ),
]
