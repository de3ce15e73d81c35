"""Compiled equations and solver of the HIV model. Arguments are not checked here: `capi.domains.hiv` does that.

The solver is the embedded Runge-Kutta pair of Dormand and Prince (1980), orders 5 and 4, with error-controlled step size.
"""

import math

import numpy as np

from capi._utils.compile import compiled

N = 6  # T1, T2, T1*, T2*, V, E
SAFETY, LEAST_FACTOR, LARGEST_FACTOR = 0.9, 0.2, 5.0
FIRST_STEP, SMALLEST_STEP = 0.01, 1e-9  # days
MOST_STEPS = 1_000_000
FLOOR = 1e-6  # counts below it need no relative accuracy


@compiled
def rates(x, e1, e2, p, out):
    """Write dx/dt to ``out`` (6,), under drug efficacies ``e1`` (RTI) and ``e2`` (PI); ``p`` are the parameters in order."""
    T1, T2, I1, I2, V, E = x[0], x[1], x[2], x[3], x[4], x[5]
    lam1, d1, k1, lam2, d2, k2, f, delta = p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]
    m1, m2, NT, c, rho1, rho2 = p[8], p[9], p[10], p[11], p[12], p[13]
    lamE, bE, Kb, dE, Kd, deltaE = p[14], p[15], p[16], p[17], p[18], p[19]
    into1, into2 = (1.0 - e1) * k1 * T1, (1.0 - f * e1) * k2 * T2
    infected = I1 + I2
    out[0] = lam1 - d1 * T1 - into1 * V
    out[1] = lam2 - d2 * T2 - into2 * V
    out[2] = into1 * V - delta * I1 - m1 * E * I1
    out[3] = into2 * V - delta * I2 - m2 * E * I2
    out[4] = (1.0 - e2) * NT * delta * infected - c * V - (rho1 * into1 + rho2 * into2) * V
    out[5] = lamE + (bE * infected / (infected + Kb) - dE * infected / (infected + Kd) - deltaE) * E


@compiled
def advance(x, days, e1, e2, p, tolerance, k, trial):
    """Advance ``x`` (6,) by ``days`` in place; return whether that succeeded. ``k`` (7, 6) and ``trial`` (6,) are scratch.

    A step that makes a count negative is rejected: the exact counts are never negative.
    """
    rates(x, e1, e2, p, k[0])
    t, h, n_steps = 0.0, min(FIRST_STEP, days), 0
    while t < days:
        n_steps += 1
        if n_steps > MOST_STEPS:
            return False
        h = min(h, days - t)
        for i in range(N):
            trial[i] = x[i] + h * (1 / 5) * k[0, i]
        rates(trial, e1, e2, p, k[1])
        for i in range(N):
            trial[i] = x[i] + h * (3 / 40 * k[0, i] + 9 / 40 * k[1, i])
        rates(trial, e1, e2, p, k[2])
        for i in range(N):
            trial[i] = x[i] + h * (44 / 45 * k[0, i] - 56 / 15 * k[1, i] + 32 / 9 * k[2, i])
        rates(trial, e1, e2, p, k[3])
        for i in range(N):
            trial[i] = x[i] + h * (
                19372 / 6561 * k[0, i] - 25360 / 2187 * k[1, i] + 64448 / 6561 * k[2, i] - 212 / 729 * k[3, i]
            )
        rates(trial, e1, e2, p, k[4])
        for i in range(N):
            trial[i] = x[i] + h * (
                9017 / 3168 * k[0, i]
                - 355 / 33 * k[1, i]
                + 46732 / 5247 * k[2, i]
                + 49 / 176 * k[3, i]
                - 5103 / 18656 * k[4, i]
            )
        rates(trial, e1, e2, p, k[5])
        is_legal = True
        for i in range(N):
            trial[i] = x[i] + h * (
                35 / 384 * k[0, i]
                + 500 / 1113 * k[2, i]
                + 125 / 192 * k[3, i]
                - 2187 / 6784 * k[4, i]
                + 11 / 84 * k[5, i]
            )
            is_legal = is_legal and trial[i] >= 0.0  # False for NaN
        error = np.inf
        if is_legal:
            rates(trial, e1, e2, p, k[6])
            error = 0.0
            for i in range(N):
                difference = h * (
                    71 / 57600 * k[0, i]
                    - 71 / 16695 * k[2, i]
                    + 71 / 1920 * k[3, i]
                    - 17253 / 339200 * k[4, i]
                    + 22 / 525 * k[5, i]
                    - 1 / 40 * k[6, i]
                )
                error = max(error, abs(difference) / (tolerance * (max(x[i], trial[i]) + FLOOR)))
        if error <= 1.0:
            t += h
            for i in range(N):
                x[i] = trial[i]
                k[0, i] = k[6, i]
        elif not h > SMALLEST_STEP:
            return False
        factor = SAFETY * error**-0.2 if error > 0.0 else LARGEST_FACTOR
        h *= min(LARGEST_FACTOR, max(LEAST_FACTOR, factor))
    return True


@compiled
def logarithms(x, out):
    """Write log10 of each of ``x`` (n,) to ``out`` (n,), one by one: numpy's vector loops round differently on some processors."""
    for i in range(len(x)):
        out[i] = math.log10(x[i])


@compiled
def powers(base, x, out):
    """Write ``base`` to the power of each of ``x`` (n,) to ``out`` (n,), one by one; see `logarithms`.

    The base is an argument, because for a known base of ten the compiler may call another function.
    """
    for i in range(len(x)):
        out[i] = math.pow(base, x[i])


@compiled
def advance_all(states, efficacies, days, p, tolerance):
    """Advance each row of ``states`` (n, 6) in place, with its row of ``efficacies`` (n, 2); return the first that failed, or -1."""
    k, trial = np.empty((7, N)), np.empty(N)
    for i in range(len(states)):
        if not advance(states[i], days, efficacies[i, 0], efficacies[i, 1], p, tolerance, k, trial):
            return i
    return -1
