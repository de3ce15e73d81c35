"""The episodes that a policy was learned from: recognised in other data, without keeping them.

In memory, a policy knows its learning episodes by 128-bit digests of their content, and by their numbers where both batches are parts of
one table. Digests of small rows can be found by trying all rows, so they never leave the process: pickling drops them, and files do not
hold them. What is written, on request or to the folder of a run, is *sealed*: each digest goes through a slow function (scrypt) keyed
with a random secret, and episodes of a single row, which are the easiest to guess, are left out.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtrc

from capi._utils.validation import Floats, Ints
from capi.data.origin import Origin

if TYPE_CHECKING:
    from capi.data.transitions import Transitions

Digests = NDArray[np.bytes_]  # of 16 bytes each

KEPT = 1000  # sealed episodes; of more episodes, a random sample
SLOWNESS = {"n": 2**8, "r": 8, "p": 1}  # of scrypt: at least half a millisecond and 256 KiB per trial
SECRET_BYTES = 32
SEALED_BYTES = 16
EVERY = b"\xff" * 8  # the bound that all episodes meet
MORE_THAN_CHANCE = 2.0  # times as many matches as look-alikes explain
CHANCE = 0.01  # probability of as many matches if they were look-alikes
FEW, FEW_MATCHES = 0.01, 2  # up to this share or number, matches may be chance even if the data show no look-alikes


@dataclass(frozen=True, eq=False)
class LearnedEpisodes:
    """The learning episodes of a policy in this process.

    Parameters
    ----------
    digests : array of shape (E,)
    lengths : array of shape (E,)
        Number of rows.
    origin : Origin, optional
        The table that they were read from.
    numbers : array of shape (E,), optional
        Their numbers in that table.
    """

    digests: Digests = field(repr=False)
    lengths: Ints = field(repr=False)
    origin: Origin | None = field(default=None, repr=False)
    numbers: Ints | None = field(default=None, repr=False)

    @classmethod
    def of(cls, batch: Transitions) -> LearnedEpisodes:
        """Return the episodes of a batch."""
        return cls(batch.episode_digests(), batch.episode_lengths, batch.origin, _numbers(batch))

    @property
    def n_rows(self) -> int:
        """Number of rows of all of them."""
        return int(self.lengths.sum())

    def share_in(self, batch: Transitions) -> float | None:
        """Return the share of a batch's episodes that are among these.

        Episodes of the same table are compared by their numbers, which is exact. Others are compared by their content; the share is zero
        where episodes are so alike that about as many would match by chance.
        """
        numbers = _numbers(batch)
        if self.origin is not None and self.origin is batch.origin and self.numbers is not None and numbers is not None:
            return float(np.isin(numbers, self.numbers).mean())
        return _share(batch.episode_digests(), self.digests, len(self.digests), _n_twins(self.digests))

    def sealed(self, secret: bytes | None = None) -> SealedEpisodes | None:
        """Return what may be written: None if no episode has two rows. By default with a new secret."""
        key = secrets.token_bytes(SECRET_BYTES) if secret is None else secret
        several = self.digests[self.lengths > 1]
        if not len(several):
            return None
        tickets = {ticket: digest for digest in _as_bytes(np.unique(several)) for ticket in [_ticket(key, digest)]}
        kept = sorted(tickets)[:KEPT]
        bound = kept[-1] if len(kept) < len(tickets) else EVERY
        counted = _below(several, key, bound)
        sealed = frozenset(_seal(key, tickets[ticket]) for ticket in kept)
        return SealedEpisodes(key, bound, sealed, len(counted), _n_twins(counted))

    def __reduce__(self) -> tuple[Any, ...]:
        return _forgotten, ()

    def __copy__(self) -> LearnedEpisodes:
        return self

    def __deepcopy__(self, memo: Any) -> LearnedEpisodes:
        return self


@dataclass(frozen=True, eq=False)
class SealedEpisodes:
    """Learning episodes of at least two rows, or a random sample of them, in a form that is slow to search.

    Parameters
    ----------
    secret : bytes
        The key.
    bound : bytes
        Episodes whose ticket, a keyed hash of 8 bytes, is at most this belong to the sample.
    sealed : set of bytes
    n_episodes, n_twins : int
        Number of episodes in the sample, and how many of them look like another one.
    """

    secret: bytes = field(repr=False)
    bound: bytes = field(repr=False)
    sealed: frozenset[bytes] = field(repr=False)
    n_episodes: int
    n_twins: int

    def share_in(self, batch: Transitions) -> float | None:
        """Return the share of a batch's episodes that are among these, or None if there are none to compare."""
        several = batch.episode_digests()[batch.episode_lengths > 1]
        mine = _below(several, self.secret, self.bound)
        if not len(mine):
            return None
        distinct, which = np.unique(mine, return_inverse=True)
        known = np.array([_seal(self.secret, digest) in self.sealed for digest in _as_bytes(distinct)])
        return _share(mine, distinct[known], self.n_episodes, self.n_twins) if known[which].any() else 0.0


@dataclass(frozen=True)
class KnownShare:
    """Stands for the learning episodes when their share in a batch is known otherwise: zero for held-out episodes."""

    share: float

    def share_in(self, batch: Transitions) -> float | None:  # noqa: ARG002  the interface of the others
        """Return the share."""
        return self.share


Learned: TypeAlias = LearnedEpisodes | SealedEpisodes | KnownShare


def episode_digests(states: Floats, actions: Ints, rewards: Floats, starts: Ints) -> Digests:
    """Return a digest of the content of each episode (E,); ``states`` (n, d), the others (n,), first rows ``starts`` (E,)."""
    n = len(rewards)
    place = (np.arange(n) - np.repeat(starts, np.diff(starts, append=n))).astype(np.uint64)  # the order matters
    columns = [_bits(rewards), actions.astype(np.uint64), *(_bits(states[:, j]) for j in range(states.shape[1]))]
    halves = []
    for half in range(2):
        rows = np.zeros(n, dtype=np.uint64)
        for j, column in enumerate(columns):
            rows += _mixed(column + _mixed(np.array([2 * j + half], dtype=np.uint64)))
        halves.append(_mixed(np.add.reduceat(_mixed(rows + _mixed(place)), starts)))
    digests: Digests = np.ascontiguousarray(np.stack(halves, axis=1)).view("S16")[:, 0]
    return digests


def _share(mine: Digests, known: Digests, n_known: int, n_twins: int) -> float:
    """Return the share of ``mine`` that is among ``known``, or zero if look-alikes explain it.

    Of ``n_known`` learning episodes ``n_twins`` look like another learning episode: about the same share of new episodes does. So does,
    if there are fewer learning episodes than new ones, the share of twins among the new ones in proportion.
    """
    matches, n = int(np.isin(mine, known).sum()), len(mine)
    by_chance = max(n_twins * n / n_known, _n_twins(mine) * min(1.0, n_known / n))
    if by_chance:
        clear = pdtrc(matches - 1, MORE_THAN_CHANCE * by_chance) < CHANCE
    else:
        clear = matches > FEW * n and (matches > FEW_MATCHES or matches == n)
    return matches / n if matches and clear else 0.0


def _n_twins(digests: Digests) -> int:
    """Return how many of the episodes look like another one."""
    _, counts = np.unique(digests, return_counts=True)
    return int(counts[counts > 1].sum())


def _numbers(batch: Transitions) -> Ints | None:
    return None if batch.episodes is None else batch.episodes[batch.episode_starts]


def _below(digests: Digests, secret: bytes, bound: bytes) -> Digests:
    """Return the episodes that belong to the sample."""
    if bound == EVERY:
        return digests
    return digests[np.array([_ticket(secret, digest) <= bound for digest in _as_bytes(digests)], dtype=bool)]


def _ticket(secret: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(digest, key=secret, digest_size=len(EVERY)).digest()


def _seal(secret: bytes, digest: bytes) -> bytes:
    return hashlib.scrypt(digest, salt=secret, dklen=SEALED_BYTES, **SLOWNESS)


def _as_bytes(digests: Digests) -> list[bytes]:
    """Return each digest with all of its bytes: NumPy drops zeros at the end."""
    return [digest.ljust(16, b"\0") for digest in digests.tolist()]


def _forgotten() -> None:
    """Return what is left of learning episodes after pickling: nothing."""
    return


def _bits(values: Floats) -> NDArray[np.uint64]:
    """Return the bits of numbers in single precision, in which tables are often stored; -0 becomes 0, and all NaN are equal."""
    with np.errstate(over="ignore"):
        single = np.where(np.isnan(values), np.nan, values + 0.0).astype(np.float32)
    return single.view(np.uint32).astype(np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes in which every bit depends on every bit of ``values`` (the finaliser of splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
