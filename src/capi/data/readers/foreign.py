"""The border to other libraries: columns of pandas, polars, NumPy and Python become Arrow arrays of types that we read.

Arrow cannot compute with some types that tables hold. They are converted here, so that no later step meets them:

    intervals (`pandas.cut`)          categories, their text in order: "(0, 10]"
    UUIDs                             strings
    16-bit and long floats            64-bit floats
    128-bit integers of polars        64-bit integers, if they fit
    string views, run-end encodings   strings, plain arrays
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any
from uuid import UUID

import numpy as np

from capi._utils.late import pandas as pd
from capi._utils.late import pyarrow as pa
from capi._utils.late import pyarrow_compute as pc
from capi._utils.validation import first_line, is_real

ONE_KIND = "must hold values of one kind: numbers, booleans, dates or strings"


def arrow_of(values: Any) -> Any:
    """Return a column as an Arrow chunked array of types that Arrow computes with."""
    try:
        return plain(_chunked(values))
    except Exception:  # values that Arrow does not know: the column may still be intervals or large integers
        return plain(_chunked(_known_objects(items_of(values))))


def items_of(values: Any) -> list[Any]:
    """Return a column as a list of Python values."""
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values)


def not_a_column(values: Any) -> str:
    """Return what is wrong with a value that should be a column, "" if nothing is."""
    if isinstance(values, str | bytes):
        return f"got the text {values!r}"
    if isinstance(values, Mapping | Set) or not hasattr(values, "__len__"):
        return f"got {values!r}" if values is None or is_real(values) else f"got a {type(values).__name__}"
    shape = getattr(values, "shape", (0,))
    if len(shape) != 1:
        return f"got an array of shape {tuple(shape)}. Give each of its columns a name of its own"
    return ""


def broken_rule(items: Sequence[Any], error: Exception) -> tuple[str, int | None, str]:
    """Return why Arrow refused the items of a column: the rule, the first row that breaks it, and advice."""
    kinds = [None if is_missing(item) else float if is_real(item) else type(item) for item in items]
    first = next((kind for kind in kinds if kind is not None), None)
    other = next((row for row, kind in enumerate(kinds) if kind not in (None, first)), None)
    if first is not None and other is not None:
        got = f"{_shown(items[other])} after {first.__name__ if first is not float else 'numbers'}"
        return f"{ONE_KIND}; got {got}", other, " Convert the column to one type."
    large = next(
        (row for row, item in enumerate(items) if isinstance(item, int) and not -(2**63) <= item < 2**63), None
    )
    if large is not None:
        rule = f"must hold whole numbers that 64 bits can represent; got {_shown(items[large])}"
        return rule, large, " Convert the column to floating-point numbers or strings."
    if first is None or first in (float, str, bytes, bool):
        return f"cannot be read: {first_line(error)}", None, ""
    return f"{ONE_KIND}; got values of type {first.__name__}", None, " Convert it, or leave it out."


def is_missing(value: Any) -> bool:
    """Whether a Python value is None, NaN, NaT or NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    try:
        return bool(value != value)  # NaN
    except Exception:  # an array or a series in a cell
        return False


def plain(array: Any) -> Any:
    """Return a chunked array with types replaced by those that all Arrow functions support."""
    kind = array.type
    if pa.types.is_run_end_encoded(kind):
        array = pa.chunked_array([pc.run_end_decode(chunk) for chunk in array.chunks], kind.value_type)
        return plain(array)
    if pa.types.is_dictionary(kind):
        return _plain_categories(array)
    if pa.types.is_string_view(kind):
        return array.cast(pa.large_string())
    if pa.types.is_float16(kind):
        return array.cast(pa.float64())
    if not isinstance(kind, pa.BaseExtensionType):
        return array
    if kind.extension_name == "arrow.uuid":
        return pa.chunked_array([[_text(item) for item in array.to_pylist()]], pa.string())
    if kind.extension_name == "pandas.interval":
        return pa.chunked_array([_intervals(list(array.to_pandas()))])
    raise TypeError(
        f"Arrow does not compute with {kind}"
    )  # such as pandas' periods, whose storage would pass for numbers


def decoded(array: Any) -> Any:
    """Return categories (a dictionary array) as their values."""
    chunks = [chunk.dictionary.take(chunk.indices) for chunk in array.chunks]
    return pa.chunked_array(chunks, array.type.value_type)


def has_unknown_intervals(schema: Any) -> bool:
    """Whether the schema of a file has intervals of pandas that Arrow takes for records, because pandas is not imported yet."""
    return any((field.metadata or {}).get(b"ARROW:extension:name") == b"pandas.interval" for field in schema)


def register_intervals() -> None:
    """Make Arrow recognise the intervals of pandas."""
    pa.array(pd.arrays.IntervalArray.from_breaks([0, 1]))  # pandas registers its types on the first conversion


def _chunked(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        return values
    if hasattr(values, "to_arrow"):  # polars, whose 128-bit integers and Python objects Arrow does not know
        of_objects = str(values.dtype) in ("Int128", "UInt128", "Object")
        values = values.to_list() if of_objects else values.to_arrow()
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def _plain_categories(array: Any) -> Any:
    """Return categories with a single list of values, of a plain type."""
    kind = array.type
    if not (
        pa.types.is_string_view(kind.value_type)
        or pa.types.is_float16(kind.value_type)
        or isinstance(kind.value_type, pa.BaseExtensionType)
    ):
        return array.unify_dictionaries()
    if isinstance(kind.value_type, pa.BaseExtensionType) and kind.value_type.extension_name == "pandas.interval":
        chunks = [_with_values(chunk, map(_text, list(chunk.dictionary.to_pandas()))) for chunk in array.chunks]
    else:
        chunks = [
            _with_values(chunk, plain(pa.chunked_array([chunk.dictionary])).to_pylist()) for chunk in array.chunks
        ]
    if not chunks:
        return pa.chunked_array([], pa.string())
    return pa.chunked_array(chunks).unify_dictionaries()


def _with_values(chunk: Any, values: Any) -> Any:
    return pa.DictionaryArray.from_arrays(chunk.indices, pa.array(list(values)), ordered=chunk.type.ordered)


def _known_objects(items: Sequence[Any]) -> Any:
    """Return intervals and UUIDs among Python objects as categories or text, other items as they are."""
    known = [item for item in items if not is_missing(item)]
    if known and all(_is_interval(item) for item in known):
        return _intervals(items)
    if known and all(isinstance(item, UUID) for item in known):
        return [_text(item) for item in items]
    if known and all(isinstance(item, np.longdouble) for item in known):
        return [None if is_missing(item) else float(item) for item in items]
    return items


def _intervals(items: Sequence[Any]) -> Any:
    """Return pandas' intervals as ordered categories: their text, in the order of the intervals."""
    known = {item for item in items if not is_missing(item)}
    in_order = sorted(known, key=lambda interval: (interval.left, interval.right))
    texts = list(dict.fromkeys(map(str, in_order)))
    position = {text: code for code, text in enumerate(texts)}
    codes = [None if is_missing(item) else position[str(item)] for item in items]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(texts, pa.string()), ordered=True)


def _is_interval(item: Any) -> bool:
    return type(item).__name__ == "Interval" and type(item).__module__.startswith("pandas")


def _text(item: Any) -> str | None:
    return None if is_missing(item) else str(item)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
