"""What a communication call moves, per rank: elements as PyTorch records them, bytes as links see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.routing import Routing
    from traceview.synth.topology import Group

    Rows = NDArray[np.int32] | NDArray[np.int64]

ITEM_BYTES = {"BFloat16": 2, "Float": 4, "Float8_e4m3fn": 1, "Byte": 1}
"""Bytes per element, by PyTorch's name of the type."""

RINGS = ("all_gather", "reduce_scatter", "all_reduce")
"""Collectives that go around a ring of all members."""


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
        scale_out_bytes: Of the sent bytes, those that leave the host, shape (ranks,).
        rows_out: Rows each rank sends to each peer, shape (ranks, size); None without splits.
        rows_in: Rows each rank receives from each peer, shape (ranks, size); None without splits.
    """

    collective: str
    dtype: str
    in_elements: NDArray[np.int64]
    out_elements: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    received_bytes: NDArray[np.int64]
    scale_out_bytes: NDArray[np.int64]
    rows_out: Rows | None = None
    rows_in: Rows | None = None

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
    return _even("all_gather", group, dtype, (elements, elements * group.size), moved=elements)


def reduce_scatter(group: Group, elements: int, dtype: str) -> Traffic:
    """Each rank contributes ``elements`` per member, and ends with its share of the sum."""
    return _even("reduce_scatter", group, dtype, (elements * group.size, elements), moved=elements)


def all_reduce(group: Group, elements: int, dtype: str) -> Traffic:
    """Every rank contributes and ends with ``elements``: a reduce-scatter, then an all-gather."""
    share = -(-2 * elements // group.size)
    return _even("all_reduce", group, dtype, (elements, elements), moved=share)


def barrier(group: Group) -> Traffic:
    """Nothing but the meeting itself."""
    return _even("barrier", group, "Byte", (0, 0), moved=0)


def send_recv(pair: Group, elements: int, dtype: str) -> Traffic:
    """The first of each pair sends ``elements`` to the second; both record the tensor as in and out."""
    takes_part, sent, received = (np.zeros(len(pair.hosts), dtype=np.int64) for _ in range(3))
    takes_part[pair.members] = elements
    sent[pair.members[:, 0]] = received[pair.members[:, 1]] = elements * ITEM_BYTES[dtype]
    scale_out = np.where(pair.is_far.any(axis=1), sent, 0)
    return Traffic("send_recv", dtype, takes_part, takes_part, sent, received, scale_out)


def all_to_all(group: Group, rows_out: Rows, rows_in: Rows, width: int, dtype: str) -> Traffic:
    """Rows of ``width`` elements, a different number for each peer."""
    row_bytes = width * ITEM_BYTES[dtype]
    out, into = (rows.sum(axis=1, dtype=np.int64) for rows in (rows_out, rows_in))
    own = rows_out[np.arange(len(rows_out)), group.position].astype(np.int64)
    return Traffic(
        "all_to_all",
        dtype,
        in_elements=out * width,
        out_elements=into * width,
        sent_bytes=(out - own) * row_bytes,
        received_bytes=(into - own) * row_bytes,
        scale_out_bytes=(rows_out * group.is_far).sum(axis=1, dtype=np.int64) * row_bytes,
        rows_out=rows_out,
        rows_in=rows_in,
    )


def distinct_rows(routing: Routing, tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows out and in, when a token with several experts on one rank travels there once.

    A rank that attracts ``c`` of ``tokens * k`` choices is expected to see
    ``tokens * (1 - (1 - c / (tokens * k)) ** k)`` distinct tokens.
    """
    top_k = routing.rows_out.sum(axis=1).max() / tokens

    def distinct(rows: NDArray[np.int32]) -> NDArray[np.int64]:
        share = np.minimum(rows / (tokens * top_k), 1.0)
        return np.asarray(np.rint(tokens * (1 - (1 - share) ** top_k)), dtype=np.int64)

    return distinct(routing.rows_out), distinct(routing.rows_in)


def _even(collective: str, group: Group, dtype: str, elements: tuple[int, int], *, moved: int) -> Traffic:
    """A payload of ``elements`` in and out, of which every rank passes ``moved`` to each other member."""
    ranks = np.ones(len(group.hosts), dtype=np.int64)
    links = ranks * moved * (group.size - 1) * ITEM_BYTES[dtype]
    far = group.is_far.sum(axis=1) * moved * ITEM_BYTES[dtype]
    into, out = elements
    return Traffic(collective, dtype, ranks * into, ranks * out, links, links, far)
