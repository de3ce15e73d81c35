"""A finished run as one page for people who do not write Python.

run folder -> record (plain values: `report_record`) -> page (HTML with its style, pictures and script inside: `write_report`)

The page asks no network for anything. Unless cases are asked for, it holds aggregates only, and none of fewer than five rows.
"""

from capi.report.page import write_report
from capi.report.record import report_record

__all__ = ["report_record", "write_report"]
