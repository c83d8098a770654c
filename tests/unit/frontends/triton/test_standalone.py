"""A captured launch as one file: helpers and constants inlined, and the file read back."""

from __future__ import annotations

import ast
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.frontends.inline import inline as inline_as
from harness.frontends.one_file import StandaloneError, without_argument
from harness.frontends.triton.front_end import TRITON_FRONT_END
from harness.frontends.triton.source import TritonForm
from harness.values.standalone import Binding, Constant, Definition, Export, FileLaunch, Standalone

TRITON_FORM = TritonForm(TRITON_FRONT_END)
DIALECT, read_standalone, render = TRITON_FORM.dialect, TRITON_FORM.read, TRITON_FORM.render

inline = partial(inline_as, dialect=DIALECT)
TL = {"tl": Binding(module="triton.language")}

CODE = """import triton.language as tl


@triton.jit
def double(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 2)"""

LAUNCH = FileLaunch(
    kernel="double",
    signature={"x": '"*fp32"', "BLOCK": '"constexpr"'},
    constants={("BLOCK",): "128"},
    attributes={("x",): '[["tt.divisibility", 16]]'},
    options={"num_warps": "8"},
    target=("cuda", 90, 32),
)


def export(*definitions: Definition, **values: object) -> Export:
    words: dict[str, object] = {
        "signature": {},
        "constants": [],
        "attributes": [],
        "options": {},
        "source_class": Binding(module="triton.compiler.compiler", attribute="ASTSource"),
        "target": ("cuda", 90, 32),
        **values,
    }
    return Export(definitions=list(definitions), **words)  # type: ignore[arg-type]


def jit(source: str, **names: Binding) -> Definition:
    return Definition(source=source, names={**TL, **names}, decorator="triton.jit")


def functions(code: str) -> dict[str, str]:
    return {
        node.name: ast.unparse(node)
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef)
    }


def test_a_file_is_read_back_as_it_was_written() -> None:
    made = Standalone(code=CODE, launch=LAUNCH)
    text = render(made, header="Shows it.\n\nRun: python FILE")
    assert read_standalone(text) == made
    assert render(made) in text
    assert ast.get_docstring(ast.parse(text)) == "Shows it.\n\nRun: python FILE"


def test_one_file_is_for_every_triton() -> None:
    """Triton 3.2 has another name for constants and takes attributes as an object."""
    calls: list[tuple[object, ...]] = []

    class Descriptor:
        @staticmethod
        def from_dict(described: object) -> object:
            return described

    def source(*words: object) -> str:
        calls.append(words)
        return "source"

    block = ast.parse(render(Standalone(code=CODE, launch=LAUNCH))).body[-1]
    assert isinstance(block, ast.If)
    program = compile(ast.Module(body=block.body, type_ignores=[]), "file", "exec")
    for backend in (SimpleNamespace(), SimpleNamespace(AttrsDescriptor=Descriptor)):
        triton = SimpleNamespace(
            backends=SimpleNamespace(compiler=backend),
            compile=lambda *words, **named: SimpleNamespace(metadata=None),
        )
        double = SimpleNamespace(arg_names=["x", "BLOCK"])
        given = {"ASTSource": source, "GPUTarget": lambda *words: words, "double": double}
        exec(program, {"triton": triton, "print": lambda words: None, **given})
    (kernel, signature, constants, attrs), (*same, described) = calls
    assert (signature, constants) == ({"x": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 128})
    assert attrs == {(0,): [["tt.divisibility", 16]]}
    assert same == [kernel, signature, constants]
    assert described == {"cls": "AttrsDescriptor", "arg_properties": {"tt.divisibility": [0]}}


def test_items_of_a_tuple_are_named_by_position() -> None:
    launch = FileLaunch(
        kernel="double",
        signature={"x": '("*fp32", "constexpr")'},
        constants={("x", 1): "1"},
        attributes={("x", 0): '[["tt.divisibility", 16]]'},
        options={},
        target=("cuda", 90, 32),
    )
    made = Standalone(code=CODE, launch=launch)
    assert '(double.arg_names.index("x"), 1): 1' in render(made)
    assert read_standalone(render(made)) == made


names = st.from_regex(r"[a-z]{1,30}", fullmatch=True)


@given(arguments=st.lists(names, unique=True, max_size=40), warps=st.sampled_from(["1", "8"]))
def test_any_number_of_arguments(arguments: list[str], warps: str) -> None:
    made = Standalone(
        code=CODE,
        launch=FileLaunch(
            kernel="double",
            signature=dict.fromkeys(arguments, '"i32"'),
            constants={(name,): '"text"' for name in arguments[1:]},
            attributes={(name,): '[["tt.divisibility", 16]]' for name in arguments[:-1]},
            options={"num_warps": warps},
            target=("cuda", 120, 32),
        ),
    )
    text = render(made)
    assert read_standalone(text) == made
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("text", ["", "x = 1\n", "import triton\n\nif True:\n    pass\n", "def ("])
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(StandaloneError, match="not a standalone file"):
        read_standalone(text)


def test_an_argument_leaves_every_part_of_the_launch() -> None:
    assert without_argument(LAUNCH, "x").signature == {"BLOCK": '"constexpr"'}
    assert not without_argument(LAUNCH, "x").attributes
    assert not without_argument(LAUNCH, "BLOCK").constants


def test_helpers_of_helpers_come_before_what_uses_them() -> None:
    made = inline(
        export(
            jit("def kernel(x):\n    tl.store(x, one(1))", one=Binding(definition=1)),
            jit("def one(x):\n    return two(x)", two=Binding(definition=2)),
            jit("def two(x):\n    return x + 1"),
        )
    )
    assert list(functions(made.code)) == ["two", "one", "kernel"]
    assert made.launch.kernel == "kernel"
    assert made.code.count("import triton.language as tl") == 1


def test_functions_that_call_each_other_end() -> None:
    made = inline(
        export(
            jit("def kernel(x):\n    one(x)", one=Binding(definition=1)),
            jit("def one(x):\n    kernel(x)", kernel=Binding(definition=0)),
        )
    )
    assert list(functions(made.code)) == ["one", "kernel"]


def test_two_helpers_of_one_name_stay_apart() -> None:
    made = inline(
        export(
            jit(
                "def kernel(x):\n    tl.store(x, helper(1) + other.helper(2))",
                helper=Binding(definition=1),
                **{"other.helper": Binding(definition=2)},
            ),
            jit("def helper(x):\n    return x"),
            jit("def helper(x):\n    return -x"),
        )
    )
    assert functions(made.code) == {
        "helper": "@triton.jit\ndef helper(x):\n    return x",
        "helper_2": "@triton.jit\ndef helper_2(x):\n    return -x",
        "kernel": "@triton.jit\ndef kernel(x):\n    tl.store(x, helper(1) + helper_2(2))",
    }


def test_a_local_name_is_not_taken_for_a_helper_out_of_a_module() -> None:
    made = inline(
        export(
            jit(
                "def kernel(x):\n    cos = module.cos(1)\n    tl.store(x, cos, cos=cos.cos)",
                **{"module.cos": Binding(definition=1)},
            ),
            jit("def cos(x):\n    return x"),
        )
    )
    assert "cos = cos_2(1)\n    tl.store(x, cos, cos=cos.cos)" in functions(made.code)["kernel"]


def test_constants_are_told_to_be_constants() -> None:
    """Triton reads globals that say so, and none else."""
    made = inline(
        export(
            jit(
                "def kernel(x):\n    tl.store(x, LOG2 + math.pi + SIZE)",
                LOG2=Binding(value="0.5"),
                SIZE=Binding(value="tl.constexpr(4)", names=TL),
                **{"math.pi": Binding(value="3.25")},
            )
        )
    )
    assert "\nLOG2 = tl.constexpr(0.5)\nSIZE = tl.constexpr(4)\n" in made.code
    assert "LOG2 + 3.25 + SIZE" in made.code


def test_imports_are_those_of_triton_only() -> None:
    made = inline(
        export(
            Definition(
                source="def kernel(x: torch.Tensor, y: tl.constexpr) -> torch.Tensor:\n"
                "    tl.store(x, libdevice.tanh(exp(fast(tl.math.sqrt(y)))))",
                names={
                    **TL,
                    "libdevice": Binding(module="triton.language.extra.libdevice"),
                    "exp": Binding(module="triton.language.math", attribute="exp"),
                    "fast": Binding(module="triton.language.math", attribute="exp2"),
                },
                decorator="triton.jit",
            )
        )
    )
    head = made.code.split("\n\n")[0].splitlines()
    assert head == [
        "from triton.language.extra import libdevice",
        "from triton.language.math import exp",
        "from triton.language.math import exp2 as fast",
        "import triton.language as tl",
    ]
    assert "def kernel(x, y: tl.constexpr):" in made.code


def test_values_of_the_launch_bring_what_they_name() -> None:
    made = inline(
        export(
            jit("def kernel(x, f: tl.constexpr):\n    tl.store(x, f(1))"),
            jit("def helper(x):\n    return x"),
            signature={"x": "*fp32", "f": "constexpr"},
            constants=[Constant(path=[1], value="helper", names={"helper": Binding(definition=1)})],
            options={"num_warps": Binding(value="8")},
        )
    )
    assert list(functions(made.code)) == ["helper", "kernel"]
    assert made.launch.constants == {("f",): "helper"}
    assert made.launch.options == {"num_warps": "8"}
    assert read_standalone(render(made)) == made


def test_comments_and_layout_stay() -> None:
    source = "def kernel(\n    x,  # where to\n):\n    # all of it\n    tl.store(x, 1)  # one"
    assert source in inline(export(jit(source))).code
