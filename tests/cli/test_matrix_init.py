"""`triage matrix init`: a first matrix.yaml, of the files that launch kernels."""

from __future__ import annotations

from conftest import HERE, Triage

from harness.cells.matrix_file import read_matrix
from harness.values.target import Target


def test_it_names_the_files_that_launch_kernels(triage: Triage) -> None:
    scripts = triage.folder / "my kernels"
    scripts.mkdir()
    (scripts / "small.py").write_text((HERE / "kernels/small.py").read_text())
    (triage.folder / "setup.py").write_text("print('no kernel')\n")
    done = triage("matrix", "init", "--sm", "h100", "--sm", "b200")
    assert done.returncode == 0, done.stderr
    file = triage.folder / "matrix.yaml"
    text = file.read_text()
    assert done.stdout.startswith(f"{text}\nNext:\n  triage matrix run --max-time 10m  # ")
    assert text.count("\n") == 6
    matrix = read_matrix(file)
    assert matrix.kernels == ("my kernels/small.py",)
    assert matrix.targets == (Target.parse("90a"), Target.parse("100a"))
    assert triage("matrix", "run", "--dry-run").returncode == 0

    again = triage("matrix", "init")
    assert again.returncode == 2
    assert "matrix.yaml exists" in again.stderr
    assert file.read_text() == text


def test_a_folder_without_kernels_gets_no_matrix(triage: Triage) -> None:
    done = triage("matrix", "init")
    assert done.returncode == 2
    assert "no Python file in it launches kernels" in done.stderr
    assert not (triage.folder / "matrix.yaml").exists()
