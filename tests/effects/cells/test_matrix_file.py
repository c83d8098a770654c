"""`matrix.yaml`: what it says, and what is said of a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cells.matrix_file import find_matrix_file, matrix_schema, read_matrix
from harness.values.errors import ConfigurationError
from harness.values.matrix import ToolChoice

ROOT = Path(__file__).parents[3]

GOOD = """\
version: 1
toolchains:
  triton: {spec: ">=3.5", prereleases: false}
  ptxas:  {spec: ["bundled", ">=12.9"]}
targets: [sm_80, sm_90a, 100a]
kernels: ["mamba3_*", "mamba2_*"]
exclude: [{triton: "<3.3", target: "sm_100*", reason: "no Blackwell support"}]
include: [{triton: "==3.6.0", ptxas: "==13.1.115", target: sm_100a, kernel: mamba3_k, set: {n: 4}}]
overrides: [{kernel: "m*", target: 120a, timeout: 600, memory: 2}, {cell: "*@x*", repeat: 3}]
expect:
  - {kernel: k, when: {triton: ">=3.5,<3.8", config: "num_warps=4"}, verdict: trap_stub}
defaults: {timeout: 250, repeat: 2}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(text)
    return path


def test_everything_that_may_stand_in_it(tmp_path: Path) -> None:
    matrix = read_matrix(write(tmp_path, GOOD))
    assert matrix.triton.specs == (">=3.5",)
    assert matrix.ptxas.specs == ("bundled", ">=12.9")
    assert [str(target) for target in matrix.targets] == ["sm_80", "sm_90a", "sm_100a"]
    assert (matrix.timeout, matrix.repeat, matrix.freeze_ptx) == (250.0, 2, True)
    [excluded] = matrix.exclude
    assert (excluded.reason, excluded.line) == ("no Blackwell support", 7)
    assert excluded.selector.is_known_early
    [extra] = matrix.include
    assert (extra.kernel, extra.set, extra.compiler, extra.line) == (
        "mamba3_k",
        (("n", 4),),
        ToolChoice(kind="triton", spec="==3.6.0"),
        8,
    )
    override, other = matrix.overrides
    assert (override.timeout, override.memory, override.repeat) == (600.0, 2 << 30, None)
    assert (override.selector.kernel, override.selector.target) == ("m*", "sm_120a")
    assert (other.selector.cell, other.repeat) == ("*@x*", 3)
    [expectation] = matrix.expect
    assert (expectation.verdict, expectation.line) == ("trap_stub", 11)
    assert not expectation.selector.is_known_early
    assert matrix.lines["kernels[1]"] == 6


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('">=12.9"', "12.10", r':4: toolchains.ptxas.spec\[1\]: .* write it in quotes: "12.10"'),
        ('">=3.5", pre', "no, pre", r':3: toolchains.triton.spec: .*in quotes: "no"'),
        ('"<3.3"', "3.3", r':7: exclude\[0\].triton: .*in quotes: "3.3"'),
        ('"<3.3"', '"<x"', r":7: exclude\[0\].triton: '<x' is not a specifier"),
        ('"bundled", ', '"bundeld", ', r":4: toolchains.ptxas.spec\[0\]: 'bundeld' is not"),
        ("sm_80,", "sm_8,", r":5: targets\[0\]: 'sm_8' is not a GPU target"),
        ("target: sm_100a", "target: sm_1", r":8: include\[0\].target: 'sm_1' is not"),
        ('reason: "no Blackwell support"', "", r":7: exclude\[0\]: .*`reason` is missing"),
        ("timeout: 600", "tmeout: 600", r":9: overrides\[0\]: the key `tmeout` is not known"),
        ("version: 1", "version: 1\ntriton: [3.6.0]", ":2: .*did you mean `toolchains.triton`"),
        ("targets:", "target:", ":5: .*did you mean `targets`. Known here: version, targets,"),
        ("version: 1", "version: 1\nsm: [80]", ":2: the key `sm` is not known. Known here: ver"),
        ("timeout: 600", "tmeout: 600", r":9: .*did you mean `timeout`. Known here: cell, launch"),
        ("timeout: 600, memory: 2", "timeout: -1", r":9: overrides\[0\].timeout: "),
        ('kernel: "m*", target: 120a, ', "", r":9: overrides\[0\]: it overrides for every cell"),
        (", timeout: 600, memory: 2", "", r":9: overrides\[0\]: it overrides nothing"),
        ("trap_stub", "trap", r":11: expect\[0\].verdict: "),
        ('"num_warps=4"', "warps", r":11: expect\[0\].when.config: .*not name=value"),
        ("version: 1", "version: 2", r":1: version: "),
        ('"mamba3_*", "mamba2_*"', "", r":6: kernels: "),
        ('triton: "<3.3", target: "sm_100*", ', "", r":7: exclude\[0\]: it excludes everything"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigurationError, match=r"matrix\.yaml" + said):
        read_matrix(write(tmp_path, GOOD.replace(old, new)))


def test_the_schema_that_is_shipped_is_that_of_the_code() -> None:
    assert json.loads((ROOT / "matrix.schema.json").read_text()) == matrix_schema()


def test_the_matrix_that_is_shipped_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = find_matrix_file()
    assert path.samefile(ROOT / "matrix.yaml")
    assert read_matrix(path).expect
    mine = write(tmp_path, GOOD)
    assert find_matrix_file().samefile(mine)
