"""The batch (`Transitions`), its schema, the readers of tables, and `describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.data.columns import Column as Column
    from capi.data.origin import Origin as Origin
    from capi.data.partitions import PartitionedTransitions as PartitionedTransitions
    from capi.data.schema import Schema as Schema
    from capi.data.summary.description import Coverage as Coverage
    from capi.data.summary.description import Description as Description
    from capi.data.summary.description import ReadColumn as ReadColumn
    from capi.data.summary.description import describe as describe
    from capi.data.survey import Survey as Survey
    from capi.data.transitions import Transitions as Transitions
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Column": "columns",
            "Coverage": "summary.description",
            "Description": "summary.description",
            "Origin": "origin",
            "PartitionedTransitions": "partitions",
            "ReadColumn": "summary.description",
            "Schema": "schema",
            "Survey": "survey",
            "Transitions": "transitions",
            "describe": "summary.description",
        },
    )
