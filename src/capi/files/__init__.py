"""Policy files, and exports of policies to formats that other programs read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from capi._utils.late import lazy_exports

if TYPE_CHECKING:
    from capi.files.exports import export_policy as export_policy
    from capi.files.policy_file import load_policy as load_policy
    from capi.files.policy_file import read_header as read_header
    from capi.files.policy_file import save_policy as save_policy
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "export_policy": "exports",
            "load_policy": "policy_file",
            "read_header": "policy_file",
            "save_policy": "policy_file",
        },
    )
