"""Random sparse combinations of columns, beside the columns themselves.

Trees cut one column at a time, so a rule such as "turn if angle plus speed is positive" takes many cuts. With combinations of two or
three columns among their inputs, a few suffice, and the trees still average rows: everything that holds for trees on columns holds
for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from capi._utils.validation import Floats, Ints

TERMS = 3  # at most
LARGEST = np.finfo(np.float64).max


@dataclass(frozen=True, eq=False)
class Projections:
    """k combinations of up to three columns; one with two terms has the first column twice, the second time with coefficient 0."""

    columns: Ints  # (k, 3)
    coefficients: Floats  # (k, 3)
    n_columns: int  # d

    @classmethod
    def drawn(cls, states: Floats, n: int, rng: np.random.Generator) -> Projections | None:
        """Draw ``n`` combinations of the columns of ``states`` (m, d), each divided by its standard deviation.

        Half of them have two terms, half three. None if ``n`` is 0 or fewer than two columns vary.
        """
        varies, scales = [], np.ones(states.shape[1])
        for j, column in enumerate(states.T):
            known = column[np.isfinite(column)]
            scale = float(np.std(known / np.abs(known).max()) * np.abs(known).max()) if known.any() else 0.0
            if 0 < scale < np.inf and np.isfinite(1 / scale):
                varies.append(j)
                scales[j] = scale
        if n == 0 or len(varies) < 2:
            return None
        columns, coefficients = np.empty((n, TERMS), dtype=np.int64), np.zeros((n, TERMS))
        for k in range(n):
            n_terms = min(len(varies), 2 + k % 2)
            chosen = rng.choice(varies, n_terms, replace=False)
            columns[k] = np.resize(chosen, TERMS)
            coefficients[k, :n_terms] = rng.normal(size=n_terms) / scales[chosen]
        return cls(columns, coefficients, states.shape[1])

    def rounded(self) -> Projections:
        """Return the combinations with coefficients of three digits, so that their names are short and exact."""
        short = [float(f"{c:.3g}") for c in self.coefficients.ravel()]
        return replace(self, coefficients=np.array(short).reshape(self.coefficients.shape))

    def __len__(self) -> int:
        return len(self.columns)

    def beside(self, inputs: Floats) -> Floats:
        """Return ``inputs`` (n, d) or (n, d + 1) with the combinations after the first d columns.

        A combination with a missing value is missing. Terms are added one by one, so that a row gives the same bytes alone and among others.
        """
        d, k = self.n_columns, len(self)
        out = np.empty((len(inputs), inputs.shape[1] + k))
        out[:, :d], out[:, d + k :] = inputs[:, :d], inputs[:, d:]
        with np.errstate(over="ignore", invalid="ignore"):
            for number in range(k):
                (i, j, m), (a, b, c) = self.columns[number], self.coefficients[number]
                column = a * inputs[:, i]
                column += b * inputs[:, j]
                if c != 0:
                    column += c * inputs[:, m]
                out[:, d + number] = np.clip(column, -LARGEST, LARGEST)
        return out

    def named(self, names: tuple[str, ...]) -> list[str]:
        """Return the combinations as exact formulas of the columns' ``names`` (d,)."""
        return [
            " ".join(
                f"{'-' if c < 0 else '+' if t else ''}{' ' if t else ''}{repr(abs(c)).removesuffix('.0')}*{names[j]}"
                for t, (j, c) in enumerate(zip(of_one, its, strict=True))
                if c != 0
            )
            or "0"
            for of_one, its in zip(self.columns.tolist(), self.coefficients.tolist(), strict=True)
        ]
