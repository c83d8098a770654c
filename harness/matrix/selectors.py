"""Selectors as people write them: `mamba3_*@sm_100a*` or `kernel=mamba3_*,triton=>=3.5,<3.8`."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.values.errors import UsageError
from harness.values.kernel import ConfigFilter
from harness.values.matrix import Selector
from harness.values.target import Target
from harness.values.toolchain import BUNDLED

__all__ = ["make_selector", "parse_selector", "read_specifiers"]

_WORDS = ("cell", "kernel", "launch", "target", "triton", "ptxas", "config")
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


def make_selector(
    *,
    cell: str | None = None,
    kernel: str | None = None,
    launch: str | None = None,
    target: str | None = None,
    triton: str | None = None,
    ptxas: str | None = None,
    config: str = "",
) -> Selector:
    """The selector with these parts; `ptxas` may also be `bundled`.

    Raises:
        UsageError: one of them makes no sense.
    """
    # Without a wildcard it is a target, however the user spells it.
    if target is not None and not _WILD.search(target):
        target = str(Target.parse(target))
    bundled = ptxas == BUNDLED
    return Selector(
        cell=cell,
        kernel=kernel,
        launch=launch,
        target=target,
        triton=None if triton is None else read_specifiers(triton),
        ptxas=None if ptxas is None or bundled else read_specifiers(ptxas),
        bundled=True if bundled else None,
        config=ConfigFilter.parse(config),
    )


def parse_selector(text: str) -> Selector:
    """Read a pattern over cell ids, or `word=value` parts; other names are of the config.

    Raises:
        UsageError: it is neither.
    """
    if not text.strip():
        raise UsageError("a selector is empty; write for example '*@sm_100a*' or target=sm_100a")
    if not any(part.partition("=")[0].strip() in _WORDS for part in text.split(",")):
        # A cell's id has both; without a wildcard it cannot be a whole one.
        return Selector(cell=text if _WILD.search(text) or "@" in text else f"*{text}*")
    words: dict[str, str] = {}
    config: list[str] = []
    last = ""
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if last in ("triton", "ptxas") and _MORE_OF_A_SPECIFIER.match(part):
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
