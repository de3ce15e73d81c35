"""The timer used by all benchmarks."""

import time


def best_of(call, repeats=3):
    """Return the least seconds of several calls, and the result of the last one."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - started)
    return min(times), result
