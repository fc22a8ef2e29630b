"""Which ops on different ranks are the same collective: the instance each exchange belongs to.

The key is (group, sequence number) where the profiler recorded it. Elsewhere it is (group, step, kind,
occurrence within the step): step numbers are the job's own, so a rank whose profiler started three steps
late still matches. Where ranks disagree on how many there were in a step (a window cut through it, a
dropped record), their sequences of kinds are aligned by a longest common subsequence with the longest one
and what has no counterpart stays unmatched. Kinds include the size where it must agree on all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

_SYMMETRIC = ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
"""Collectives whose sizes agree on all ranks; those of an all-to-all do not."""

_BLOCK = ("group_key", "block")


def with_instance(exchanges: pl.DataFrame) -> pl.DataFrame:
    """``exchanges`` plus ``instance``: one number for the same collective on all its ranks, else null.

    Args:
        exchanges: One row per rank and op, with ``rank, group_key, collective, role, subrole, in_bytes,
            out_bytes, seq, step, ts_ns``. ``group_key`` is null where the group is unknown.
    """
    kinds = exchanges.with_row_index("row").with_columns(_kind().alias("kind"), _block().alias("block"))
    known = kinds.filter(pl.col("group_key").is_not_null() & pl.col("block").is_not_null())
    ordered = known.sort("group_key", "block", "rank", "ts_ns", "row")
    numbered = ordered.with_columns(
        place=pl.when(pl.col("kind") == 0)
        .then("seq")
        .otherwise(pl.int_range(pl.len()).over(*_BLOCK, "rank", "kind"))
    )
    uneven = _uneven(numbered)
    aligned = pl.concat(
        [
            numbered.join(uneven, on=_BLOCK, how="anti").select("row", *_BLOCK, "kind", "place"),
            _aligned(numbered.join(uneven, on=_BLOCK, how="semi")),
        ]
    )
    identity = pl.struct(*_BLOCK, "kind", "place").rank("dense").cast(pl.Int64)
    instance = aligned.select("row", instance=identity)
    return kinds.join(instance, on="row", how="left", maintain_order="left").drop("row", "kind", "block")


def _kind() -> pl.Expr:
    """What must agree between the ranks of one collective."""
    size = pl.when(pl.col("collective").cast(pl.String).is_in(_SYMMETRIC)).then(
        pl.max_horizontal("in_bytes", "out_bytes")
    )
    kind = pl.struct("collective", "role", "subrole", size.alias("size")).rank("dense").cast(pl.Int64)
    return pl.when(_is_numbered()).then(0).otherwise(kind)


def _is_numbered() -> pl.Expr:
    """Whether the profiler numbered every exchange of the group; then nothing else is needed."""
    return pl.col("seq").is_not_null().all().over("group_key")


def _block() -> pl.Expr:
    """Stretch within which occurrences are counted: everything where ``seq`` is known, else the step.

    A group without any step is one block; rows outside of all steps, in a group that has some, cannot be
    placed.
    """
    stepless = pl.col("step").is_null().all().over("group_key")
    return pl.when(_is_numbered() | stepless).then(pl.lit(-1, pl.Int64)).otherwise("step")


def _uneven(numbered: pl.DataFrame) -> pl.DataFrame:
    """Blocks without sequence numbers in which ranks disagree on how many exchanges of a kind there were."""
    counts = (
        numbered.filter(pl.col("kind") != 0).group_by(*_BLOCK, "kind", "rank").len()
        .group_by(*_BLOCK, "kind")
        .agg(ranks=pl.len(), counts=pl.col("len").n_unique())
    )  # fmt: skip
    present = numbered.group_by(_BLOCK).agg(all_ranks=pl.col("rank").n_unique())
    odd = (pl.col("counts") > 1) | (pl.col("ranks") < pl.col("all_ranks"))
    return counts.join(present, on=_BLOCK).filter(odd).select(_BLOCK).unique()


def _aligned(numbered: pl.DataFrame) -> pl.DataFrame:
    """``row, group_key, block, kind, place``: places on the longest rank's sequence; unplaced rows drop."""
    placed = [numbered.select("row", *_BLOCK, "kind", "place").clear()]
    for _, block in numbered.group_by(_BLOCK, maintain_order=True):
        sequences = block.group_by("rank", maintain_order=True).agg("row", "kind")
        longest = sequences.sort(pl.col("kind").list.len(), "rank", descending=[True, False])["kind"][
            0
        ].to_list()
        # ranks that saw the same sequence align the same way
        places = {
            kinds: common_places(kinds, longest) for kinds in {tuple(k) for k in sequences["kind"].to_list()}
        }
        rows = sequences.with_columns(
            place=pl.Series(
                [places[tuple(kinds)] for kinds in sequences["kind"].to_list()], dtype=pl.List(pl.Int64)
            )
        ).explode("row", "kind", "place")
        keys = [pl.lit(block[name][0], block[name].dtype).alias(name) for name in _BLOCK]
        placed.append(rows.with_columns(keys).drop_nulls("place").select("row", *_BLOCK, "kind", "place"))
    return pl.concat(placed)


def common_places(sequence: Sequence[int], reference: Sequence[int]) -> list[int | None]:
    """Where each item of ``sequence`` stands in ``reference``, by a longest common subsequence.

    Of several such subsequences the latest is taken: windows start late more often than they end early.
    Items without a counterpart are None.
    """
    # the search prefers the earliest subsequence, so it is done backwards
    backwards = _earliest_places(sequence[::-1], reference[::-1])
    return [None if place is None else len(reference) - 1 - place for place in backwards[::-1]]


def _earliest_places(sequence: Sequence[int], reference: Sequence[int]) -> list[int | None]:
    """As `common_places`, but the earliest one.

    Source: bit-parallel LCS (Hyyrö 2004); one machine-word operation covers 64 cells of the table.
    """
    width = (1 << len(reference)) - 1
    positions: dict[int, int] = {}
    for place, item in enumerate(reference):
        positions[item] = positions.get(item, 0) | 1 << place
    # bit p of rows[i] is 0 where the LCS of sequence[:i] grows at reference[p]
    rows = [width]
    for item in sequence:
        row = rows[-1]
        hits = row & positions.get(item, 0)
        rows.append(((row + hits) | (row - hits)) & width)
    places: list[int | None] = [None] * len(sequence)
    index, place = len(sequence), len(reference)
    while index and place:
        bit = 1 << (place - 1)
        if rows[index] & bit:
            place -= 1
        elif not rows[index - 1] & bit:
            index -= 1
        else:
            index, place = index - 1, place - 1
            places[index] = place
    return places
