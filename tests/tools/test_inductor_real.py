"""Files that Inductor generates, with the torch of this machine, for a GPU that is not there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Triage

from harness.cells.repros.cache_folders import inductor_kernels
from harness.io.toolchains.install import install_triton

pytestmark = pytest.mark.tools

TRITON = "3.9.0"

# What `torch.compile` does after Dynamo, on tensors that say they are on a GPU.
GENERATE = """
import sys
import torch, triton
from triton.backends.compiler import GPUTarget

class Driver:
    get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
    get_current_device = staticmethod(lambda: 0)
    get_active_torch_device = staticmethod(lambda: torch.device("cuda", 0))

class Properties:
    name, major, minor, warp_size, multi_processor_count = "NVIDIA H100", 9, 0, 32, 132
    regs_per_multiprocessor, max_threads_per_multi_processor = 65536, 2048
    max_threads_per_block, total_memory, gcnArchName = 1024, 80 << 30, ""
    L2_cache_size, shared_memory_per_block_optin = 50 << 20, 232448

triton.runtime.driver.set_active(Driver())
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda device=None: Properties()
torch.cuda.get_device_capability = lambda device=None: (9, 0)
torch._C._cuda_getDevice = lambda: 0
torch._C._cuda_exchangeDevice = torch._C._cuda_maybeExchangeDevice = lambda device: 0

from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

def mlp(x, w, b, v):
    return torch.nn.functional.gelu(x @ w + b) @ v

def norm(x, w, b, _):
    return torch.nn.functional.layer_norm(x, (256,), b, b) * torch.sigmoid(x)

def attention(x, w, b, _):
    scores = torch.softmax(x @ x.transpose(0, 1) / 16, dim=-1)
    return (scores @ x).cumsum(0).amax(-1)

mode = FakeTensorMode()
with mode:
    shapes = ((512, 256), (256, 256), (256,), (256, 128))
    inputs = [torch.empty(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
graph = make_fx(globals()[sys.argv[1]], select_decomp_table(), tracing_mode="fake")(*inputs)
lowering = GraphLowering(graph, example_inputs=inputs, is_inference=True)
with V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
    lowering.run(*inputs)
    code, _ = lowering.codegen()
print(code.value)
"""


# Written by hand, as a file of Inductor's cache has it.
OF_CACHE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 131072},
    filename=__file__,
    triton_meta={
        'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32',
                      'XBLOCK': 'constexpr'},
        'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90),
        'constants': {},
        'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]]}],
    },
    inductor_meta={'kernel_name': 'triton_poi_0', 'num_load': 1, 'autotune_pointwise': True},
    min_elem_per_thread=0,
)
@triton.jit
def triton_poi_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(out_ptr0 + index, triton_helpers.maximum(tl.load(in_ptr0 + index), 0.0))
"""


def test_a_kernel_of_the_cache_compiles_with_the_configs_of_its_heuristics(triage: Triage) -> None:
    file = triage.folder / "cabc.py"
    file.write_text(OF_CACHE)
    document = triage.compile("--kernel", str(file), "--sm", "90a", "--triton", TRITON, code=0)
    assert {cell["config"]["XBLOCK"] for cell in document["cells"]} == {512, 1024}
    done = triage("run", str(file), "--sm", "90a", "--triton", TRITON)
    assert done.returncode == 4, done.stderr
    words = "2 not_run: the launch code has it compiled (so does a file of Inductor's) and never"
    assert words in done.stdout


def test_a_config_that_inductor_does_not_come_to_compile_is_named(triage: Triage) -> None:
    file = triage.folder / "cabc.py"
    # As another torch may.
    refused = """
def options(self, config, meta, options=triton_heuristics.CachingAutotuner._create_compile_options):
    return self.no_such_option if config.kwargs["XBLOCK"] == 512 else options(self, config, meta)


triton_heuristics.CachingAutotuner._create_compile_options = options
"""
    file.write_text(OF_CACHE.replace("@triton_heuristics", f"{refused}@triton_heuristics"))
    done = triage("compile", str(file), "--sm", "90a", "--triton", TRITON)
    assert done.returncode == 4, done.stderr
    name = "Inductor does not come to compile triton_poi_0 with XBLOCK: 512"
    assert name in done.stderr
    assert "has no attribute 'no_such_option'" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("model", ["norm", "mlp", "attention"])
def test_a_model_compiles_kernel_by_kernel(triage: Triage, model: str) -> None:
    file = triage.folder / "torch_compile_debug" / "run_1" / "torchinductor" / "output_code.py"
    file.parent.mkdir(parents=True)
    file.write_text(generated(triage.folder, model))
    kernels = [name for name, _ in inductor_kernels(file.read_text())]
    assert kernels
    assert set(kernels) == set(re.findall(r"^def (triton_\w+)\(", file.read_text(), re.MULTILINE))
    whole = triage.compile("--kernel", str(file), "--sm", "90a", "--triton", TRITON, code=0)
    assert {cell["verdict"] for cell in whole["cells"]} == {"ok"}
    assert {cell["kernel"].rpartition("::")[2] for cell in whole["cells"]} == set(kernels)

    # The same kernels, out of the debug folder: each a repro that compiles to the same programs.
    done = triage("import", "torch_compile_debug")
    assert done.returncode == 0, done.stderr
    imported = triage.compile("--kernel", f"{kernels[0]}-*", "--triton", TRITON, code=0)
    of_file = {
        cell["ptx_body_sha256"] for cell in whole["cells"] if cell["kernel"].endswith(kernels[0])
    }
    assert {cell["ptx_body_sha256"] for cell in imported["cells"]} == of_file


def generated(folder: Path, model: str) -> str:
    """The file that Inductor writes for one of the models."""
    script = folder / "generate.py"
    script.write_text(GENERATE)
    path = os.pathsep.join(map(str, (install_triton(TRITON).path, *sys.path)))
    done = subprocess.run(
        [sys.executable, str(script), model],
        env={**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout
