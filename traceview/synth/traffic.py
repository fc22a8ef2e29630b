"""What a communication call moves, per rank: elements as PyTorch records them, bytes as links see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.routing import Routing
    from traceview.synth.topology import Group

ITEM_BYTES = {"BFloat16": 2, "Float": 4, "Float8_e4m3fn": 1, "Byte": 1}
"""Bytes per element, by PyTorch's name of the type."""


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The payload of one call, for all ranks at once.

    Attributes:
        collective: Canonical name of the exchange, or ``barrier``.
        dtype: Element type, as PyTorch names it.
        in_elements: Elements each rank puts in, its own slice included, shape (ranks,).
        out_elements: Elements each rank gets out, its own slice included, shape (ranks,).
        sent_bytes: Bytes that leave each rank, shape (ranks,).
        received_bytes: Bytes that reach each rank from others, shape (ranks,).
        rows_out: Rows each rank sends to each peer, shape (ranks, size); None without splits.
        rows_in: Rows each rank receives from each peer, shape (ranks, size); None without splits.
    """

    collective: str
    dtype: str
    in_elements: NDArray[np.int64]
    out_elements: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    received_bytes: NDArray[np.int64]
    rows_out: NDArray[np.int64] | None = None
    rows_in: NDArray[np.int64] | None = None

    @property
    def in_bytes(self) -> NDArray[np.int64]:
        """Bytes each rank puts in."""
        return self.in_elements * ITEM_BYTES[self.dtype]

    @property
    def out_bytes(self) -> NDArray[np.int64]:
        """Bytes each rank gets out."""
        return self.out_elements * ITEM_BYTES[self.dtype]


def all_gather(group: Group, elements: int, dtype: str) -> Traffic:
    """Each rank contributes ``elements``, and every rank ends with all of them."""
    return Traffic("all_gather", dtype, *_even(group, dtype, elements, elements * group.size, elements))


def reduce_scatter(group: Group, elements: int, dtype: str) -> Traffic:
    """Each rank contributes ``elements`` per member, and ends with its share of the sum."""
    return Traffic("reduce_scatter", dtype, *_even(group, dtype, elements * group.size, elements, elements))


def all_reduce(group: Group, elements: int, dtype: str) -> Traffic:
    """Every rank contributes and ends with ``elements``: a reduce-scatter, then an all-gather."""
    share = -(-2 * elements // group.size)
    return Traffic("all_reduce", dtype, *_even(group, dtype, elements, elements, share))


def barrier(group: Group) -> Traffic:
    """Nothing but the meeting itself."""
    return Traffic("barrier", "Byte", *_even(group, "Byte", 0, 0, 0))


def all_to_all(
    group: Group, rows_out: NDArray[np.int64], rows_in: NDArray[np.int64], width: int, dtype: str
) -> Traffic:
    """Rows of ``width`` elements, a different number for each peer."""
    row_bytes = width * ITEM_BYTES[dtype]
    own = _own_rows(group, rows_out)
    return Traffic(
        "all_to_all",
        dtype,
        in_elements=rows_out.sum(axis=1) * width,
        out_elements=rows_in.sum(axis=1) * width,
        sent_bytes=(rows_out.sum(axis=1) - own) * row_bytes,
        received_bytes=(rows_in.sum(axis=1) - own) * row_bytes,
        rows_out=rows_out,
        rows_in=rows_in,
    )


def distinct_rows(routing: Routing, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows out and in, when a token with several experts on one rank travels there once.

    A rank that attracts ``c`` of ``tokens * k`` choices is expected to see
    ``tokens * (1 - (1 - c / (tokens * k)) ** k)`` distinct tokens.
    """
    top_k = routing.rows_out.sum(axis=1).max() / tokens

    def distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        share = np.minimum(rows / (tokens * top_k), 1.0)
        return np.asarray(np.rint(tokens * (1 - (1 - share) ** top_k)), dtype=np.int64)

    return distinct(routing.rows_out), distinct(routing.rows_in)


def _even(
    group: Group, dtype: str, into: int, out: int, moved: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Elements in and out, bytes sent and received, when every rank passes ``moved`` to each other member."""
    ranks = np.ones(group.members.size, dtype=np.int64)
    links = ranks * moved * (group.size - 1) * ITEM_BYTES[dtype]
    return ranks * into, ranks * out, links, links


def _own_rows(group: Group, rows_out: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows each rank sends to itself, shape (ranks,)."""
    position = np.empty(group.members.size, dtype=np.int64)
    position[group.members] = np.arange(group.size)
    return np.asarray(rows_out[np.arange(len(position)), position])
