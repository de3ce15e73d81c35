"""Kernels that simulate cart and pole.

The equations are those of Wieland, "Evolving neural network controllers for unstable systems" (1991), with the pole's
angle from upright and gravity as a positive number. Acceleration does not depend on the position.

Poles are independent of each other, so the compiler can advance several with one instruction. This requires states in
columns and loops over poles that do not branch, raise or call: hence our own sine, ``inline``, and numpy's division.
It makes Runge-Kutta four times as fast, and independent of the machine's sine.
"""

import math

from capi._utils.compile import compiled_unchecked, inlined

GRAVITY = 9.8  # m/s^2
CART_MASS = 1.0  # kg
POLE_MASS = 0.1  # kg
HALF_LENGTH = 0.5  # m, from the hinge to the pole's centre of mass

ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds to a whole number, halves to even
PI_HIGH, PI_MIDDLE, PI_LOW = map(float.fromhex, ("0x1.921fb54p+1", "0x1.10b46118p-29", "0x1.313198a2e037p-60"))
S3, S5, S7, S9, S11, S13, S15, S17, S19, S21 = ((-1.0) ** k / math.factorial(2 * k + 1) for k in range(1, 11))
C2, C4, C6, C8, C10, C12, C14, C16, C18, C20, C22 = ((-1.0) ** k / math.factorial(2 * k) for k in range(1, 12))


@inlined
def sine_and_cosine(angle):
    """Return sine and cosine with an error below 1e-15, for angles up to a million.

    Both are Taylor series of the angle's remainder after whole half-turns; each half-turn changes the signs. The high and
    the middle part of pi have few enough digits for their products to be exact.
    """
    turns = (angle * (1.0 / math.pi) + ROUND) - ROUND
    r = ((angle - turns * PI_HIGH) - turns * PI_MIDDLE) - turns * PI_LOW
    pairs = turns * 0.5
    sign = 1.0 - 4.0 * abs(pairs - ((pairs + ROUND) - ROUND))
    z = r * r
    series = S13 + z * (S15 + z * (S17 + z * (S19 + z * S21)))
    sine = r + r * z * (S3 + z * (S5 + z * (S7 + z * (S9 + z * (S11 + z * series)))))
    series = C12 + z * (C14 + z * (C16 + z * (C18 + z * (C20 + z * C22))))
    cosine = 1.0 + z * (C2 + z * (C4 + z * (C6 + z * (C8 + z * (C10 + z * series)))))
    return sign * sine, sign * cosine


@inlined
def accelerations(velocity, angle, angular_velocity, force, pole_friction, cart_friction):
    """Return the accelerations of the cart and of the angle."""
    sine, cosine = sine_and_cosine(angle)
    fall = pole_friction / (POLE_MASS * HALF_LENGTH) * angular_velocity - GRAVITY * sine
    swing = POLE_MASS * (HALF_LENGTH * angular_velocity * angular_velocity * sine + 0.75 * cosine * fall)
    direction = 1.0 * (velocity > 0.0) - 1.0 * (velocity < 0.0)
    mass = CART_MASS + POLE_MASS * (1.0 - 0.75 * cosine * cosine)
    acceleration = (force - cart_friction * direction + swing) / mass
    return acceleration, -0.75 / HALF_LENGTH * (acceleration * cosine + fall)


@compiled_unchecked
def euler(columns, forces, h, n_steps, pole_friction, cart_friction):
    """Move the states in ``columns`` (4, n), in place, by ``n_steps`` Euler steps of ``h`` seconds under ``forces`` (n,).

    Positions change with the velocities from before the step.
    """
    xs, vs, angles, ws = columns[0], columns[1], columns[2], columns[3]
    for _ in range(n_steps):
        for i in range(len(forces)):
            v, angle, w = vs[i], angles[i], ws[i]
            a, b = accelerations(v, angle, w, forces[i], pole_friction, cart_friction)
            xs[i] += h * v
            vs[i] = v + h * a
            angles[i] = angle + h * w
            ws[i] = w + h * b


@compiled_unchecked
def rk4(columns, forces, h, n_steps, pole_friction, cart_friction):
    """Move the states in ``columns`` (4, n), in place, by ``n_steps`` classical Runge-Kutta steps of order 4.

    Each step lasts ``h`` seconds; ``forces`` (n,) act throughout.
    """
    xs, vs, angles, ws = columns[0], columns[1], columns[2], columns[3]
    for _ in range(n_steps):
        for i in range(len(forces)):
            v, angle, w, force = vs[i], angles[i], ws[i], forces[i]
            a1, b1 = accelerations(v, angle, w, force, pole_friction, cart_friction)
            v2, w2 = v + h / 2 * a1, w + h / 2 * b1
            a2, b2 = accelerations(v2, angle + h / 2 * w, w2, force, pole_friction, cart_friction)
            v3, w3 = v + h / 2 * a2, w + h / 2 * b2
            a3, b3 = accelerations(v3, angle + h / 2 * w2, w3, force, pole_friction, cart_friction)
            v4, w4 = v + h * a3, w + h * b3
            a4, b4 = accelerations(v4, angle + h * w3, w4, force, pole_friction, cart_friction)
            xs[i] += h / 6 * (v + 2 * (v2 + v3) + v4)
            vs[i] = v + h / 6 * (a1 + 2 * (a2 + a3) + a4)
            angles[i] = angle + h / 6 * (w + 2 * (w2 + w3) + w4)
            ws[i] = w + h / 6 * (b1 + 2 * (b2 + b3) + b4)
