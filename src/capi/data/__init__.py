"""The batch and its tables: `Transitions`, their schema, the readers, and `describe`."""

from capi.data.columns import Column
from capi.data.origin import Origin
from capi.data.schema import Schema
from capi.data.summary.describe import Coverage, Description, describe
from capi.data.transitions import Transitions

__all__ = ["Column", "Coverage", "Description", "Origin", "Schema", "Transitions", "describe"]
