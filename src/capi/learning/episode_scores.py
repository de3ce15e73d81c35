"""A score that compares policies on one batch: what they get in episodes that are put together from the batch's steps.

In the model that a batch and trees are, states move to where similar rows went, so a policy moves along by averaging alone: on pole balancing nearly
every iterate never falls there. In episodes of `capi.simulation.logged_steps` a state moves by as much as similar rows did, which tells such
iterates apart. Where the log has never been, these episodes know nothing either, and a careless policy may fare best there. So the score counts, for a quarter, what
a policy gets if decisions far from the log are dangerous. Trees with other cuts make another world, in which another policy may be ahead, so the best few are
compared in several. Like any score on the rows that the policies were learned from, it is never evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capi._utils.threads import available_cores
from capi._utils.validation import Bools, Floats, Ints
from capi.data.transitions import Transitions
from capi.evaluators.averager import checked_starts
from capi.learning.rules import horizon
from capi.policies import changes_with_time, decided
from capi.simulation.logged_steps import Surroundings, spread_starts, states_move
from capi.types import Policy, StateSample

N_EPISODES = 60  # in each world
FINALISTS = 5  # policies that are compared again
MORE_WORLDS = 3  # in which they are, each with trees of its own
MOST_ROWS = 100_000  # whose steps are put together; of larger batches some episodes
CAREFUL = 0.25  # share of the return with care in the score


@dataclass(frozen=True, eq=False)
class EpisodeScores:
    """Mean returns of policies in simulated episodes; those of the finalists are means over all worlds, the others come from the first one."""

    plain: Floats  # (P,)
    careful: Floats  # (P,), with decisions far from the log counted as dangerous
    finalists: Bools  # (P,)

    @property
    def values(self) -> Floats:
        """The score of each policy (P,): its mean return, in a quarter of the episodes with care."""
        return _score(self.plain, self.careful)

    @property
    def best(self) -> int:
        """The finalist with the largest score, the first in case of a tie."""
        return int(np.argmax(np.where(self.finalists, self.values, -np.inf)))


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
    states, masks = spread_starts(checked_starts(starts, batch), N_EPISODES)
    different, places = _different(policies, sample)

    def in_world(number: int, chosen: Sequence[Policy]) -> Floats:
        """Return the plain and the careful mean returns of policies (2, k) in one world."""
        world = Surroundings.of(sample, None, discount, seed + number, available_cores())
        found = world.returns(chosen, states, masks, n_steps, seed + number)
        return np.stack([found.plain.mean(axis=1), found.careful.mean(axis=1)])

    means = in_world(0, different)
    finalists = np.argsort(-_score(*means), kind="stable")[:FINALISTS]
    if len(finalists) > 1:
        again = [in_world(number, [different[i] for i in finalists]) for number in range(1, 1 + MORE_WORLDS)]
        means[:, finalists] = np.mean([means[:, finalists], *again], axis=0)
    plain, careful = means[:, places]
    return EpisodeScores(plain, careful, np.isin(places, finalists))


def _score(plain: Floats, careful: Floats) -> Floats:
    return (1 - CAREFUL) * plain + CAREFUL * careful


def _different(policies: Sequence[Policy], sample: Transitions) -> tuple[list[Policy], Ints]:
    """Return the policies that decide differently on a batch, and the place of each policy among them (P,); the loop often returns to the same ones."""
    known: dict[bytes, int] = {}
    different: list[Policy] = []
    places: Ints = np.empty(len(policies), dtype=np.int64)
    for number, policy in enumerate(policies):
        decisions = decided(policy, sample.states, sample.allowed).tobytes()
        places[number] = known.setdefault(decisions, len(different))
        if places[number] == len(different):
            different.append(policy)
    return different, places


def _some_episodes(batch: Transitions, seed: int) -> Transitions:
    """Return the batch, or some of its episodes with `MOST_ROWS` rows or little more."""
    if len(batch) <= MOST_ROWS:
        return batch
    order = np.random.default_rng(seed).permutation(batch.n_episodes)
    n = int(np.searchsorted(np.cumsum(batch.episode_lengths[order]), MOST_ROWS)) + 1
    chosen = np.zeros(batch.n_episodes, dtype=bool)
    chosen[order[:n]] = True
    return batch.subset(np.repeat(chosen, batch.episode_lengths))
