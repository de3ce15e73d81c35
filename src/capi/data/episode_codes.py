"""Numbers for episode ids that are the same wherever an episode is met: in any file, partition or process."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from capi._utils.late import pandas as pd

WHOLE_FLOATS = 2.0**63  # whole floats below are numbers like any other


def codes_of(ids: Any) -> NDArray[np.uint64]:
    """Return a number for each id (E,): whole numbers keep theirs, whatever their type; texts, dates and others get a hash.

    Examples
    --------
    >>> codes_of(np.array([3, 5])).tolist() == codes_of(np.array([3.0, 5.0])).tolist() == [3, 5]
    True
    >>> len(set(codes_of(["3", "5", 3]).tolist()))
    3
    """
    given = np.asarray(ids) if isinstance(ids, np.ndarray) else np.array([*ids, None], dtype=object)[:-1]
    if given.dtype.kind in "iub":
        return given.astype(np.uint64, casting="unsafe")
    if given.dtype.kind == "f" and bool((_is_whole(given)).all()):
        return given.astype(np.int64).astype(np.uint64)
    codes = pd.util.hash_array(np.array([*map(str, given), None], dtype=object)[:-1]).astype(np.uint64)
    for i, one in enumerate(given.tolist()):
        if isinstance(one, int | np.integer) or (isinstance(one, float) and _is_whole(one)):
            codes[i] = int(one) % 2**64
    return codes


def _is_whole(values: Any) -> Any:
    return (np.floor(values) == values) & (np.abs(values) < WHOLE_FLOATS)
