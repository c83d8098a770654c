"""Results as files that other programs read: JSON lines, CSV, Markdown, SQLite.

All columns are those of the row contract, in its order, after `run` and `created`; the names are
only ever added to. Objects and lists are JSON text where the format has only plain values. What is
not known is null, or empty in CSV. Every writer takes results one by one and keeps few of them.
"""

from __future__ import annotations

import codecs
import csv
import sqlite3
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from harness.store.store import StoredRow
from harness.values.row import Row

_OBJECT = "object"
_PLAIN: dict[object, str] = {int: "int", float: "float", str: "str", bool: "bool"}
_READABLE = (
    "run",
    "short",
    "kernel",
    "launch",
    "config",
    "target",
    "triton",
    "ptxas",
    "verdict",
    "code",
    "reason",
    "n_regs",
    "spill_stores",
    "spill_loads",
    "shared",
    "tmem_size",
    "occupancy",
)
"""The columns of Markdown, which people read."""


def _columns() -> dict[str, str]:
    """Name to `int`, `float`, `str`, `bool`, or `object` for what becomes JSON."""
    hints = typing.get_type_hints(Row)
    columns = {"run": "int", "created": "float"}
    for name in Row.__struct_fields__:
        hint = hints[name]
        plain = {kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)}
        named = next(iter(plain)) if len(plain) == 1 else None
        # Verdicts and their like are words.
        is_word = isinstance(named, type) and issubclass(named, str)
        columns[name] = "str" if is_word else _PLAIN.get(named, _OBJECT)
    return columns


COLUMNS: Mapping[str, str] = _columns()
"""Of every export: name to type (`int`, `float`, `str`, `bool`, `object`)."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_text = codecs.getwriter("utf-8")


def _objects(stored: Iterable[StoredRow]) -> Iterator[dict[str, Any]]:
    for run, created, row in stored:
        yield {"run": run, "created": created, **_decode(row)}


def _flat(stored: Iterable[StoredRow]) -> Iterator[list[Any]]:
    """The values of `COLUMNS`; a row of an older version has no value for what is new."""
    columns = list(COLUMNS.items())
    for row in _objects(stored):
        values = ((row.get(name), kind == _OBJECT) for name, kind in columns)
        yield [
            _encode(value).decode() if is_object and value is not None else value
            for value, is_object in values
        ]


def _write_jsonl(stored: Iterable[StoredRow], out: IO[bytes]) -> None:
    out.writelines(_encode(row) + b"\n" for row in _objects(stored))


def _write_csv(stored: Iterable[StoredRow], out: IO[bytes]) -> None:
    writer = csv.writer(_text(out), lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(map(_plain, row) for row in _flat(stored))


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any column
    """A value that no spreadsheet takes for a formula, and no terminal for a command."""
    if not isinstance(value, str):
        return value
    text = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _write_markdown(stored: Iterable[StoredRow], out: IO[bytes]) -> None:
    text = _text(out)
    text.write(f"| {' | '.join(_READABLE)} |\n|{'---|' * len(_READABLE)}\n")
    for row in _objects(stored):
        text.write(f"| {' | '.join(_word(row.get(name)) for name in _READABLE)} |\n")


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        value = ", ".join(f"{name}={item}" for name, item in value.items()) or "default"
    if isinstance(value, float):
        value = f"{value:g}"
    # What would end the cell, or be taken for a tag or for emphasis.
    return (
        " ".join(str(value).split())
        .replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
    )


TEXT_FORMATS: Mapping[str, Callable[[Iterable[StoredRow], IO[bytes]], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "markdown": _write_markdown,
}


def write_sqlite(stored: Iterable[StoredRow], path: Path) -> None:
    """Write a new file.

    Raises:
        OSError: the file cannot be written.
    """
    kinds = {"int": "INTEGER", "bool": "INTEGER", "float": "REAL"}
    columns = ", ".join(f'"{name}" {kinds.get(kind, "TEXT")}' for name, kind in COLUMNS.items())
    marks = ", ".join("?" for _ in COLUMNS)
    db = sqlite3.connect(path, isolation_level=None)
    try:
        # The file is thrown away if this does not come to its end.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"CREATE TABLE results ({columns})")
        db.execute("BEGIN")
        db.executemany(f"INSERT INTO results VALUES ({marks})", _flat(stored))  # noqa: S608
        db.execute("COMMIT")
        db.execute("CREATE INDEX results_cell ON results (cell, run)")
    except sqlite3.OperationalError as error:
        raise OSError(str(error)) from error
    finally:
        db.close()


FORMATS = (*TEXT_FORMATS, "sqlite")
