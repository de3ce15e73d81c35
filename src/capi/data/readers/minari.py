"""Minari data sets as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from capi._utils.late import gymnasium, minari
from capi._utils.validation import Floats, first_line
from capi.data.readers.spaces import observation_names, parts_of
from capi.errors import InvalidInputError


def arrays_of(dataset: Any) -> dict[str, Any]:
    """Return the arguments of `Transitions` for a data set or its id."""
    data = _loaded(dataset) if isinstance(dataset, str) else dataset
    if not hasattr(data, "iterate_episodes") or not hasattr(data, "action_space"):
        raise InvalidInputError(
            f"dataset must be the id of a Minari data set, or the data set itself; got {dataset!r}."
        )
    actions = data.action_space
    if not isinstance(actions, gymnasium.spaces.Discrete):
        raise InvalidInputError(f"the action space of the data set must be finite (Discrete); it is {actions}.")
    parts = [
        _episode(number, episode, data.observation_space) for number, episode in enumerate(data.iterate_episodes())
    ]
    if not parts:
        raise InvalidInputError("the data set must have at least one episode with a step; it has none.")
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    arrays["actions"] = arrays["actions"] - int(actions.start)
    labels = range(int(actions.start), int(actions.start + actions.n))
    return {**arrays, "feature_names": list(observation_names(data.observation_space)), "action_labels": list(labels)}


def _loaded(name: str) -> Any:
    try:
        load_dataset = minari.load_dataset
    except ImportError as error:
        raise InvalidInputError(
            "reading Minari data sets needs the package minari: pip install 'capi[minari]'."
        ) from error
    try:
        return load_dataset(name)
    except Exception as error:  # whatever Minari and the libraries that read its files raise
        raise InvalidInputError(
            f"the Minari data set {name!r} cannot be loaded: {first_line(error)}. Check its id, or fetch it: minari download {name}"
        ) from error


def _episode(number: int, episode: Any, space: Any) -> dict[str, Any]:
    observations = _flat(episode.observations, space)  # (T + 1, d)
    n = len(episode.rewards)
    if len(observations) != n + 1:
        raise InvalidInputError(
            f"an episode must have one more observation than steps; episode {number} has {n} steps and "
            f"{len(observations)} observations."
        )
    return {
        "states": observations[:-1],
        "actions": np.asarray(episode.actions, dtype=np.int64).reshape(n),
        "rewards": np.asarray(episode.rewards, dtype=np.float64),
        "next_states": observations[1:],
        "terminated": np.asarray(episode.terminations, dtype=bool),
        "episodes": np.full(n, number),
    }


def _flat(observations: Any, space: Any) -> Floats:
    """Return the observations of an episode (T + 1, d)."""
    if isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple):
        return np.concatenate([_flat(observations[key], part) for key, part in parts_of(space)], axis=1)
    array = np.asarray(observations, dtype=np.float64)
    return array.reshape(len(array), -1)
