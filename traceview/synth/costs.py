"""How long things take on an H100: effective rates, not peaks.

Source: NVIDIA's H100 SXM data sheet (989 TFLOP/s BF16, 3.35 TB/s, 450 GB/s NVLink each way, 400 Gb/s
network), scaled to what large kernels and collectives reach in practice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.topology import Group

FLOP_PER_NS = 600e3
"""Dense BF16 matrix products: 600 TFLOP/s."""
MEMORY_BYTES_PER_NS = 2500.0
PCIE_BYTES_PER_NS = 25.0
SCALE_UP_BYTES_PER_NS = 300.0
SCALE_OUT_BYTES_PER_NS = 45.0
SCALE_UP_LATENCY_NS = 8_000
SCALE_OUT_LATENCY_NS = 25_000
KERNEL_FLOOR_NS = 1_500
"""No kernel is shorter than its own start and stop."""


def matmul_ns(rows: NDArray[np.int64] | int, columns: int, inner: int) -> NDArray[np.float64]:
    """Duration of a (rows x inner) by (inner x columns) product; per rank if ``rows`` is."""
    return np.asarray(2.0 * rows * columns * inner / FLOP_PER_NS)


def memory_ns(elements: NDArray[np.int64] | int, passes: int) -> NDArray[np.float64]:
    """Duration of a kernel bound by memory that reads or writes ``elements`` BF16 values ``passes`` times."""
    return np.asarray(2.0 * elements * passes / MEMORY_BYTES_PER_NS)


def transfer_ns(
    group: Group, moved_bytes: NDArray[np.int64], slowdown: NDArray[np.float64], *, hop_ns: int = 0
) -> NDArray[np.int64]:
    """Time each set of ``group`` needs once all its ranks are there, handed to its ranks.

    Args:
        group: Those who communicate.
        moved_bytes: Bytes each rank sends or receives off-rank, whichever is more, shape (ranks,).
        slowdown: Factor by which each rank's link is slow, shape (ranks,).
        hop_ns: Latency that each further member adds, for what goes around a ring.

    Returns:
        Shape (ranks,): the busiest rank of a set decides for all of it, and so does the slowest link.
    """
    busiest = moved_bytes[group.members].max(axis=1)
    slowest = slowdown[group.members].max(axis=1)
    rate = np.where(group.crosses_hosts, SCALE_OUT_BYTES_PER_NS, SCALE_UP_BYTES_PER_NS)
    latency = np.where(group.crosses_hosts, SCALE_OUT_LATENCY_NS, SCALE_UP_LATENCY_NS)
    hops = hop_ns * (group.size - 1)
    return group.spread(np.rint((latency + hops + np.rint(busiest / rate)) * slowest).astype(np.int64))


def copy_ns(size: NDArray[np.int64], slowdown: NDArray[np.float64]) -> NDArray[np.int64]:
    """Time a copy engine needs for ``size`` bytes to a peer on the same host, shape (ranks,)."""
    return np.rint((KERNEL_FLOOR_NS + size / SCALE_UP_BYTES_PER_NS) * slowdown).astype(np.int64)
