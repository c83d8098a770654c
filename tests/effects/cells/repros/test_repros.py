from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest

from gpu_emulator.ptx.text.facts import MAX_BYTES
from harness.cells.repros.find import find_kernel, find_kernels, list_repros
from harness.cells.repros.launch_files import launches_of_repro, launches_of_script
from harness.io.files.reading import FieldError, read_yaml
from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import LaunchParameter

SHA = "0123456789abcdef" * 4
PTX = ".version 8.0\n.target sm_90a\n.visible .entry first() { ret; }\n.entry second() { trap; }\n"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    size: int = 0


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    version: int = 1
    triton: str | None = None
    tags: list[str] = []
    inner: list[Inner] = []
    fast: bool = False


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(folder: Path, text: str | bytes) -> Settings:
    path = folder / "matrix.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path, Settings)


def complaint(folder: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings(folder, text)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/matrix.yaml:")


def repro(
    folder: Path, text: str, launch: str = "def default(): ...\n", name: str = "mine"
) -> Path:
    place = folder / "repros" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "repro.yaml").write_text(text)
    (place / "launch.py").write_text(launch)
    return place


def refused(name: str = "mine") -> str:
    with pytest.raises(UsageError) as caught:
        find_kernel(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_file(tmp_path: Path) -> None:
    text = 'version: 2\ntriton: "3.6"\ntags: &t [a, 2024-01-01]\ninner:\n- {name: x, size: 3}\n'
    found = settings(tmp_path, text)
    assert found == Settings(
        version=2, triton="3.6", tags=["a", "2024-01-01"], inner=[Inner(name="x", size=3)]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty"),
        ("# only a comment\n", "1: the file is empty"),
        ("\ntriton: 3.6\n", '2: triton: expected text, got 3.6; write it in quotes: "3.6"'),
        ("triton: 12.10\n", '1: triton: expected text, got 12.10; write it in quotes: "12.10"'),
        ("tags:\n- a\n- no\n", '3: tags[1]: expected text, got no; write it in quotes: "no"'),
        ("tags: [~]\n", '1: tags[0]: expected text, got ~; write it in quotes: "~"'),
        ("version: soon\n", "1: version: expected a whole number, got 'soon'"),
        ("version:\n", "1: version: expected a whole number, got nothing"),
        ("fast: 1\n", "1: fast: expected true or false, got '1'"),
        ("tags: a\n", "1: tags: expected a list, got 'a'"),
        ("triton: [a]\n", "1: triton: expected text, got a list"),
        ("- a\n", "1: expected a mapping, got a list"),
        ("version: 1\nnope: 2\n", "2: the key `nope` is not known"),
        ("inner:\n- name: x\n  nope: 2\n", "3: inner[0]: the key `nope` is not known"),
        ("inner:\n- size: 2\n", "2: inner[0]: the key `name` is missing"),
        ("version: 1\nversion: 2\n", "2: not YAML: the key `version` is there twice"),
        ("inner:\n- {name: a, name: b}\n", "2: not YAML: the key `name` is there twice"),
        ("no: 1\n", '1: not YAML: the key no is not text; write "no"'),
        ("version: 1\n12: x\n", '2: not YAML: the key 12 is not text; write "12"'),
        ("[a, b]: x\n", "1: not YAML: a key that is not plain text"),
        ("\nversion: " + "9" * 5000, "2: not YAML: a number of that many digits"),
        ("version: !!python/object:os.system x\n", "1: not YAML:"),
        ("version: !!binary aGk=\n", "1: not YAML: 'binary' values"),
        ("version: [1\n", "2: not YAML:"),
        ("a: b: c\n", "1: not YAML:"),
        ("version: *nowhere\n", "1: not YAML: found undefined alias"),
        ("tags: &a [*a]\n", "1: not YAML: an alias (*name) inside of what it names"),
        ("x: &a {y: 1}\n<<: *a\n", "2: not YAML: a key that is not plain text"),
        ("a: 1\n---\nb: 2\n", "2: not YAML:"),
        ("\n" + "[" * 100, "2: not YAML: nested deeper than 24 levels"),
        (b"\xff\xfe\x00", "1: not YAML:"),
        (b"version: 1\ntriton: \xe9\n", "2: not YAML:"),
        (b"version: 1\ntriton: a\x00b\n", "2: not YAML:"),
    ],
)  # fmt: skip
def test_every_complaint_names_line_and_key(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert complaint(tmp_path, text).startswith(said)


def test_hostile_files_are_refused_quickly(tmp_path: Path) -> None:
    start = time.process_time()
    levels = "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
    assert "more than 16 aliases" in complaint(tmp_path, "k0: &a0 [x]\n" + levels)
    assert "nested deeper" in complaint(tmp_path, "[" * 1_000_000)
    assert "nested deeper" in complaint(tmp_path, "{a: " * 200_000)
    assert "nested deeper" in complaint(tmp_path, "- " * 400_000)
    assert "more than 1,048,576 bytes" in complaint(tmp_path, "a" * 2_000_000)
    assert time.process_time() - start < 10


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml: no such file"):
        read_yaml(tmp_path / "none.yaml", Settings)
    with pytest.raises(ConfigurationError, match="a folder; name a file in it"):
        read_yaml(tmp_path, Settings)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="pipe: not a regular file"):
        read_yaml(tmp_path / "pipe", Settings)


def test_checks_are_located(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("version: 1\ninner:\n- name: a\n- name: b\n")

    def check(value: Settings) -> None:
        raise FieldError("$.inner[1].name", f"{value.inner[1].name!r} is bad")

    with pytest.raises(ConfigurationError, match=r"m.yaml:4: inner\[1\].name: 'b' is bad"):
        read_yaml(path, Settings, check)


def test_a_repro(here: Path) -> None:
    text = (
        "kernel: my_kernel\nsummary: words\ntriton: '3.6.0'\ntargets: [100a, sm_90]\ntags: [x]\n"
        f"source: {{package: mamba-ssm, version: 2.3.2.post1, sha256: {SHA}, module: a.b}}\n"
        f"requires: [{{package: einops, version: 0.8.1, sha256: {SHA}}}]\n"
    )
    repro(here, text, "def second(b=2): ...\ndef _no(x): ...\ndef third(*, c=None): ...\n")
    found = find_kernel("mine")
    assert (found.name, found.kernel, found.version) == ("mine", "my_kernel", "3.6.0")
    assert found.targets == ("sm_100a", "sm_90")
    assert [launch.name for launch in found.launches] == ["second", "third"]
    assert found.source is not None
    assert found.source.module == "a.b"
    assert found.requires[0].package == "einops"


def test_the_users_own_repros_come_first(here: Path) -> None:
    repro(here, "kernel: other\n", name="mamba3_siso_bwd_dqkv")
    repro(here, "kernel: 1\n", name="broken")
    assert find_kernel("mamba3_siso_bwd_dqkv").kernel == "other"
    repros, errors = list_repros()
    assert "other" in {each.kernel for each in repros}
    assert [str(error).startswith("repros/broken/repro.yaml:1: kernel: ") for error in errors] == [
        True
    ]


def test_a_pattern_of_what_cannot_be_read_says_why(here: Path) -> None:
    repro(here, "kernel: 1\n", name="zz_mine")
    assert refused("zz_m*").startswith("repros/zz_mine/repro.yaml:1: kernel: ")


SEVERAL = """kernels:
  one_fwd: {kernel: _fwd, launches: [second]}
  one_bwd: {kernel: _bwd, summary: backwards, targets: [90a], check: {n: 4}}
summary: words
targets: [100a]
check: {m: 2}
"""


def test_a_folder_of_several_kernels(here: Path) -> None:
    place = repro(here, SEVERAL, name="group")
    code = "def first(*, n=1, m=1): ...\ndef second(*, m=1): ...\n"
    (place / "launch.py").write_text(code)
    backward, forward = find_kernels("one_[bf]wd")
    assert (forward.group, forward.kernel, forward.summary) == ("group", "_fwd", "words")
    assert (backward.group, backward.kernel, backward.summary) == ("group", "_bwd", "backwards")
    assert (forward.targets, backward.targets) == (("sm_100a",), ("sm_90a",))
    assert [launch.name for launch in forward.launches] == ["second"]
    assert [launch.name for launch in backward.launches] == ["first", "second"]
    assert (forward.check, backward.check) == ((("m", 2),), (("m", 2), ("n", 4)))
    assert find_kernel("one_fwd") == forward
    assert find_kernels("group") == [forward, backward]
    with pytest.raises(UsageError, match="--kernel group: name one of one_fwd, one_bwd"):
        find_kernel("group")


def test_what_a_user_may_choose_and_the_operation_that_it_shows_in(here: Path) -> None:
    text = (
        "kernel: k\ntunable: {chunk: [32, 16]}\n"
        "operation: {kernel: whole, launch: small, parameters: {batch: 1}}\n"
    )
    repro(here, text, launch="def default(*, chunk=64): ...\n")
    found = find_kernel("mine")
    assert found.tunable == (("chunk", (32, 16)),)
    assert found.operation is not None
    assert (found.operation.kernel, found.operation.launch) == ("whole", "small")
    assert found.operation.parameters == {"batch": 1}


def test_source_files_with_their_macros(here: Path) -> None:
    text = (
        "kernels:\n  wide: {kernel: k, launches: [b], macros: {N: [4, 8], T: [float]}}\n"
        "  plain: {kernel: k}\n"
        "files: [a.cu, b.cu]\nmacros: {N: [1]}\ncompiler: nvcc==13.0.88\n"
    )
    place = repro(here, text)
    (place / "a.cu").write_text("__global__ void k(float *x) { x[N] = 0.f; }\n")
    (place / "b.cu").write_text("__global__ void k(T *x) { x[N] = T(0); }\n")
    wide, plain = find_kernel("wide"), find_kernel("plain")
    assert (wide.file.name, wide.macros) == ("b.cu", (("N", (4, 8)), ("T", ("float",))))
    assert [launch.name for launch in plain.launches] == ["a", "b"]
    assert (plain.file.name, plain.macros) == ("a.cu", (("N", (1,)),))
    assert (wide.compiler, wide.version, wide.kernel) == ("nvcc", "13.0.88", "k")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("summary: x\n", ":1: the key `kernel` is missing"),
        ("kernel: a-b\n", ":1: kernel: 'a-b' is not the name of a Python function"),
        ("kernel: A..b\n", ":1: kernel: 'A..b' is not the name of a Python function"),
        (
            "kernel: k\ntriton: 3.6\n",
            ':2: triton: expected text, got 3.6; write it in quotes: "3.6"',
        ),
        ("kernel: k\ntriton: newest\n", ":2: triton: 'newest' is not a version, like 3.6.0"),
        ("kernel: k\ntargets:\n- 90a\n- 100z\n", ":4: targets[1]: '100z' is not a GPU target"),
        ("kernel: k\nlaunch: nope.py\n", ":2: launch: no file 'nope.py' in repros/mine"),
        ("kernel: k\nlaunch: ../../secret.py\n", ":2: launch: '../../secret.py' is not the name"),
        ("kernel: k\nlaunch: /etc/passwd\n", ":2: launch: '/etc/passwd' is not the name"),
        ('kernel: k\nlaunch: "a\\0b.py"\n', ":2: launch: "),
        ("kernel: k\nlaunch: link.py\n", ":2: launch: no file 'link.py' in repros/mine"),
        ("kernel: k\nlaunch: loop.py\n", ":2: launch: no file 'loop.py' in repros/mine"),
        ("kernel: k\nlaunches: [x]\n", ":2: launches[0]: no launch function 'x'; launch.py has"),
        ("kernel: k\ncheck: {z: 1}\n", ":2: check: no launch function of launch.py has a param"),
        (
            "kernel: k\ntunable: {z: [1]}\n",
            ":2: tunable: no launch function of launch.py has a par",
        ),
        ("kernel: k\ntunable: {a: []}\n", ":2: tunable.a: name at least one value to try"),
        ("kernel: k\nfiles: [a.txt]\n", ":2: files[0]: 'a.txt' is not the name of a "),
        ("kernel: k\nmacros: {N: [1]}\n", ":2: macros: macros are of source that `files` names"),
        ("kernel: k\nfiles: [a.ptx]\nmacros: {N: [1]}\n", ":3: macros: macros are of source that"),
        ("kernel: k\nfiles: [a.cu]\nmacros: {N: []}\n", ":3: macros: give 'N' a list of values"),
        ("kernel: k\ntunable: {a: 1}\n", ":2: tunable[...]: expected a list, got a whole number"),
        (
            "kernel: k\noperation: {kernel: ../k}\n",
            ":2: operation.kernel: '../k' is not a name for a kernel",
        ),
        ("kernel: k\noperation: {launch: x}\n", ":2: operation: "),
        ("kernel: k\nkernels: {a: {kernel: b}}\n", ":2: kernels: give `kernel` or `kernels`, not"),
        ("kernels:\n  a: {kernel: 1b}\n", ":2: kernels.a.kernel: '1b' is not the name of a"),
        ("kernels:\n  a/b: {kernel: b}\n", ":2: kernels: 'a/b' is not a name for a kernel"),
        (
            "kernel: k\nsource:\n  package: p\n  version: '1'\n  sha256: abc\n  module: m\n",
            ":5: source.sha256: 'abc' is not 64 lower-case hex digits",
        ),
        (
            f"kernel: k\nsource:\n  package: p\n  version: '1'\n  sha256: {SHA}\n  module: ../m\n",
            ":6: source.module: '../m' is not the dotted name of a module",
        ),
        (
            f"kernel: k\nrequires:\n- package: ../p\n  version: '1'\n  sha256: {SHA}\n",
            ":3: requires[0].package: '../p' is not the name of a package",
        ),
        (
            f"kernel: k\nrequires:\n- package: p\n  version: x\n  sha256: {SHA}\n",
            ":4: requires[0].version: 'x' is not a version",
        ),
    ],
)
def test_a_malformed_repro(here: Path, text: str, said: str) -> None:
    place = repro(here, text)
    (here / "secret.py").write_text("def default(): ...\n")
    (place / "link.py").symlink_to(here / "secret.py")
    (place / "loop.py").symlink_to(place / "loop.py")
    assert refused().startswith(f"repros/mine/repro.yaml{said}")


@pytest.mark.parametrize(
    "name", ["../mine", "repros", "", ".", "/mine", "min\0e", "x" * 5000, "other::k"]
)
def test_names_that_are_no_repro(here: Path, name: str) -> None:
    repro(here, "kernel: k\n")
    said = refused(name)
    is_folder = name in ("repros", ".")
    assert said.startswith(f"{name}: no Python file in it " if is_folder else "no kernel ")
    assert len(said) < 400


def test_the_folder_of_a_repro_is_its_name(here: Path) -> None:
    repro(here, "kernel: k\n")
    assert [found.name for found in find_kernels("repros/mine")] == ["mine"]


def test_near_names_are_told(here: Path) -> None:
    repro(here, "kernel: k\n", name="softmax_fwd")
    assert "near names: softmax_fwd" in refused("softmax_fw")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\n", ":1: no launch function; write `def default(): ...`"),
        ("def _a(): ...\n@jit\ndef k(x): ...\n", ":1: no launch function"),
        ("def a(x, y=1): ...\n", ":1: a: parameter 'x' has no default"),
        ("\ndef a(\n  *, z): ...\n", ":3: a: parameter 'z' has no default"),
        ("def a(:\n", ":1: not Python: "),
        ("x = '\0'\n", ":1: not Python: "),
        ("x = " + "9" * 5000, ":1: not Python: "),
        ("x = " + "(" * 100_000, ":1: not Python: "),
        ("x = " + "-" * 50_000 + "1\n", ":1: not Python: nested too deeply"),
    ],
)
def test_malformed_launch_files(tmp_path: Path, code: str, said: str) -> None:
    path = tmp_path / "launch.py"
    path.write_text(code)
    with pytest.raises(UsageError) as caught:
        launches_of_repro(path)
    assert str(caught.value).startswith(f"{path}{said}")


def test_defaults_of_parameters(tmp_path: Path) -> None:
    path = tmp_path / "launch.py"
    path.write_text(
        "def a(i=-1, f=1.5, b=True, s='x', n=None, t=(1, 2), e=torch.bfloat16, "
        "u={[]: 1}, *, k=3): ...\n"
        "def b(*rest, **options): ...\ndef a2(): ...\ndef b(q=1): ...\n"
    )
    first, second, third = launches_of_repro(path)
    assert [parameter.default for parameter in first.parameters] == [
        -1, 1.5, True, "x", None, "(1, 2)", "torch.bfloat16", "{[]: 1}", 3,
    ]  # fmt: skip
    assert (second.name, third.name, third.line) == ("b", "a2", 3)
    assert second.parameters == (LaunchParameter(name="q", default=1),)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def launch(n=3): ...\nrun()\n", "launch"),
        ("if __name__ == '__main__':\n    run()\n", "main"),
        ("if '__main__' == __name__:\n    run()\n", "main"),
        ("run()\n", "main"),
        ("for x in y:\n    run(x)\n", "main"),
        ("try:\n    run()\nfinally:\n    pass\n", "main"),
        ("if FAST:\n    run()\n", "main"),
    ],
)
def test_a_script_that_launches(here: Path, code: str, name: str) -> None:
    (here / "k.py").write_text(code)
    assert [launch.name for launch in launches_of_script(here / "k.py")] == [name]
    found = find_kernel("k.py::my_kernel")
    assert (found.name, found.kernel, found.file) == ("k.py::my_kernel", "my_kernel", Path("k.py"))
    assert find_kernel("k.py").kernel is None


@pytest.mark.parametrize(
    "code",
    [
        "",
        '"""Only a docstring."""\nimport torch\n',
        "try:\n    import x\nexcept ImportError:\n    x = None\n",
        "configs = [triton.Config({})]\n@triton.jit\ndef k(x): ...\n",
    ],
)
def test_a_script_that_launches_nothing(here: Path, code: str) -> None:
    (here / "k.py").write_text(code)
    assert refused("k.py").startswith("k.py: launches nothing: ")


def test_what_launches_nothing_gets_a_launch_to_paste(here: Path) -> None:
    text = """
import triton, triton.language as tl
@triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def scale(x_ptr, out, n, stride, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pointers = x_ptr + at * stride
    tl.store(out + at, tl.load(pointers, at < n) * factor, at < n)
"""
    (here / "k.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        launches_of_script(here / "k.py")
    lines = caught.value.advice.splitlines()
    assert lines[0] == "def launch():"
    assert [line.split()[0] for line in lines[3:-1]] == ["x_ptr", "out"]
    assert lines[-1] == "    scale[(1024,)](x_ptr, out, 1024, 1, 1024, EVEN=64)"
    assert "tests import it" not in str(caught.value)
    (here / "k.py").write_text(f"{text}\n{caught.value.advice}\n")
    assert [launch.name for launch in launches_of_script(here / "k.py")] == ["launch"]


@pytest.mark.parametrize(
    ("decorator", "parameters", "arguments"),
    [
        ("triton.heuristics({'EVEN': lambda a: a['n'] % a['K'] == 0})",
         "n, K: tl.constexpr, EVEN: tl.constexpr", "1024, K=64"),
        ("triton.autotune(CONFIGS, key=['n', 'K'])", "n, SIZE: tl.constexpr, K: tl.constexpr",
         "1024, K=64"),
        ("triton.jit", "n, SIZE: tl.constexpr, K: tl.constexpr = 2", "1024, SIZE=64"),
        ("triton.jit", "n, SIZE: tl.constexpr, k, *, K: tl.constexpr = 2", "1024, SIZE=64, k=1024"),
    ],
)  # fmt: skip
def test_a_launch_to_paste_gives_what_nothing_else_gives(
    here: Path, decorator: str, parameters: str, arguments: str
) -> None:
    configs = "CONFIGS = [triton.Config({'SIZE': 64})]\n"
    text = f"{configs}@{decorator}\n@triton.jit\ndef k({parameters}): ...\n"
    (here / "k.py").write_text(text)
    with pytest.raises(UsageError) as caught:
        launches_of_script(here / "k.py")
    assert caught.value.advice.splitlines()[-1] == f"    k[(1024,)]({arguments})"


def test_what_launches_nothing_names_the_tests_that_import_it(here: Path) -> None:
    for folder in ("pkg/ops", "pkg/tests"):
        (here / folder).mkdir(parents=True)
    (here / "pkg/ops/swiglu.py").write_text("def swiglu(): ...\n")
    (here / "pkg/tests/test_broken.py").write_text("import (")
    (here / "pkg/tests/test_other.py").write_text("import swiglu_too\n")
    (here / "pkg/tests/test_ops.py").write_text("from pkg.ops.swiglu import swiglu\n")
    message = refused("pkg/ops/swiglu.py")
    assert message.endswith("; tests import it: `triage compile pkg/tests/test_ops.py`")


@pytest.mark.parametrize(
    ("name", "code", "launch"),
    [
        ("test_k.py", "D = f()\ndef test_one(): ...\n", "tests"),
        ("k_test.py", "class TestK: ...\n", "tests"),
        (
            "k.py",
            "def test(): ...\nif __name__ == '__main__':\n    pytest.main([__file__])",
            "tests",
        ),
        ("test_k.py", "def test(): ...\nif __name__ == '__main__':\n    test()\n", "main"),
        ("k.py", "def test(): ...\ntest()\n", "main"),
    ],
)
def test_a_file_of_tests(here: Path, name: str, code: str, launch: str) -> None:
    (here / name).write_text(code)
    assert [spec.name for spec in launches_of_script(here / name)] == [launch]


def test_raw_ptx(here: Path) -> None:
    (here / "k.ptx").write_text(PTX)
    found = find_kernel("k.ptx")
    assert (found.name, found.kernel, found.targets) == ("k.ptx", None, ("sm_90a",))
    assert find_kernel("k.ptx::second").name == "k.ptx::second"
    assert refused("k.ptx::third") == "k.ptx: no entry 'third'; the file has first, second"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b" \n\t\n", "the file is empty"),
        (b"\x7fELF\x00\x01", "not PTX: it holds binary data"),
        (b".version 8.0\xff", "not PTX: it holds binary data"),
        (b"hello\n", "no .version directive at the start: not PTX"),
        (PTX.replace("sm_90a", "sm_9").encode(), "'sm_9' is not a GPU target"),
    ],
)
def test_ptx_that_is_none(here: Path, data: bytes, said: str) -> None:
    (here / "k.ptx").write_bytes(data)
    assert refused("k.ptx").startswith(f"k.ptx: {said}")


def test_ptx_that_is_huge_or_missing(here: Path) -> None:
    with (here / "huge.ptx").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert refused("huge.ptx") == f"huge.ptx: more than {MAX_BYTES:,} bytes: it is not read"
    assert refused("none.ptx") == "none.ptx: no such file"
    assert refused("none.py::k") == "none.py: no such file"
