"""Selectors as people write them: `mamba3_*@sm_100a*` or `kernel=mamba3_*,triton=>=3.5,<3.8`.

Pure.
"""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.values.errors import UsageError
from harness.values.kernel import ConfigFilter
from harness.values.matrix import Selector, ToolRange
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTXAS, TRITON

_VERSIONED = ("triton", "ptxas", "compiler", "assembler")
_WORDS = ("cell", "kernel", "launch", "target", *_VERSIONED, "config")
_TOOL = re.compile(r"([a-z][a-z0-9_]*)\s*([<>=!~].*|)")
_WILD = re.compile(r"[*?\[]")
_MORE_OF_A_SPECIFIER = re.compile(r"\s*[<>=!~]")


def read_specifiers(text: str) -> SpecifierSet:
    """A range of versions (`>=3.5,<3.8`), or one version.

    Raises:
        UsageError: it is neither.
    """
    try:
        if text.strip():
            return SpecifierSet(text)
    except InvalidSpecifier:
        pass
    try:
        return SpecifierSet(f"=={Version(text)}")
    except InvalidVersion as error:
        raise UsageError(
            f"{text[:80]!r} is not a specifier of versions; write '>=3.5,<3.8', '==12.9.*' or 3.6.0"
        ) from error


def read_tool(text: str) -> ToolRange:
    """A kind of compiler or assembler, alone or with versions: `kettle`, `kettle>=1,<2`.

    Raises:
        UsageError: it is neither.
    """
    match = _TOOL.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text[:80]!r} names no kind; write KIND or KIND==VERSION")
    return ToolRange(kind=match[1], versions=read_specifiers(match[2]) if match[2] else None)


def make_selector(
    *,
    cell: str | None = None,
    kernel: str | None = None,
    launch: str | None = None,
    target: str | None = None,
    triton: str | None = None,
    ptxas: str | None = None,
    compiler: str | None = None,
    assembler: str | None = None,
    config: str = "",
) -> Selector:
    """The selector with these parts; `ptxas` may also be `bundled`.

    `triton` and `ptxas` are versions of these, `compiler` and `assembler` a kind with versions.

    Raises:
        UsageError: one of them makes no sense.
    """
    if target is not None:
        target = "|".join(_target(each.strip()) for each in target.split("|"))
    bundled = ptxas == BUNDLED
    return Selector(
        cell=cell,
        kernel=kernel,
        launch=launch,
        target=target,
        compilers=_ranges(TRITON, triton, compiler),
        assemblers=_ranges(PTXAS, None if bundled else ptxas, assembler),
        bundled=True if bundled else None,
        config=ConfigFilter.parse(config),
    )


def _target(pattern: str) -> str:
    """Without a wildcard it is a target, however the user spells it."""
    return pattern if _WILD.search(pattern) else str(Target.parse(pattern))


def _ranges(kind: str, versions: str | None, tool: str | None) -> tuple[ToolRange, ...]:
    own = [] if versions is None else [ToolRange(kind=kind, versions=read_specifiers(versions))]
    return (*own, *([] if tool is None else [read_tool(tool)]))


def parse_selector(text: str) -> Selector:
    """Read a pattern over cell ids, or `word=value` parts; other names are of the config.

    Raises:
        UsageError: it is neither.
    """
    if not text.strip():
        raise UsageError("a selector is empty; write for example '*@sm_100a*' or target=sm_100a")
    if not any(part.partition("=")[0].strip() in _WORDS for part in text.split(",")):
        if re.search(r'^(?:[^"\s]|"[^"]*")*\s', text):
            raise UsageError(f"{text!r}: no id of a cell has a blank outside quotes")
        # A cell's id has both; without a wildcard it cannot be a whole one.
        return Selector(cell=text if _WILD.search(text) or "@" in text else f"*{text}*")
    words: dict[str, str] = {}
    config: list[str] = []
    last = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if last in _VERSIONED and _MORE_OF_A_SPECIFIER.match(part):
            words[last] += f",{part}"
            continue
        last = name.strip()
        if last == "config":
            config.append(value)
        elif last in _WORDS and equals:
            if last in words:
                raise UsageError(f"{text!r}: {last} twice; give two selectors instead")
            words[last] = value.strip()
        else:
            config.append(part)
    return make_selector(**words, config=",".join(config))
