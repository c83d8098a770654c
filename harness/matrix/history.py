"""`triage history`: the last result of each cell of a kernel, version after version."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from harness.cells.matrix_rules import EVERY, is_meant
from harness.io.files.writing import write_output
from harness.io.packages.versions import toolchain_order
from harness.store.export import TEXT_FORMATS, write_sqlite
from harness.store.schema import RunRecord
from harness.store.store import Store, StoredRow
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Selector
from harness.values.row import Row

# `triage export`: results as a file, for other programs.


def export_file(
    rows: Iterator[StoredRow], form: str, path: Path, *, overwrite: bool = False
) -> None:
    """Write results to a file: all of it, or nothing.

    Raises:
        UsageError: the file exists, or the format needs a library that is not installed.
        StorageError: the results cannot be read, or the file cannot be written.
    """

    def write(draft: Path) -> None:
        if form not in TEXT_FORMATS:
            write_sqlite(rows, draft)
            return
        with draft.open("wb") as out:
            TEXT_FORMATS[form](rows, out)

    write_output(path, write, option="--out", overwrite=overwrite)


def rows_of(
    store: Store, runs: Sequence[RunRecord], only: Sequence[Selector]
) -> Iterator[StoredRow]:
    """The results of the runs that one of `only` means, as they are read.

    Raises:
        StorageError: the results cannot be read.
    """
    for run in runs:
        for stored in store.run_bodies(run.id):
            if only == EVERY or is_meant(_decode(stored.row), only):
                yield stored


_decode = msgspec.json.Decoder(Row).decode


def read_history(store: Store, kernel: str, only: Sequence[Selector]) -> list[Row]:
    """The last result of each cell of a kernel, or pattern of them, that one of `only` means.

    Ordered by kernel, launch, target and config, and then by version: Triton's, then ptxas'.

    Raises:
        UsageError: no result is of such a kernel.
        EmptySelectionError: results of the kernel there are, but none that match.
        StorageError: the results cannot be read.
    """
    cells = [
        _decode(record.row)
        for name in _kernels(store, kernel)
        for record in store.latest_results(name)
    ]
    rows = [row for row in cells if is_meant(row, only)]
    if not rows:
        launches = ", ".join(sorted({row.launch for row in cells})[:8])
        targets = ", ".join(sorted({row.target for row in cells}))
        raise EmptySelectionError(
            f"{kernel} has {len(cells)} cells with results, and none matches; "
            f"there are launches {launches} and targets {targets}"
        )
    return sorted(
        rows,
        key=lambda row: (
            *(row.kernel, row.launch, row.target, row.config_label),
            toolchain_order(row.compiler_version, row.ptxas, row.ptxas_origin),
            row.frozen,
        ),
    )


def _kernels(store: Store, pattern: str) -> list[str]:
    names = store.kernels()
    if pattern in names:
        return [pattern]
    if matches := [name for name in names if fnmatchcase(name, pattern)]:
        return matches
    of_file = [name for name in names if name.partition("::")[0] == Path(pattern).name]
    of_file = of_file or [name for name in names if name.partition("::")[2] == pattern]
    if len(of_file) == 1:
        return of_file
    if of_file:
        raise UsageError(f"--kernel {pattern}: which one is meant, {' or '.join(of_file)}?")
    near = difflib.get_close_matches(pattern, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`triage compile` or `matrix run` makes them"
    raise UsageError(f"--kernel {pattern}: there are no results of it; {hint}")
