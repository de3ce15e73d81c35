"""Which episodes a policy was learned from, in a few kilobytes and without the episodes.

An episode's fingerprint is a 64-bit hash of its states and rewards. Of many only the smallest `KEPT` are kept, a sketch: they are a uniform
sample of the episodes, and whoever has an episode can tell whether it is one of them. So a policy can travel with the sketch of its learning
episodes, and whoever evaluates it finds out which share of theirs it has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, Ints

KEPT = 512
FEW_ALIKE = 0.03  # share of repeated episodes that are rather copies than look-alikes
Hashes = NDArray[np.uint64]


def episode_hashes(states: Floats, rewards: Floats, starts: Ints) -> Hashes:
    """Return a number for the content of each episode (E,); ``states`` (n, d), ``rewards`` (n,), first rows ``starts`` (E,)."""
    n = len(rewards)
    rows = _mixed(_bits(rewards))
    for j in range(states.shape[1]):
        rows += _mixed(_bits(states[:, j]) + np.uint64(j + 1))
    lengths = np.diff(starts, append=n)
    place = np.arange(n) - np.repeat(starts, lengths)  # in its episode: the order counts
    return _mixed(np.add.reduceat(_mixed(rows + place.astype(np.uint64)), starts))


def sketch(hashes: Hashes) -> tuple[str, ...]:
    """Return the smallest of ``hashes``, in order, as text that any file can hold."""
    smallest = np.unique(hashes)[:KEPT]
    return tuple(f"{int(value):016x}" for value in smallest)


def share_known(hashes: Hashes, known: Sequence[str]) -> float:
    """Return about which share of the episodes with ``hashes`` (E,) belong to those whose sketch is ``known``.

    Exact if the sketch holds all of them; else judged by the episodes that would be in it. Where episodes are so alike that about as many
    would be known by chance, the number is zero: nothing is known then.
    """
    values = np.array([int(text, 16) for text in known], dtype=np.uint64)
    whole = len(values) < KEPT
    comparable = hashes if whole or not len(values) else hashes[hashes <= values.max()]
    if not len(values) or not len(comparable):
        return 0.0
    share = float(np.isin(comparable, values).mean())
    n_known = len(values) if whole else KEPT * 2.0**64 / (float(values.max()) + 1.0)
    _, copies = np.unique(hashes, return_counts=True)
    repeated = float(copies[copies > 1].sum()) / len(
        hashes
    )  # have their like among the others, and so among as many more
    by_chance = repeated * max(1.0, n_known / len(hashes))
    few_alike = repeated < FEW_ALIKE and share > 0.5  # a table that holds some rows twice
    return share if share > 2 * by_chance or few_alike else 0.0


def _bits(values: Floats) -> Hashes:
    """Return the bits of numbers in single precision, in which tables are often kept; -0 is 0, and there is one NaN."""
    with np.errstate(over="ignore"):
        single = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float32)
    return single.view(np.uint32).astype(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Return numbers of which every bit depends on every bit of the given ones (the finaliser of splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
