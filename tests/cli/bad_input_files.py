"""Every option that takes a file, given what is none; and output that goes where it cannot."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bad_input_cases import Case

__all__ = ["file_cases"]

_HUGE = 1 << 40


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, _HUGE)


def _socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(path.name)


def _unreadable(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)


def _gone(path: Path) -> None:
    path.symlink_to("nowhere")


def _at(put: Callable[[Path], object], name: str) -> Callable[[Path], object]:
    return lambda folder: put(folder / name)


HAZARDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _path: None, "no such file"),
    "a folder": (Path.mkdir, "a folder"),
    "a pipe": (os.mkfifo, "not a regular file"),
    "a socket": (_socket, "not a regular file"),
    "endless": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "a terminal": (lambda path: path.symlink_to("/dev/tty"), ""),
    "a loop": (lambda path: path.symlink_to(path.name), "symbolic links"),
    "a link to nothing": (_gone, "no such file"),
    "sparse": (_sparse, "not read"),
    "unreadable": (_unreadable, "Permission denied"),
    "binary": (lambda path: path.write_bytes(b"\x7fELF\x00\xff\x1b[31m" * 50), ""),
    "empty": (lambda path: path.touch(), ""),
    "blank": (lambda path: path.write_text(" \n\n"), ""),
    "an escape": (lambda path: path.write_text("\x1b]0;owned\x07: [\x1b[31m\n"), ""),
    "a byte order mark": (lambda path: path.write_bytes(b"\xff\xfe\x00\x1b"), ""),
}
READERS: dict[str, tuple[str, ...]] = {
    "k.ptx": ("compile", "--kernel", "k.ptx"),
    "k.ttir": ("compile", "--sm", "90a", "--kernel", "k.ttir"),
    "k.ttgir": ("blame", "--kernel", "k.ttgir"),
    "k.py": ("check", "--kernel", "k.py"),
    "m.ptx": ("minimize", "m.ptx"),
    "matrix.yaml": ("matrix", "run", "--list", "--matrix", "matrix.yaml"),
    "replay.jsonl": ("bisect", "--replay", "replay.jsonl"),
    "resume.jsonl": ("bisect", "--resume", "resume.jsonl"),
}
NAMES = {
    "long": "x" * 300,
    "of an escape": "\x1b]0;owned\x07\x1b[31m",
    "of two lines": "a\nb",
    "reordered": "a\u202eb",
    "not UTF-8": "caf\udce9",
    "of a carriage return": "good\rbad",
    "deep": "/".join(["d"] * 500),
}
_SHELL_NAMES = {"k.ptx": "{}.ptx", "k.ttir": "{}.ttir", "k.py": "{}.py"}


def file_cases() -> Iterator[Case]:
    """All of this module."""
    yield from _read_cases()
    yield from _name_cases()
    yield from _merge_cases()
    yield from _export_cases()
    yield from _folder_cases()


def _read_cases() -> Iterator[Case]:
    for file, words in READERS.items():
        for hazard, (put, said) in HAZARDS.items():
            yield Case(
                id=f"{words[0]} {file} is {hazard}",
                words=words,
                code=2,
                says=said,
                prepare=_at(put, file),
                plain=hazard == "unreadable",
            )


def _name_cases() -> Iterator[Case]:
    for file, words in READERS.items():
        for what, name in NAMES.items():
            named = _SHELL_NAMES.get(file, "{}").format(name)
            if file in _SHELL_NAMES or what in ("of an escape", "not UTF-8"):
                yield Case(
                    id=f"{words[0]} {file} with a name {what}",
                    words=tuple(named if word == file else word for word in words),
                    code=2,
                )


def _merge_cases() -> Iterator[Case]:
    for hazard, (put, _) in HAZARDS.items():
        if hazard == "a terminal":
            continue
        yield Case(
            id=f"matrix merge of what is {hazard}",
            words=("matrix", "merge", "theirs"),
            code=4,
            says="theirs",
            prepare=_at(put, "theirs"),
            plain=hazard == "unreadable",
        )
        yield Case(
            id=f"diff --matrix of what is {hazard}",
            words=("diff", "--matrix", "theirs"),
            code=2,
            prepare=_at(put, "theirs"),
            plain=hazard == "unreadable",
            store=True,
        )
        yield Case(
            id=f"import of what is {hazard}",
            words=("import", "theirs"),
            code=3 if hazard == "a folder" else 2,
            prepare=_at(put, "theirs"),
            plain=hazard == "unreadable",
        )


def _export_cases() -> Iterator[Case]:
    csv = ("export", "--format", "csv", "--out")
    places: list[tuple[str, tuple[str, ...], int, str, Callable[[Path], object]]] = [
        ("a folder", ("o", "--force"), 2, "folder", lambda f: (f / "o").mkdir()),
        ("a file", ("o",), 2, "--force", lambda f: (f / "o").write_text("mine")),
        ("a pipe", ("o", "--force"), 2, "no process reads", lambda f: os.mkfifo(f / "o")),
        ("a loop", ("o", "--force"), 4, "symbolic links", lambda f: (f / "o").symlink_to("o")),
        ("a socket", ("o", "--force"), 2, "", lambda f: _socket(f / "o")),
        ("nowhere", ("a/b/c.csv",), 4, "No such file", lambda f: None),
        ("below a file", ("o/c.csv",), 4, "Not a directory", lambda f: (f / "o").touch()),
        ("a full disk", ("/dev/full",), 4, "full", lambda f: None),
        ("/proc", ("/proc/x",), 4, "", lambda f: None),
        ("the empty name", ("",), 2, "", lambda f: None),
        ("a long name", ("x" * 300,), 4, "too long", lambda f: None),
        ("an escape", ("/no\x1b[31m/x",), 4, r"\x1b", lambda f: None),
    ]
    for what, words, code, said, prepare in places:
        yield Case(
            id=f"export --out {what}",
            words=(*csv, *words),
            code=code,
            says=said,
            prepare=prepare,
            store=True,
        )
    for form in ("sqlite", "parquet"):
        yield Case(id=f"{form} on stdout", words=("export", "--format", form), code=2, store=True)
    null = (*csv, "/dev/null")
    yield Case(id="export --out /dev/null", words=null, code=0, lines=0, store=True)
    forced = (*csv, "/dev/null", "--force")
    yield Case(id="export --out /dev/null --force", words=forced, code=0, lines=0, store=True)


def _folder_cases() -> Iterator[Case]:
    """Folders for output that are files."""

    def file(folder: Path) -> None:
        (folder / "o").touch()
        (folder / "k.ptx").write_text("x")

    for words in (
        ("compile", "--kernel", "k.ptx", "--save", "o"),
        ("minimize", "k.ptx", "--out", "o"),
        ("report", "--kernel", "k.ptx", "--for", "nvidia", "--out", "o"),
        ("report", "--kernel", "k.ptx", "--for", "nvidia", "--minimized", "o"),
        ("import", ".", "--into", "o"),
        ("workaround", "--kernel", "k.ptx", "--patch", "o/p.patch"),
        ("workaround", "--kernel", "k.ptx", "--patch", "no/p.patch"),
    ):
        yield Case(id=" ".join((words[0], *words[-2:])), words=words, code=2, prepare=file)


assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
