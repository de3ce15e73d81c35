"""Reports on finished runs: one HTML page for people who do not write Python.

run folder -> record (plain values: `report_record`) -> page (HTML with embedded style, pictures and script: `write_report`)

The page makes no network requests. Unless cases are requested, it holds aggregates only, none of them over fewer than five rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.report.page import write_report as write_report
    from capi.report.record import report_record as report_record
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "report_record": "record",
            "write_report": "page",
        },
    )
