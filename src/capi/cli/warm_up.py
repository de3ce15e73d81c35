"""The command that compiles all kernels ahead of their first use."""

from __future__ import annotations

from time import monotonic

import typer

from capi import runs
from capi.cli.app import app
from capi.cli.output import Json, print_json
from capi.cli.progress import shown_work


@app.command(epilog="Example: NUMBA_CACHE_DIR=/opt/capi-cache capi warm-up")
def warm_up(as_json: Json = False) -> None:
    """Compile all kernels and store their machine code ahead of time, for container images and clusters.

    This takes minutes the first time, and seconds if everything is stored already. The machine code fits one type of
    processor. It is stored in NUMBA_CACHE_DIR if that is set, otherwise next to the package, otherwise in the user's cache.
    """
    seconds: dict[str, float] = {}
    with shown_work("starting") as work:
        for part, compile_part in runs.parts_to_compile().items():
            started, work.text = monotonic(), f"compiling {part}"
            compile_part()
            seconds[part] = monotonic() - started
            if not as_json:
                typer.echo(f"{part}: {seconds[part]:.0f} s")
    stored = runs.stored_machine_code()
    if as_json:
        print_json({"seconds": seconds, "cache": {str(folder): size for folder, size in stored.items()}})
        return
    for folder, size in stored.items():
        typer.echo(f"cache  {folder}  {size / 2**20:.1f} MB")
    if not stored:
        typer.echo("cache  none: no folder is writable. Set NUMBA_CACHE_DIR to a writable folder.")
