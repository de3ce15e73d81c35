"""One clock for all benchmarks."""

import time


def best_of(call, repeats=3):
    """Return the least seconds of several calls, and what the last one returned."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - started)
    return min(times), result
