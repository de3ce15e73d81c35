"""Sketches: a record, in a few kilobytes, of the episodes that a policy was learned from, without the episodes.

An episode's fingerprint is a 64-bit hash of its states and rewards. A sketch keeps only the smallest `KEPT` hashes: they
are a uniform sample of the episodes, and anyone who has an episode can check whether it is one of them. A policy can thus
carry the sketch of its training episodes, and an evaluation can estimate which share of its own episodes the policy has seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from capi._utils.validation import Floats, Ints

KEPT = 512
FEW_ALIKE = 0.03  # below this share, repeated episodes are probably copies rather than look-alikes
Hashes = NDArray[np.uint64]


def episode_hashes(states: Floats, rewards: Floats, starts: Ints) -> Hashes:
    """Return a hash of the content of each episode (E,); ``states`` (n, d), ``rewards`` (n,), first rows ``starts`` (E,)."""
    n = len(rewards)
    rows = _mixed(_bits(rewards))
    for j in range(states.shape[1]):
        rows += _mixed(_bits(states[:, j]) + np.uint64(j + 1))
    lengths = np.diff(starts, append=n)
    place = np.arange(n) - np.repeat(starts, lengths)  # position in its episode: the order matters
    return _mixed(np.add.reduceat(_mixed(rows + place.astype(np.uint64)), starts))


def sketch(hashes: Hashes) -> tuple[str, ...]:
    """Return the smallest of ``hashes``, in increasing order, as text."""
    smallest = np.unique(hashes)[:KEPT]
    return tuple(f"{int(value):016x}" for value in smallest)


def share_known(hashes: Hashes, known: Sequence[str]) -> float:
    """Return the approximate share of the episodes with ``hashes`` (E,) that belong to those whose sketch is ``known``.

    The share is exact if the sketch holds all of them; otherwise it is estimated from the episodes that would be in it. It
    is zero where episodes are so alike that about as many would match by chance: nothing is known then.
    """
    values = np.array([int(text, 16) for text in known], dtype=np.uint64)
    whole = len(values) < KEPT
    comparable = hashes if whole or not len(values) else hashes[hashes <= values.max()]
    if not len(values) or not len(comparable):
        return 0.0
    share = float(np.isin(comparable, values).mean())
    n_known = len(values) if whole else KEPT * 2.0**64 / (float(values.max()) + 1.0)
    _, copies = np.unique(hashes, return_counts=True)
    # Repeated episodes match another one in this batch, and so would match one in a batch of the same size.
    repeated = float(copies[copies > 1].sum()) / len(hashes)
    by_chance = repeated * max(1.0, n_known / len(hashes))
    few_alike = repeated < FEW_ALIKE and share > 0.5  # a table with some duplicated rows
    return share if share > 2 * by_chance or few_alike else 0.0


def _bits(values: Floats) -> Hashes:
    """Return the bits of numbers in single precision, in which tables are often stored; -0 becomes 0, and all NaN are equal."""
    with np.errstate(over="ignore"):
        single = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float32)
    return single.view(np.uint32).astype(np.uint64)


def _mixed(values: Hashes) -> Hashes:
    """Return hashes in which every bit depends on every bit of ``values`` (the finaliser of splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
