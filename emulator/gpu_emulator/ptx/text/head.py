"""The head of a PTX entry or function: name, parameters and directives. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_emulator.ptx.text.instruction import split_operands

_HEAD = re.compile(
    r"(?P<front>(?:\.\w+\s+){0,4}?)\.(?P<what>entry|func)\s*(?P<results>\([^()]*\))?"
    r"\s*(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^()]*)\))?(?P<directives>.*)",
    re.DOTALL,
)
_NAME = re.compile(r"([\w$%]+)\s*(?:\[[^\]]*\]\s*)?\Z")
_DIRECTIVES = re.compile(r"\.\w+[^.]*")


@dataclass(frozen=True, slots=True)
class PtxParameter:
    """A parameter as it is written, and its name."""

    text: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`.visible .entry name(parameters) directives`, part by part."""

    front: tuple[str, ...]
    what: str
    results: str
    name: str
    parameters: tuple[PtxParameter, ...]
    directives: tuple[str, ...]

    def __str__(self) -> str:
        words = " ".join([*self.front, f".{self.what}", *filter(None, [self.results]), self.name])
        parameters = ", ".join(each.text for each in self.parameters)
        return " ".join([f"{words}({parameters})", *self.directives])

    @property
    def is_entry(self) -> bool:
        """Whether it can be launched: no caller then depends on its parameters."""
        return self.what == "entry"


def read_head(code: str) -> Head | None:
    """Read a head without comments; None if it is not to be understood."""
    found = _HEAD.fullmatch(code)
    if not found:
        return None
    parameters = []
    for text in split_operands(found["parameters"] or ""):
        name = _NAME.search(text)
        if not name:
            return None
        parameters.append(PtxParameter(text, name[1]))
    return Head(
        front=tuple(found["front"].split()),
        what=found["what"],
        results=found["results"] or "",
        name=found["name"],
        parameters=tuple(parameters),
        directives=tuple(text.strip() for text in _DIRECTIVES.findall(found["directives"])),
    )
