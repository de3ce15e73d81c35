"""Names of the columns of Gymnasium's observation spaces, the same for environments and for Minari data sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from capi._utils.late import gymnasium
from capi.errors import InvalidInputError


def parts_of(space: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and spaces of a dictionary or tuple."""
    yield from space.spaces.items() if isinstance(space, gymnasium.spaces.Dict) else enumerate(space.spaces)


def observation_names(space: Any, prefix: str = "") -> Iterator[str]:
    """Yield a name for each number of an observation: obs_0, obs_1, ... of a box, the keys of a dictionary.

    Examples
    --------
    >>> from gymnasium.spaces import Box, Dict
    >>> list(observation_names(Box(-1, 1, (2,))))
    ['obs_0', 'obs_1']
    >>> list(observation_names(Dict({"at": Box(-1, 1, (1,)), "speed": Box(-1, 1, (2,))})))
    ['at', 'speed0', 'speed1']
    """
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from observation_names(part, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(space, spaces.Discrete):
        yield prefix or "state"
    elif isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        size = int(np.prod(space.shape))
        yield from (prefix,) if size == 1 and prefix else (f"{prefix or 'obs_'}{j}" for j in range(size))
    else:
        raise InvalidInputError(
            f"observations must be boxes, finite states, or dictionaries and tuples of them; got {space}."
        )
