"""Every option that takes a file, given what is none; and output that goes where it cannot."""

from __future__ import annotations

import lzma
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import click
from bad_input_cases import Case
from bad_input_options import commands

from harness.cli.amounts import FilePath, Words

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
    "k.py": ("run", "--kernel", "k.py"),
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


# Options for what is written; every other path is read.
_WRITTEN = frozenset({"--pack", "--out", "--patch", "--into"})
_PTX = """\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x) { ret; }
"""
# What has to stand beside an option, by the command and the option.
_BESIDE: dict[str, tuple[str, ...]] = {
    "run --buffer": ("k.ptx",),
    "run --expect": ("k.ptx", "--buffer", "x=f32[4]"),
    "report --kernel": ("--for", "nvidia"),
    "report ": ("--for", "nvidia"),
    "pr --matrix": ("--base", "."),
    "pins ": ("--sm", "90a"),
}
# Texts that hold the name of a file.
_NAMING = {"--buffer": "x=f32[4]:{}.npy", "--expect": "x={}.npy"}
# Those that a toolchain or results come before, or that are folders: `_merge_cases` has those.
_LATE = frozenset(
    {f"{verb} {option}" for verb in ("minimize", "report", "verify") for option in _NAMING}
    | {"matrix merge ", "import "}
)
# Their size is looked at when they are read: a toolchain, or what is asked besides, comes before.
_READ_LATE = ("package", "minimize --inputs", "workaround --", "rank --import",
              "diff", "run --import", "run --inputs")  # fmt: skip
_TAKES_FOLDERS = ("binaries",)
# What stands in the place of a file, and must be neither waited for nor read without end.
_STRANGE = ("a pipe", "a socket", "endless", "a loop", "sparse", "a folder")


def _readers() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """What reads a file: an id, its words, and the name of that file; off the commands."""
    for path, command in commands():
        where = " ".join(path)
        for each in command.params:
            name = each.opts[0] if isinstance(each, click.Option) else ""
            files: tuple[str, ...] = ()
            if f"{where} {name}" in _LATE:
                continue
            if isinstance(each.type, FilePath) and name not in _WRITTEN:
                files = ("f",)
            elif isinstance(each.type, Words) and each.type.names_files:
                files = ("f.npy",) if name in _NAMING else ("f.ptx", "f.py", "f.ttir", "f.cu")
            for file in files:
                words: tuple[str, ...] = (name, _NAMING.get(name, "{}").format(Path(file).stem))
                if name not in _NAMING:
                    words = (name, file) if name else (file,)
                beside = _BESIDE.get(f"{where} {name}", ())
                yield f"{where} {name or each.name} {file}", (*path, *beside, *words), file


def _strange_cases() -> Iterator[Case]:
    for id_, words, file in _readers():
        for hazard in _STRANGE:
            put, _ = HAZARDS[hazard]

            def prepare(
                folder: Path, put: Callable[[Path], object] = put, file: str = file
            ) -> None:
                (folder / "k.ptx").write_text(_PTX)
                put(folder / file)

            is_fine = hazard == "a folder" and id_.startswith(_TAKES_FOLDERS)
            if not is_fine and (hazard != "sparse" or not id_.startswith(_READ_LATE)):
                yield Case(
                    id=f"{id_} is {hazard}",
                    words=words,
                    code=2,
                    says=file,
                    # A run says before what it guessed.
                    lines=None if "--expect" in words else 1,
                    prepare=prepare,
                )


def file_cases() -> Iterator[Case]:
    """All of this module."""
    yield from _strange_cases()
    for what, put, said in (
        ("a bomb", _bomb, "not read"),
        ("no archive", lambda path: path.write_text("x"), "d.xz"),
        ("cut", lambda path: path.write_bytes(lzma.compress(b"x" * 99)[:-9]), "d.xz"),
    ):
        yield Case(id=f"rank --again of {what}", words=("rank", "--again", "d.xz"), code=2,
                   says=said, prepare=_at(put, "d.xz"), memory=3 << 30)  # fmt: skip
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


def _bomb(path: Path) -> None:
    """A few kB that are 400 MB once they are unpacked."""
    packer = lzma.LZMACompressor(preset=0)
    block = bytes(1 << 24)
    path.write_bytes(b"".join([*(packer.compress(block) for _ in range(25)), packer.flush()]))


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
    on_stdout = ("export", "--format", "sqlite")
    yield Case(id="sqlite on stdout", words=on_stdout, code=2, store=True)
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
        ("compile", "--kernel", "k.ptx", "--out", "o"),
        ("minimize", "k.ptx", "--out", "o"),
        ("report", "--kernel", "k.ptx", "--for", "nvidia", "--out", "o"),
        ("report", "--kernel", "k.ptx", "--for", "nvidia", "--minimized", "o"),
        ("import", ".", "--into", "o"),
        ("workaround", "--kernel", "k.ptx", "--patch", "o/p.patch"),
        ("workaround", "--kernel", "k.ptx", "--patch", "no/p.patch"),
    ):
        yield Case(id=" ".join((words[0], *words[-2:])), words=words, code=2, prepare=file)


assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
