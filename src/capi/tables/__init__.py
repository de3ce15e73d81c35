"""Tables in, and what was understood of them: the readers of `Transitions`, encodings of columns, `describe`."""

from capi.tables.columns import Column
from capi.tables.describe import Coverage, Description, describe
from capi.tables.origin import Origin

__all__ = ["Column", "Coverage", "Description", "Origin", "describe"]
