"""The timer used by all benchmarks."""

import time


def best_of(call, repeats=3, clock=time.perf_counter):
    """Return the least seconds of several calls, and the result of the last one; ``time.process_time`` counts those of the processor alone."""
    times = []
    for _ in range(repeats):
        started = clock()
        result = call()
        times.append(clock() - started)
    return min(times), result
