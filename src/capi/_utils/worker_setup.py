"""What Dask runs in each worker of a cluster that a command has started on this machine.

A terminal sends Ctrl-C to all processes of a command. Workers leave it to the command, which saves what is finished and ends them; otherwise
each of them would print a traceback.
"""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001  the name and the argument are Dask's
    """Ignore Ctrl-C in this worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
