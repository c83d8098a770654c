"""Read which torch and Triton a project pins, in requirements, locks and images. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from harness.values.errors import ConfigurationError

PACKAGES = ("torch", "triton")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_HASHES = re.compile(r"\s--hash[= ]\S+|\s*\\$")
_IN_COMMAND = re.compile(
    r"(?<![\w.-])(torch|triton)(?:\[[\w, ]*\])?((?:\s*(?:==|~=|>=|<=|!=|<|>)\s*[\w.*+]+,?)+)"
)
_IMAGE = re.compile(
    r"^\s*FROM\s+(?:\S+/)?pytorch/pytorch:(\d+\.\d+\.\d+)\b", re.IGNORECASE | re.MULTILINE
)
_VARIABLE = re.compile(r"(?im)^\s*(?:ARG|ENV)\s+(\w+)[= ]\"?([^\s\"]+)\"?")
_USED = re.compile(r"\$\{?(\w+)\}?")
_POETRY = re.compile(r"[\^](\d+(?:\.\d+)*)")


def read_pins(text: str, name: str) -> list[str]:
    """What a file says of torch and of Triton, as an installer takes it: `torch>=2.6`, or `torch`.

    Its form depends on the last part of its name.

    Raises:
        ConfigurationError: it is not what its name says, or names neither torch nor Triton.
    """
    file = name.rpartition("/")[2]
    try:
        if file.endswith(".lock") or file == "pylock.toml":
            found = _locked(tomllib.loads(text))
        elif file.endswith(".toml"):
            found = _declared(tomllib.loads(text))
        elif "dockerfile" in file.lower() or "containerfile" in file.lower():
            found = _in_image(text)
        else:
            found = _required(text.splitlines())
    # A number of thousands of digits is a plain ValueError.
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from error
    pins = dict(reversed([*found]))
    if not pins:
        raise ConfigurationError(
            f"{name}: it names neither torch nor triton, and what the packages that it names "
            "require is not read; add the line of torch that is installed with them"
        )
    return [package + pins[package] for package in PACKAGES if package in pins]


def _required(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        words = _HASHES.sub("", _COMMENT.sub("", line)).strip()
        try:
            requirement = Requirement(words)
        except InvalidRequirement:
            continue  # an option, another file, an address
        if canonicalize_name(requirement.name) in PACKAGES and not requirement.url:
            yield canonicalize_name(requirement.name), _public(str(requirement.specifier))


def _public(spec: str) -> str:
    """Without the local part of a version (`+cu128`), which the package index has not."""
    return re.sub(r"\+[\w.]+", "", spec)


def _locked(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    packages = document.get("package", document.get("packages", []))
    for package in packages if isinstance(packages, list) else []:
        if isinstance(package, dict) and package.get("name") in PACKAGES and "version" in package:
            yield package["name"], _public(f"=={package['version']}")


def _declared(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The dependencies of pyproject.toml: the project's, its extras', its groups', Poetry's."""
    project = _table(document, "project")
    lists = [project.get("dependencies", [])]
    lists += _table(project, "optional-dependencies").values()
    lists += _table(document, "dependency-groups").values()
    for names in lists:
        if isinstance(names, list):
            yield from _required([text for text in names if isinstance(text, str)])
    poetry = _table(_table(_table(document, "tool"), "poetry"), "dependencies")
    for name in PACKAGES:
        spec = poetry.get(name)
        spec = spec.get("version") if isinstance(spec, dict) else spec
        if isinstance(spec, str):
            spec = _POETRY.sub(r"~=\1", spec).replace("*", "")
            yield from _required([f"{name}{spec if spec[:1] in '=<>~!' else f'=={spec}'}"])


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _in_image(text: str) -> Iterator[tuple[str, str]]:
    variables = dict(_VARIABLE.findall(text))
    text = _USED.sub(lambda match: variables.get(match[1], match[0]), text)
    for name, spec in _IN_COMMAND.findall(text):
        yield from _required([name + spec])
    for version in _IMAGE.findall(text):
        yield "torch", f"=={version}"
