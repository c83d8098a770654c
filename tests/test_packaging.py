"""What `packaging/` repeats of the two pyproject.toml is what they say."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

import harness

ROOT = Path(__file__).parents[1]
RECIPE = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
# What conda-forge has not; only `minimize` of CUDA C++ imports it, and says so.
LEFT_OUT = {"tree-sitter", "tree-sitter-cuda"}


def project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def required(entries: list[str]) -> set[tuple[str, str]]:
    found = [Requirement(entry) for entry in entries]
    return {(each.name.lower().replace("_", "-"), str(each.specifier)) for each in found}


def test_the_recipe_needs_what_the_packages_need() -> None:
    assert RECIPE["context"]["version"] == harness.__version__
    both = zip(RECIPE["outputs"], ("emulator/pyproject.toml", "pyproject.toml"), strict=True)
    for output, path in both:
        declared = project(path)
        words = declared["project"]
        assert output["package"]["name"] == words["name"]
        wanted = required([*words["dependencies"], f"python{words['requires-python']}"])
        run = {each for each in wanted if each[0] not in LEFT_OUT}
        assert required(output["requirements"]["run"]) == run
        built = required(
            [*declared["build-system"]["requires"], f"python{words['requires-python']}"]
        )
        assert required(output["requirements"]["host"]) == built | {("pip", "")}
    [entry] = project("pyproject.toml")["project"]["scripts"].items()
    assert RECIPE["outputs"][1]["build"]["python"]["entry_points"] == [" = ".join(entry)]


def test_the_image_has_what_a_wheel_is_made_of() -> None:
    text = (ROOT / "packaging/Dockerfile").read_text()
    copied = {
        name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()
    }
    wheel = project("pyproject.toml")["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied == {
        *wheel["packages"],
        *wheel["force-include"],
        *("pyproject.toml", "README.md", "LICENSE", "emulator"),
    }
