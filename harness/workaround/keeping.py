"""What was found, kept with the bugs that it works around."""

from __future__ import annotations

import time

from harness.frontends.base import Selection
from harness.store.store import Store
from harness.values.bug import KeptSetting, KeptWorkaround
from harness.workaround.result import WorkaroundReport
from harness.workaround.settings import Setting


def keep(store: Store, report: WorkaroundReport, selection: Selection) -> None:
    """With the bugs that it works around, so that every night can say whether it is needed."""
    best = report.candidates[0] if report.candidates else None
    patch = report.patch
    if best is None and patch is None:
        return
    left_out = patch.left_out if patch else ()
    store.put_workaround(
        KeptWorkaround(
            baseline=report.baseline,
            change=best.change if best else f"patch of {patch.file if patch else ''}",
            proof=best.row if best else None,
            setting=_kept_setting(best.setting, selection) if best else None,
            signatures=tuple(
                dict.fromkeys(
                    row.signature for row in (report.baseline, *left_out) if row.signature
                )
            ),
            diff=patch.diff if patch else "",
            is_patch_proved=bool(patch and patch.is_proved),
            left_out=tuple(row.config for row in left_out),
            overrides=tuple(selection.launches[0].overrides.items()),
            created=time.time(),
        )
    )


def _kept_setting(setting: Setting, selection: Selection) -> KeptSetting | None:
    """What a night compiles again; an edit of a file is the user's to keep."""
    if setting.edit:
        return None
    overrides = {**selection.launches[0].overrides, **dict(setting.launch)}
    return KeptSetting(
        config=setting.config.as_dict(),
        overrides=tuple(overrides.items()),
        options=setting.flags.label if setting.flags else None,
        ptxas=setting.ptxas,
        triton=setting.triton,
    )
