from __future__ import annotations

import pytest

from harness.binaries.pin_files import read_pins
from harness.values.errors import ConfigurationError

POETRY = '[tool.poetry.dependencies]\npython = "^3.11"\ntorch={version = "^2.8"}\ntriton = "3.4.0"'
DOCKER = """\
ARG TORCH=2.9.1
FROM nvidia/cuda:13.0.1-devel
RUN pip install "torch==${TORCH}" torchvision==0.24.1 && \\
    pip install triton>=3.5,<3.6
"""


@pytest.mark.parametrize(
    ("name", "text", "requirements"),
    [
        ("requirements.txt", "numpy\ntorch==2.9.1\n", ["torch==2.9.1"]),
        ("r.in", "-r more.txt\ntorch[opt-einsum] >= 2.6 ; python_version > '3'", ["torch>=2.6"]),
        ("r.txt", "torch==2.8.0+cu128 \\\n  --hash=sha256:00\ntriton==3.4.0", ["torch==2.8.0",
         "triton==3.4.0"]),
        ("r.txt", "torchvision==1\nTorch  # ours\ntorch @ https://example.com/t.whl", ["torch"]),
        ("uv.lock", '[[package]]\nname = "torch"\nversion = "2.9.1+cu130"\n', ["torch==2.9.1"]),
        ("pylock.toml", '[[packages]]\nname = "triton"\nversion = "3.5.1"\n', ["triton==3.5.1"]),
        ("a/pyproject.toml", '[project]\ndependencies = ["x", "torch~=2.7"]', ["torch~=2.7"]),
        ("pyproject.toml", '[project.optional-dependencies]\ngpu = ["triton>=3"]', ["triton>=3"]),
        ("pyproject.toml", '[dependency-groups]\ndev = ["torch", {include-group = "x"}]',
         ["torch"]),
        ("pyproject.toml", POETRY, ["torch~=2.8", "triton==3.4.0"]),
        ("Dockerfile", DOCKER, ["torch==2.9.1", "triton<3.6,>=3.5"]),
        ("Dockerfile.gpu", "FROM pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel", ["torch==2.7.1"]),
    ],
)  # fmt: skip
def test_what_a_file_pins(name: str, text: str, requirements: list[str]) -> None:
    assert read_pins(text, name) == requirements


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("requirements.txt", "", "neither torch nor triton"),
        ("requirements.txt", "vllm==0.33.0", "what the packages that it names require is not read"),
        ("requirements.txt", "\x00\x1b[31m", "neither torch nor triton"),
        ("uv.lock", "[[package", "uv.lock: not TOML"),
        ("uv.lock", f"x = {'1' * 5000}", "uv.lock: not TOML"),
        ("uv.lock", "package = 3", "neither torch nor triton"),
        ("pyproject.toml", "project = []\ntool = 1\ndependency-groups = ''", "neither torch"),
        ("Dockerfile", "FROM scratch\nRUN pip install torchvision==1.0", "neither torch"),
    ],
)
def test_what_pins_nothing_is_refused(name: str, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        read_pins(text, name)
