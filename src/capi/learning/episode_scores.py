"""A score that compares policies on one batch: what they get in episodes that are put together from the batch's steps.

In the model that a batch and trees are, states move to where similar rows went, so a policy moves along by averaging alone: on pole balancing nearly
every iterate never falls there. In episodes of `capi.simulation.logged_steps` a state moves by as much as similar rows did, which tells such
iterates apart. Where the log has never been, these episodes know nothing either, and a careless policy may fare best there. So the score counts, for a quarter, what
a policy gets if decisions far from the log are dangerous. Like any score on the rows that the policies were learned from, it is never evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capi._utils.threads import available_cores, one_blas_thread
from capi._utils.validation import Floats
from capi.data.transitions import Transitions
from capi.evaluators.averager import checked_starts
from capi.learning.rules import horizon
from capi.policies import changes_with_time, decided
from capi.simulation.logged_steps import Returns, Surroundings, spread_starts, states_move
from capi.types import Policy, StateSample

N_EPISODES = 60
MOST_ROWS = 100_000  # whose steps are put together; of larger batches some episodes
CAREFUL = 0.25  # share of the return with care in the score


@dataclass(frozen=True, eq=False)
class EpisodeScores:
    """Returns of policies in the same number of simulated episodes, (policies, episodes) each."""

    plain: Floats
    careful: Floats  # with decisions far from the log counted as dangerous

    @property
    def values(self) -> Floats:
        """The score of each policy (P,): its mean return, in a quarter of the episodes with care."""
        return (1 - CAREFUL) * self.plain.mean(axis=1) + CAREFUL * self.careful.mean(axis=1)

    @property
    def best(self) -> int:
        """The policy with the largest score, the first in case of a tie."""
        return int(np.argmax(self.values))


def episode_scores(
    policies: Sequence[Policy], batch: Transitions, discount: float, starts: StateSample | None, seed: int
) -> EpisodeScores | None:
    """Return the scores of ``policies``; None if the batch is no log of a process whose states move.

    That is so if nothing follows a decision, or if its states repeat, as those of a finite process: then averages over rows flatter nobody.
    """
    n_steps = horizon(batch, discount)
    if n_steps == 1 or not states_move(batch):
        return None
    if any(changes_with_time(policy) for policy in policies):
        return None
    sample = _some_episodes(batch, seed)
    world = Surroundings.of(sample, None, discount, seed, available_cores())
    states, masks = spread_starts(checked_starts(starts, batch), N_EPISODES)
    alike: dict[
        bytes, list[int]
    ] = {}  # policies that decide alike on the batch; the loop often returns to the same ones
    for number, policy in enumerate(policies):
        alike.setdefault(decided(policy, sample.states, sample.allowed).tobytes(), []).append(number)
    with one_blas_thread():
        found = world.returns([policies[numbers[0]] for numbers in alike.values()], states, masks, n_steps, seed)
    places = np.empty(len(policies), dtype=np.int64)
    for place, numbers in enumerate(alike.values()):
        places[numbers] = place
    return EpisodeScores(*Returns(found.plain[places], found.careful[places]))


def _some_episodes(batch: Transitions, seed: int) -> Transitions:
    """Return the batch, or some of its episodes with `MOST_ROWS` rows or little more."""
    if len(batch) <= MOST_ROWS:
        return batch
    order = np.random.default_rng(seed).permutation(batch.n_episodes)
    n = int(np.searchsorted(np.cumsum(batch.episode_lengths[order]), MOST_ROWS)) + 1
    chosen = np.zeros(batch.n_episodes, dtype=bool)
    chosen[order[:n]] = True
    return batch.subset(np.repeat(chosen, batch.episode_lengths))
