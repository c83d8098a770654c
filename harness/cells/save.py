"""`--save DIR`: every artifact of every cell as files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.io.files.locations import storage_error
from harness.store.stages import STAGES, stage_bytes
from harness.store.store import Store
from harness.values.row import Row


def save_cells(store: Store, rows: Sequence[Row], folder: Path) -> int:
    """Write `FOLDER/CELL/STAGE` and `row.json` for each row; how many files were written.

    Raises:
        StorageError: the folder cannot be written.
    """
    count = 0
    for row in rows:
        # A cell id has slashes and signs that a shell or a file system minds.
        place = folder / (re.sub(r"[^\w.=,@+-]+", "_", row.cell)[:180] + f"-{row.short}")
        files = {"row.json": msgspec.json.format(msgspec.json.encode(row), indent=2)}
        record = store.find_cells(row.cell)[0]
        for stage in STAGES:
            data = stage_bytes(store, record, stage)
            if data is not None:
                files[f"kernel.{stage}"] = data
        try:
            place.mkdir(parents=True, exist_ok=True)
            for name, data in files.items():
                (place / name).write_bytes(data)
        except OSError as error:
            raise storage_error(error, place, "write", option="--save") from error
        count += len(files)
    return count
