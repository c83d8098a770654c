"""Documents that people and other programs write, damaged: YAML, PTX, IR, Python, logs, caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bad_input_cases import Case

__all__ = ["document_cases"]

MATRIX = """\
version: 1
toolchains:
  triton: {spec: ">=3.5", prereleases: false}
  ptxas:  {spec: ["bundled", ">=12.9"]}
targets: [sm_80, sm_90a, 100a]
kernels: ["mamba3_*", "mamba2_*"]
exclude: [{triton: "<3.3", target: "sm_100*", reason: "no Blackwell support"}]
include: [{triton: "==3.6.0", ptxas: "==13.1.115", target: sm_100a, kernel: mamba3_k, set: {n: 4}}]
overrides: [{target: sm_120a, timeout: 600, memory: 2}]
expect:
  - {kernel: k, when: {triton: ">=3.5,<3.8", config: "num_warps=4"}, verdict: trap_stub}
defaults: {timeout: 250, repeat: 2}
"""
# What stands there, what takes its place, and the line and words of the complaint.
MATRIX_CHANGES: list[tuple[str, str, str]] = [
    ('">=12.9"', "12.10", ":4:"),
    ('">=3.5", pre', "no, pre", ":3:"),
    ('"<3.3"', "3.3", ":7:"),
    ('"<3.3"', '"<x"', "not a specifier"),
    ('"bundled", ', '"bundeld", ', "bundeld"),
    ("sm_80,", "sm_8,", "sm_8"),
    ("sm_80,", '"\\e[31m",', ":5:"),
    ("target: sm_100a", "target: sm_1", ":8:"),
    ('reason: "no Blackwell support"', "", "reason"),
    ("timeout: 600", "tmeout: 600", "tmeout"),
    ("timeout: 600", "timeout: -1", ":9:"),
    ("timeout: 600", "timeout: .nan", ":9:"),
    ("timeout: 600", "timeout: .inf", ":9:"),
    ("timeout: 600", "timeout: 1e400", ":9:"),
    ("memory: 2", "memory: -2", ":9:"),
    ("memory: 2", "memory: .nan", ":9:"),
    ("timeout: 250", "timeout: .nan", ":12:"),
    ("timeout: 250", "timeout: yes", ":12:"),
    ("repeat: 2", "repeat: 0", ":12:"),
    ("repeat: 2", "repeat: 99999999999999999999", "digits"),
    (", timeout: 600, memory: 2", "", ":9:"),
    ("trap_stub", "trap", ":11:"),
    ('"num_warps=4"', "warps", ":11:"),
    ("version: 1", "version: 2", ":1:"),
    ("version: 1", "version: '1'", ":1:"),
    ("version: 1", "version: 1\nversion: 1", "twice"),
    ("version: 1", "\tversion: 1", "not YAML"),
    ("version: 1", "version: !!python/object:os.system 1", "not YAML"),
    ("version: 1", "version: *a", "not YAML"),
    ("version: 1", "<<: {version: 1}", "not YAML"),
    ("version: 1", "version: 1\nfreeze_ptx: true", "freeze_ptx"),
    ("version: 1", "version: 1\n2: x", "not text"),
    ("version: 1", "version: 1\n\x1b]0;owned\x07: x", ":2:"),
    ("version: 1", "version: 1\n\u202e: x", ""),
    ("version: 1", "version: 1\nx: &a [*a]", ""),
    ("version: 1", "x: " + "[" * 100 + "]" * 100 + "\nversion: 1", "nested"),
    ("version: 1", "a: &a x\nb: [" + "*a, " * 40 + "]\nversion: 1", "aliases"),
    ('"mamba3_*", "mamba2_*"', "", "kernels"),
    ('triton: "<3.3", target: "sm_100*", ', "", "excludes everything"),
    ("targets: [sm_80, sm_90a, 100a]", "targets: sm_80", "a list"),
    ("targets: [sm_80, sm_90a, 100a]", "targets: {sm_80: 1}", "a list"),
    ("targets: [sm_80, sm_90a, 100a]", "targets: []", ":5:"),
]
WHOLE_MATRICES = [
    "",
    "---\n",
    "[]",
    "1",
    "null",
    "a: [",
    "'",
    "{",
    "\x00",
    "%YAML 9.9\n---\n",
    "- a",
]
MATRIX_OPTIONS = {
    "--triton": ("", "<x"),
    "--ptxas": ("new",),
    "--compiler": (">=3",),
    "--sm": ("1",),
    "--config": ("num_warps",),
    "--shard": ("0/1", "2/1", "a/b", "1", "", "1/" + "9" * 30, "²/³", "\x1b"),
    "--night": ("",),
    "--scheduler": ("", "local", "local:0", "local:1000", "there", "http://x:1", "tcp://x"),
}
SHA = "f" * 64
REPROS: list[tuple[str, str]] = [
    ("summary: x\n", "kernel"),
    ("kernel: a-b\n", "not the name of a Python function"),
    ('kernel: "a\\e[31m"\n', r"\x1b"),
    ("kernel: k\ntriton: 3.6\n", "write it in quotes"),
    ("kernel: k\ntriton: newest\n", "not a version"),
    ("kernel: k\ntargets: [100z]\n", "not a GPU target"),
    ("kernel: k\ntargets: sm_90a\n", "a list"),
    ("kernel: k\nlaunch: nope.py\n", "nope.py"),
    ("kernel: k\nlaunch: ../../secret.py\n", "launch"),
    ("kernel: k\nlaunch: /etc/passwd\n", "launch"),
    ("kernel: k\nlaunch: pipe.py\n", "pipe.py"),
    ("kernel: k\nlaunch: zero.py\n", "zero.py"),
    ("kernel: k\nfiles: [zero.ptx]\n", "zero.ptx"),
    ("kernel: k\nfiles: [nope.ptx]\n", "nope.ptx"),
    ("kernel: k\nfiles: [a.txt]\n", "files"),
    ("kernel: k\nfiles: ['../k.ptx']\n", "files"),
    ("kernel: k\nfiles: 1\n", "a list"),
    ("kernel: k\nlaunches: [x]\n", "no launch function"),
    ("kernel: k\ncheck: {z: 1}\n", "check"),
    ("kernel: k\ntunable: {z: [1]}\n", "tunable"),
    ("kernel: k\ntunable: {a: []}\n", "tunable"),
    ("kernel: k\ntunable: {a: 1}\n", "tunable"),
    ("kernel: k\nconfigs: 0\n", "config"),
    ("kernel: k\nconfigs: -1\n", "config"),
    ("kernel: k\nconfigs: 1.5\n", "config"),
    ("kernel: k\noperation: {kernel: ../k}\n", "operation"),
    ("kernel: k\noperation: {launch: x}\n", "operation"),
    ("kernel: k\nkernels: {a: {kernel: b}}\n", "kernels"),
    ("kernels:\n  a: {kernel: 1b}\n", "not the name"),
    ("kernels:\n  a/b: {kernel: b}\n", "kernels"),
    ("kernels: {}\n", ""),
    ("kernel: k\nsource: {package: p, version: '1', sha256: abc, module: m}\n", "64"),
    (f"kernel: k\nsource: {{package: p, version: '1', sha256: {SHA}, module: ../m}}\n", "module"),
    (f"kernel: k\nrequires: [{{package: ../p, version: '1', sha256: {SHA}}}]\n", "package"),
    (f"kernel: k\nrequires: [{{package: p, version: x, sha256: {SHA}}}]\n", "version"),
    ("kernel: k\nkernel: k\n", "twice"),
    ("kernel: k\n\tx: 1\n", "not YAML"),
    ("kernel: [k\n", "not YAML"),
    ("- kernel\n", ""),
    ("", "empty"),
    ("\x00", "not YAML"),
]
HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
ENTRY = ".visible .entry k() { ret; }\n"
PTX: list[tuple[str, str, str]] = [
    ("prose", "hello\n", "no .version"),
    ("no entry", HEAD, "no .entry"),
    ("no target", ".version 8.0\n" + ENTRY, ".target"),
    ("a target of nobody", HEAD.replace("sm_90a", "sm_9x") + ENTRY, ""),
    ("a byte order mark", "\ufeff" + HEAD + ENTRY, "byte order mark"),
    ("an open comment", "/* " + HEAD + ENTRY, ""),
    ("only a comment", "// x\n", ""),
    ("an endless name", HEAD + ".visible .entry " + "k" * 100_000, ""),
    ("escapes", "\x1b[31m" + HEAD + ENTRY, ""),
    ("NUL", "\x00" * 100, ""),
    ("a version of words", HEAD.replace("8.0", "new") + ENTRY, ".version"),
]
IR: list[tuple[str, str]] = [
    ("prose", "hello\n"),
    ("no function", "module {\n}\n"),
    ("escapes", "\x1b]0;x\x07"),
    ("braces", "{" * 5000),
    ("LLVM's", "define void @k() { ret void }\n"),
]
LAUNCHES: list[tuple[str, str, str]] = [
    ("nothing", "x = 1\n", "launches nothing"),
    ("a parameter", "def launch(n): pass\n", "has no default"),
    ("no Python", "def launch(:\n", ":1: not Python"),
    ("NUL", "x = '\0'\n", ":1: not Python"),
    ("digits", "x = " + "9" * 5000, "not Python"),
    ("brackets", "x = " + "(" * 100_000, "not Python"),
    ("signs", "x = " + "-" * 50_000 + "1\n", "nested too deeply"),
    ("another encoding", "# -*- coding: nosuch -*-\nx = 1\n", "not Python"),
    ("Python 2", "print 'launch'\n", "not Python"),
    ("an escape", "def \x1b[31m(): pass\n", r"not Python"),
]
PTX_OPTIONS: list[tuple[tuple[str, ...], str]] = [
    (("--set", "version=abc"), "version"),
    (("--set", "version=8.8\n.entry x(){}"), "version"),
    (("--set", "target=sm_90\n.entry x(){}"), "target"),
    (("--set", "target=\x1b[31m"), r"\x1b"),
    (("--set", "target="), "target"),
    (("--set", "version=²"), "version"),
    (("--set", "ptx_options=--gpu-name=sm_80"), "--gpu-name"),
    (("--set", "ptx_options=kernel.ptx"), "kernel.ptx"),
    (("--set", "nosuch=1"), "nosuch"),
    (("--set", "version"), "NAME=VALUE"),
    (("--set", "version=8.1", "--set", "version=8.2"), "twice"),
    (("--sm", "100z"), "100z"),
    (("--sm", "\x1b[31m"), r"\x1b"),
    (("--launch", "nosuch"), "--launch"),
    (("--config", "num_warps=4"), "configs"),
    (("--ptxas", "bundled"), "bundled"),
    (("--ptxas", "bananas"), "bananas"),
    (("--ptxas", ">=x"), ">=x"),
    (("--ptxas", "\x1b[31m"), r"\x1b"),
    (("--freeze-ptx",), ""),
    (("--kernel", "k.ptx"), "2 times"),
    (("--json", "--markdown"), ""),
]
ASKED = {"type": "asked", "axis": "ptxas", "selection": {}, "options": {}}

_ASKED = json.dumps(ASKED)
LOGS = [
    "", "{}\n", "[]\n", "1\n", "null\n", "not JSON\n", '{"type": "end"}\n', "\xff\n",
    '{"type": "answer"}\n', _ASKED[:-5], _ASKED.replace("ptxas", "nosuch") + "\n",
    _ASKED + "\n", _ASKED + "\nx\n", _ASKED + "\n{}\n", _ASKED + "\n" + "[" * 100_000 + "\n",
    _ASKED + '\n{"type": "answer", "version": 1}\n', "\x1b[31m\n", "\u202e\n", "\x00" * 100,
    _ASKED.replace("asked", "\x1b"), _ASKED.replace("{", '{"schema": 99, ', 1) + "\n",
    _ASKED.replace("{", '{"schema": "1", ', 1) + "\n",
]  # fmt: skip
LEFTOVERS: list[tuple[str, str | bytes]] = [
    ("k.ptx", "prose"), ("k.ptx", b"\xff" * 100), ("k.ttir", "prose"), ("k.ttgir", ""),
    ("k.json", "{}"), ("k.json", "[" * 100_000), ("k.llir", "x"), ("k.cubin", b"\x7fELF"),
    ("\x1b[31m.ptx", "x"), ("__grp__k.json", "{}"), ("k.txt", "x"),
]  # fmt: skip


def document_cases() -> Iterator[Case]:
    """All of this module."""
    yield from _matrix_cases()
    yield from _repro_cases()
    yield from _kernel_cases()
    yield from _log_cases()
    yield from _import_cases()


def _of(
    id_: str,
    words: tuple[str, ...],
    name: str,
    text: str | bytes,
    *,
    code: int = 2,
    says: str = "",
    lines: int | None = 1,
) -> Case:
    """A case with one file in its folder."""

    def prepare(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

    return Case(id=id_, words=words, code=code, says=says, lines=lines, prepare=prepare)


def _matrix_cases() -> Iterator[Case]:
    words, file = ("matrix", "run", "--list"), "matrix.yaml"
    for index, (old, new, said) in enumerate(MATRIX_CHANGES):
        assert old in MATRIX
        yield _of(f"matrix.yaml {index}", words, file, MATRIX.replace(old, new), says=said)
    for index, text in enumerate(WHOLE_MATRICES):
        yield _of(f"whole matrix.yaml {index}", words, file, text, says="matrix.yaml")
    for name, values in MATRIX_OPTIONS.items():
        for index, value in enumerate(values):
            yield _of(f"a matrix.yaml and {name} {index}", (*words, name, value), file, MATRIX)


def _repro_cases() -> Iterator[Case]:
    for index, (text, said) in enumerate(REPROS):

        def prepare(folder: Path, text: str = text) -> None:
            place = folder / "repros" / "mine"
            place.mkdir(parents=True)
            (place / "repro.yaml").write_text(text)
            (place / "launch.py").write_text("def default(*, a=1): ...\n")
            for name in ("zero.py", "zero.ptx"):
                (place / name).symlink_to("/dev/zero")
            (place / "pipe.py").symlink_to(place / "pipe.py")

        yield Case(
            id=f"repro.yaml {index}",
            words=("compile", "--sm", "90a", "--kernel", "mine"),
            code=2,
            says=said,
            prepare=prepare,
        )


def _kernel_cases() -> Iterator[Case]:
    for verb in ("compile", "minimize", "blame", "bisect"):
        for what, text, said in PTX:
            words: tuple[str, ...] = (verb, "--kernel", "k.ptx")
            yield _of(f"{verb} PTX with {what}", words, "k.ptx", text, says=said)
    for file in ("k.ttir", "k.ttgir"):
        for what, text in IR:
            words = ("compile", "--sm", "90a", "--kernel", file)
            yield _of(f"{file} with {what}", words, file, text)
    for verb in ("compile", "run"):
        for what, text, said in LAUNCHES:
            words = (verb, "--sm", "90a", "--kernel", "k.py")
            yield _of(f"{verb} launch code with {what}", words, "k.py", text, says=said)
    for index, (more, said) in enumerate(PTX_OPTIONS):
        words = ("compile", "--kernel", "k.ptx", *more)
        yield _of(f"compile k.ptx {index}", words, "k.ptx", HEAD + ENTRY, says=said)
    for kernel in ("k.ptx::", "k.ptx::nosuch", "k.ptx::\x1b[31m", "k.ptx::a::b"):
        words = ("compile", "--kernel", kernel)
        yield _of(f"compile {kernel!r}", words, "k.ptx", HEAD + ENTRY)


def _log_cases() -> Iterator[Case]:
    for index, text in enumerate(LOGS):
        for option in ("--replay", "--resume"):
            words = ("bisect", option, "log.jsonl")
            data = text.encode("latin-1", "ignore")
            yield _of(f"bisect {option} of log {index}", words, "log.jsonl", data)


def _import_cases() -> Iterator[Case]:
    for index, (name, text) in enumerate(LEFTOVERS):
        words: tuple[str, ...] = ("import", "cache")
        file = f"cache/HASH/{name}"
        yield _of(f"import of {index}", words, file, text, code=3, lines=None)
    for version in ("zz", "", "\x1b[31m", "latest", ">=3.6"):
        words = ("import", "cache", "--triton", version)
        yield _of(f"import --triton {version!r}", words, "cache/HASH/k.ptx", HEAD + ENTRY)
