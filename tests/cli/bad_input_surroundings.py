"""Output that cannot be written, odd variables, results that are not what they were."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from bad_input_cases import Case

__all__ = ["surrounding_cases"]

# Verbs that print something, with what they need, and their exit code.
PRINTERS: dict[str, tuple[tuple[str, ...], int]] = {
    "--help": (("--help",), 0),
    "--version": (("--version",), 0),
    "compile --help": (("compile", "--help"), 0),
    "export jsonl": (("export", "--format", "jsonl"), 0),
    "export csv": (("export", "--format", "csv"), 0),
    "export markdown": (("export", "--format", "markdown", "--all"), 0),
    "history": (("history", "--kernel", "scan_fwd"), 0),
    "history --json": (("history", "--kernel", "scan_fwd", "--json"), 0),
    "diff": (("diff", "--all"), 1),
    "diff --json": (("diff", "--json"), 1),
    "bugs": (("bugs",), 0),
    "bugs show": (("bugs", "show", "1"), 0),
    "show": (("show", "num_warps=4"), 0),
    "cache": (("cache",), 0),
    "cache --json": (("cache", "--json"), 0),
    "toolchain list": (("toolchain", "list"), 0),
    "toolchain list --json": (("toolchain", "list", "--json"), 0),
}
REFUSED = ("compile", "--kernel", "none.ptx")
READERS = (
    ("history", "--kernel", "scan_fwd"),
    ("export", "--format", "jsonl"),
    ("diff",),
    ("bugs",),
    ("show", "num_warps=4"),
    ("cache",),
)


def surrounding_cases() -> Iterator[Case]:
    """All of this module."""
    yield from _stream_cases()
    yield from _variable_cases()
    yield from _store_cases()
    yield from _word_cases()
    yield from _toolchain_cases()


def _stream_cases() -> Iterator[Case]:
    for name, (words, code) in PRINTERS.items():
        for how in ("full", "closed"):
            yield Case(id=f"{name} > {how}", words=words, code=4, says="cannot write to stdout",
                       stdout=how, store=True)  # fmt: skip
        yield Case(
            id=f"{name} | nobody", words=words, code=code, lines=0, stdout="gone", store=True
        )
        for encoding in ("ascii", "latin-1", "utf-16"):
            yield Case(id=f"{name} in {encoding}", words=words, code=code, lines=0,
                       encoding=encoding, store=True)  # fmt: skip
        for how in ("full", "closed", "gone"):
            yield Case(id=f"{name} 2> {how}", words=words, code=code, lines=None, stderr=how,
                       store=True)  # fmt: skip
    for how in ("full", "closed", "gone"):
        yield Case(id=f"refused 2> {how}", words=REFUSED, code=2, lines=None, stderr=how)
        yield Case(id=f"refused > {how}", words=REFUSED, code=2, stdout=how)
        yield Case(id=f"refused --json > {how}", words=(*REFUSED, "--json"), code=2, stdout=how,
                   lines=None)  # fmt: skip
        yield Case(id=f"both {how}", words=("kernels",), code=0 if how == "gone" else 4,
                   lines=None, stdout=how, stderr=how)  # fmt: skip
        yield Case(id=f"all closed, {how}", words=REFUSED, code=2, lines=None, stdin="closed",
                   stdout="closed", stderr=how)  # fmt: skip
    for encoding in ("ascii", "latin-1", "cp1252"):
        yield Case(id=f"refused in {encoding}", words=("compile", "--kernel", "核\udce9.ptx"),
                   code=2, encoding=encoding)  # fmt: skip


def _variable_cases() -> Iterator[Case]:
    for variable in ("TRIAGE_HOME", "TRIAGE_CACHE_DIR"):
        words = ("matrix", "merge", ".") if variable == "TRIAGE_HOME" else ("toolchain", "list")
        for value in ("~nosuchuser/x", "/proc/x", "/dev/null/x", "x" * 300, "file"):
            yield Case(
                id=f"{variable}={value[:20]}",
                words=words,
                code=4,
                says=variable,
                env={variable: value},
                prepare=lambda folder: (folder / "file").touch(),
            )
    for value in ("maybe", "2", "\x1b[31m"):
        yield Case(id=f"TRIAGE_OFFLINE={value!r}", words=("toolchain", "install", "ptxas-9.9.9"),
                   code=2, says="TRIAGE_OFFLINE", env={"TRIAGE_OFFLINE": value})  # fmt: skip
    for name in ("-", "1x", "a b", "a=b", "\x1b[31m", "é"):
        passed = ("--kernel", "none.ptx", "--pass-env", name)
        yield Case(id=f"--pass-env {name!r}", words=("compile", *passed), code=2,
                   says="not the name of a variable")  # fmt: skip
        yield Case(id=f"TRIAGE_PASS_ENV={name!r}", words=("compile", *passed[:3], "A"), code=2,
                   says="not the name of a variable", env={"TRIAGE_PASS_ENV": name})  # fmt: skip
    for columns in ("²", "-1", "0", "9" * 30, "abc", "", "1", "٣"):
        yield Case(id=f"COLUMNS={columns[:9]}", words=("bugs",), code=0, lines=0, store=True,
                   env={"COLUMNS": columns})  # fmt: skip
        yield Case(id=f"COLUMNS={columns[:9]} refused", words=("compile", "--nosuch"), code=2,
                   env={"COLUMNS": columns})  # fmt: skip
    gone = {"TRIAGE_HOME": None, "TRIAGE_CACHE_DIR": None}
    yield Case(id="the folder is gone", words=("cache",), code=4, says="working folder",
               env=gone, folder_is_gone=True)  # fmt: skip
    yield Case(id="the folder is gone, matrix", words=("matrix", "run", "--list"), code=(4),
               env=gone, folder_is_gone=True)  # fmt: skip
    yield Case(id="the folder is gone, file", words=REFUSED, code=2, env=gone, folder_is_gone=True)
    yield Case(id="no HOME", words=("toolchain", "list"), code=0, lines=0, env={"HOME": None})
    yield Case(id="TMPDIR is missing", words=("bugs",), code=0, lines=0, store=True,
               env={"TMPDIR": "/nonexistent"})  # fmt: skip
    for name in ("TERM", "NO_COLOR", "LINES", "TRIAGE_OFFLINE"):
        yield Case(id=f"{name} is odd", words=("bugs",), code=0, lines=0, store=True,
                   env={name: "\x1b[31m²"})  # fmt: skip


DATABASE = "triage.db"
Damage = Callable[[Path], object]


def _sql(*statements: str) -> Damage:
    def change(home: Path) -> None:
        with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement)

    return change


def _truncate(size: int) -> Damage:
    return lambda home: os.truncate(home / DATABASE, size)


def _unwritable(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def _socket(path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(os.path.relpath(path))


def _instead(put: Damage, name: str = DATABASE) -> Damage:
    """Something else in the place of a file or folder of the results."""

    def change(home: Path) -> None:
        path = home / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        put(path)

    return change


# What each command makes of results that are what they were; that cannot be used at all; that were
# put aside (then there are none); and of which the rows that cannot be trusted were left behind.
AS_BEFORE = {"history": 0, "export": 0, "diff": 1, "bugs": 0, "show": 0, "cache": 0, "matrix": 4}
UNUSABLE = dict.fromkeys(AS_BEFORE, 4)
ASIDE = {"history": 2, "export": 3, "diff": 3, "bugs": 0, "show": 3, "cache": 0, "matrix": 0}
FEWER = {"history": 3, "export": 0, "diff": 0, "bugs": 0, "show": 3, "cache": 0, "matrix": 4}
RESCUED = "was damaged"
DAMAGES: dict[str, tuple[Damage, dict[str, int], str]] = {
    "from the future": (_sql("PRAGMA user_version = 9999"), UNUSABLE, "upgrade"),
    "from the past": (_sql("PRAGMA user_version = 0"), UNUSABLE, "an older triage"),
    "without tables": (_sql("DROP TABLE results"), UNUSABLE, "no such table"),
    "cut": (_truncate(5000), ASIDE, RESCUED),
    "empty": (_truncate(0), ASIDE, ""),
    "junk": (lambda home: (home / DATABASE).write_bytes(b"\x1b[31m" * 9000), ASIDE, RESCUED),
    "a row of text": (_sql("UPDATE results SET row = 'x'"), FEWER, RESCUED),
    "a wrong checksum": (_sql("UPDATE results SET checksum = 0"), FEWER, RESCUED),
    "a time of words": (_sql("UPDATE runs SET started = 'x'"), AS_BEFORE, ""),
    "a checksum of words": (_sql("UPDATE results SET checksum = 'x'"), FEWER, RESCUED),
    "evidence of words": (_sql("UPDATE results SET evidence = 'x'"), FEWER, RESCUED),
    "a folder": (_instead(Path.mkdir), UNUSABLE, "not a file"),
    "a pipe": (_instead(os.mkfifo), UNUSABLE, "not a file"),
    "a device": (_instead(lambda path: path.symlink_to("/dev/zero")), UNUSABLE, "not a file"),
    "locked by a pipe": (_instead(os.mkfifo, "triage.lock"), UNUSABLE, "not a file"),
    "locked by a socket": (_instead(_socket, "triage.lock"), UNUSABLE, "triage.lock"),
    "locked by a folder": (_instead(Path.mkdir, "triage.lock"), UNUSABLE, "triage.lock"),
    "artifacts that are a file": (_instead(Path.touch, "artifacts"), UNUSABLE, "artifacts"),
}


def _results(damage: Damage) -> Damage:
    return lambda folder: damage(folder / "results")


def _store_cases() -> Iterator[Case]:
    for what, (damage, codes, said) in DAMAGES.items():
        for words in (*READERS, ("matrix", "merge", "results")):
            yield Case(
                id=f"{' '.join(words[:2])}: results are {what}",
                words=words,
                code=codes[words[0]],
                # These do not look at single rows.
                says="" if codes is FEWER and words[0] in ("cache", "matrix") else said,
                lines=None,
                store=True,
                prepare=_results(damage),
            )
    for words in READERS:
        yield Case(id=f"{words[0]}: results are read-only", words=words,
                   code=AS_BEFORE[words[0]], lines=0, store=True,
                   prepare=_results(_unwritable), plain=True)  # fmt: skip
        code = ASIDE[words[0]]
        yield Case(id=f"{words[0]}: no results, and none can be kept", words=words, code=code,
                   lines=1 if code else 0, prepare=lambda folder: folder.chmod(0o555),
                   plain=True)  # fmt: skip
    for text in ("cache --trim 0", "bugs set 1 expected", "matrix merge results"):
        yield Case(id=f"{text}: results are read-only", words=tuple(text.split()), code=4,
                   says="not writable", store=True, prepare=_results(_unwritable),
                   plain=True)  # fmt: skip


def _word_cases() -> Iterator[Case]:
    big = "9" * 25
    for words, code in (
        (("bugs", "show", big), 2), (("bugs", "show", "0"), 2), (("bugs", "show", "7"), 2),
        (("bugs", "set", big, "expected"), 2), (("bugs", "set", "1", "duplicate", big), 2),
        (("bugs", "set", "1", "duplicate", "1"), 2), (("bugs", "set", "1", "reported", "\x1b"), 2),
        (("bugs", "set", "1", "reported", "javascript:x"), 2),
        (("bugs", "set", "1", "reported"), 2),
        (("bugs", "set", "1", "nosuch"), 2), (("bugs", "nosuch"), 2),
        (("report", "--bug", big, "--for", "nvidia"), 2), (("report", "--for", "nvidia"), 2),
        (("report", "--bug", "1", "--kernel", "k", "--for", "nvidia"), 2),
        (("diff", big, big), 2), (("diff", "1", "2", "3"), 2), (("diff", "last~" + big), 2),
        (("diff", "last~x"), 2), (("diff", "\x1b[31m"), 2), (("diff", ""), 2), (("diff", "-1"), 2),
        (("export", "--format", "csv", "--run", big), 2),
        (("export", "--format", "csv", "--run", "\x1b"), 2),
        (("export", "--format", "csv", "--run", "1", "--all"), 2),
        (("show", ""), 2), (("show", "\x1b[31m"), 3), (("show", "num_warps"), 2),
        (("show", "num_warps=4", "--stage", "sass"), 3), (("show", "\u202e", "--stage", "ptx"), 3),
        (("history", "--kernel", "nosuch"), 2), (("history", "--kernel", "\x1b[31m"), 2),
        (("history", "--kernel", "scan_fwd", "--sm", "100z"), 2),
        (("history", "--kernel", "scan_fwd", "--triton", "<x"), 2),
        (("history", "--kernel", "scan_fwd", "--ptxas", "\x1b"), 2),
        (("history", "--kernel", "scan_fwd", "--config", "warps"), 2),
        (("history", "--kernel", "a", "--kernel", "b"), 2),
        (("compile", "--kernel", "\x1b[31m"), 2), (("compile", "--kernel", "../x"), 2),
        (("compile", "--kernel", "x" * 5000), 2),
        (("compile", "--kernel", "a", "--kernel", "b"), 2),
        (("compile", "--kernel", "none.py::\x1b[31m"), 2), (("compile",), 2), (("nosuch",), 2),
        (("\x1b[31m",), 2), (("compile", "surplus\x1b"), 2), (("minimize",), 2), (("bisect",), 2),
        (("minimize", "a.ptx", "--kernel", "b.ptx"), 2), (("minimize", "a.txt\x1b"), 2),
        (("minimize", "a.ptx", "--while", "n_regs <"), 2),
        (("minimize", "a.ptx", "--while", "__import__('os')"), 2),
        (("minimize", "a.ptx", "--while", "n_regs<1", "--script", "true"), 2),
        (("bisect", "--resume", "x", "--kernel", "y"), 2),
        (("blame", "--kernel", "none.ptx", "--sm", "90a", "--sm", "100a"), 2),
        (("cache", "--older-than", "nan"), 2), (("matrix", "merge"), 2),
        (("matrix", "nosuch"), 2), (("import",), 2), (("import", "\x1b"), 2),
    ):  # fmt: skip
        yield Case(id=" ".join(words)[:60], words=words, code=code, store=True)
        if code == 2 and words[0] == "compile":
            yield Case(id=" ".join(words)[:60] + " --json", words=(*words, "--json"), code=2,
                       out='"exit_code": 2', store=True)  # fmt: skip
    for group in ("matrix", "toolchain"):
        # Its help, and no complaint.
        yield Case(id=group, words=(group,), code=2, lines=0, store=True)
    for words in (
        ("minimize", "none.ptx", "--script", "--json"),
        ("bisect", "--kernel", "none.ptx", "--script", "x --json"),
        ("compile", "--kernel", "--json"),
    ):
        yield Case(id=" ".join(words), words=words, code=2)
    yield from _address_cases()


def _address_cases() -> Iterator[Case]:
    for index, url in enumerate((
        "http://[::1/", "https://[", "x", "//host/x", "ftp://h/", "http://", "http://h:0/",
        "http://h:99999/", "http://h:-1/", "http://h:x/", "http:///x", "\x1b[31m", "javascript:x",
        "http://h:²/", "file:///etc/passwd",
    )):  # fmt: skip
        for env in ({}, {"TRIAGE_WEBHOOK": url}):
            words = ("watch",) if env else ("watch", "--webhook", url)
            yield Case(id=f"watch {index} {'by variable' if env else ''}", words=words, code=2,
                       says="--webhook: not a URL", env=env, store=True)  # fmt: skip
    yield Case(id="watch and an empty variable", words=("watch",), code=2, says="TRIAGE_WEBHOOK",
               env={"TRIAGE_WEBHOOK": ""}, store=True)  # fmt: skip
    for index, address in enumerate((
        "tcp://h:0", "tcp://h:65536", "tcp://h:99999", "tcp://h", "tcp://:1", "udp://h:1", "h:²",
        "tcp://h:1/x", "local:-1", "local:1.5", "tcp://[::1:1", "\x1b[31m:1",
    )):  # fmt: skip
        for verb in (("bisect",), ("minimize", "k.ptx"), ("matrix", "run"), ("hunt", "ptxas")):
            words = (*verb, "--scheduler", address)
            if verb[0] == "bisect":
                words = (*words, "--kernel", "k.ptx")
            yield Case(id=f"{verb[0]} --scheduler ADDRESS {index}", words=words, code=2,
                       says="--scheduler")  # fmt: skip


def _toolchain_cases() -> Iterator[Case]:
    def damaged(folder: Path) -> None:
        for name, text in (
            ("ptxas-13.1.115", "{"), ("ptxas-x", "{}"), ("triton-3.6.0", '{"kind": 1}'),
            ("nvdisasm-1", "\x1b[31m"),
        ):  # fmt: skip
            place = folder / "cache" / "toolchains" / name
            place.mkdir(parents=True)
            (place / ".triage-toolchain.json").write_text(text)

    yield Case(id="toolchain list of damaged", words=("toolchain", "list"), code=4, lines=None,
               prepare=damaged, says="ptxas-13.1.115")  # fmt: skip
    yield Case(id="toolchain verify of damaged", words=("toolchain", "verify"), code=1, lines=None,
               prepare=damaged)  # fmt: skip
    for words, code in (
        (("verify", "nosuch"), 2), (("verify", "ptxas-9.9.9"), 2), (("verify", "\x1b[31m"), 2),
        (("verify", ""), 2), (("verify", "../x"), 2), (("remove", "nosuch"), 2),
        (("remove", "ptxas-9.9.9"), 2), (("remove", "../x"), 2), (("remove", "\x1b"), 2),
        (("remove",), 2), (("install",), 2), (("install", "nosuch"), 2), (("install", "ptxas"), 2),
        (("install", "ptxas->=x"), 2), (("install", "ptxas-\x1b[31m"), 2),
        (("install", "triton-9.9.9"), 4), (("install", "nvdisasm-x"), 2), (("install", ""), 2),
        (("install", "ptxas-" + "9" * 5000), 2), (("nosuch",), 2),
    ):  # fmt: skip
        yield Case(id="toolchain " + " ".join(words)[:40], words=("toolchain", *words), code=code)
