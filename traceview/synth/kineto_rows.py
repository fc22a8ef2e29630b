"""Single rows of a Kineto trace as text, and the arguments they share.

Source: layout as written by Kineto in PyTorch 2.9; ROCm's arguments as in public traces of MI300X.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from traceview.synth.kineto_metadata import TYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceview.synth.kernels import Kernel

_SM_COUNT = 132
_SM_WARPS = 64
_CUPTI_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cuLaunchKernel": 307,
    "cuLaunchKernelEx": 652,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaGraphLaunch": 311,
}
_ROCTRACER_IDS = {
    "hipLaunchKernel": 107,
    "hipExtLaunchKernel": 62,
    "hipModuleLaunchKernel": 169,
    "hipExtModuleLaunchKernel": 65,
    "hipMemcpyAsync": 134,
    "hipMemsetAsync": 159,
    "hipEventRecord": 59,
    "hipStreamWaitEvent": 200,
    "hipStreamSynchronize": 198,
    "hipDeviceSynchronize": 48,
    "hipGraphLaunch": 215,
}


def microseconds(ns: int) -> str:
    """``ns`` as Kineto prints it: microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def complete(category: str, name: str, place: tuple[int, int], times: tuple[int, int], args: str) -> str:
    """A timed row; ``place`` is process and thread, ``times`` start and end stamp."""
    quoted = json.dumps(name, ensure_ascii=False)
    return f"""  {{
    "ph": "X", "cat": "{category}", "name": {quoted}, "pid": {place[0]}, "tid": {place[1]},
    "ts": {microseconds(times[0])}, "dur": {microseconds(times[1] - times[0])},
    "args": {{
      {args}
    }}
  }}"""


def flow(phase: str, category: str, number: int, place: tuple[int, int], ts: int) -> str:
    """One end of an arrow; the finishing end binds to the row that encloses it."""
    binding = ', "bp": "e"' if phase == "f" else ""
    return f"""  {{
    "ph": "{phase}", "id": {number}, "pid": {place[0]}, "tid": {place[1]}, "ts": {microseconds(ts)},
    "cat": "{category}", "name": "{category}"{binding}
  }}"""


def callback(name: str) -> str:
    """The argument that numbers the runtime or driver call ``name``, as its tracer does."""
    return f'"cbid": {_CUPTI_IDS[name]}' if name in _CUPTI_IDS else f'"cid": {_ROCTRACER_IDS[name]}'


def inputs(dims: list[list[int]], dtypes: list[str]) -> str:
    """Shapes of contiguous tensor inputs, as recorded with ``record_shapes``."""
    strides = [_strides(shape) for shape in dims]
    types = [TYPE_NAMES[dtype] for dtype in dtypes]
    return (
        f'"Concrete Inputs": {json.dumps([""] * len(dims))}, "Input type": {json.dumps(types)}, '
        f'"Input Strides": {json.dumps(strides)}, "Input Dims": {json.dumps(dims)}, '
    )


def launch_shape(kernel: Kernel) -> str:
    """A kernel's launch shape and the occupancy Kineto derives from it."""
    blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / _SM_COUNT
    warps = blocks * kernel.block / 32
    occupancy = min(100, round(100 * warps / _SM_WARPS))
    return (
        f'"registers per thread": {kernel.registers},      "shared memory": {kernel.shared_memory},      '
        f'"blocks per SM": {blocks:.6f},      "warps per SM": {warps:.6f},      '
        f'"grid": {json.dumps(kernel.grid)},      "block": [{kernel.block}, 1, 1],      '
        f'"est. achieved occupancy %": {occupancy}'
    )


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides
