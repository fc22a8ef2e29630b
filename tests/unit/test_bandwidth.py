"""Sourced rates, and which of them an exchange is held against."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest

from traceview.bandwidth import crosses, facts, transport, with_expected
from traceview.hardware import devices
from traceview.schema import COLLECTIVES, ROLES

H100, H800 = "NVIDIA H100 80GB HBM3", "NVIDIA H800"
SCHEMA = {
    "device_name": pl.String,
    "transport": pl.String,
    "collective": pl.String,
    "role": pl.String,
    "group_size": pl.Int32,
    "near_count": pl.Int64,
    "crosses": pl.Boolean,
    "far_ratio": pl.Float64,
}


def expected(**exchange: Any) -> tuple[float | None, str | None]:
    """GB/s and source for one exchange."""
    row = dict.fromkeys(SCHEMA) | {"device_name": H100, "collective": "all_to_all"} | exchange
    rate, source = with_expected(pl.DataFrame([row], schema=SCHEMA)).row(0)[-2:]
    return (None if rate is None else rate / 1e9), source


# --- the facts ---------------------------------------------------------------------------------------


def test_every_fact_names_its_source_and_every_rate_is_a_plausible_number_of_gigabytes() -> None:
    known = facts()
    assert all(row.source for row in known.measured)
    assert all(row.source for row in known.transport)
    assert all(10 <= row.gb_per_s <= 1000 for row in known.measured)


def test_what_was_measured_is_a_collective_or_a_transport_on_a_gpu_with_a_link() -> None:
    known = facts()
    gpus, transports = (
        {device.name for device in devices() if device.link},
        {row.what for row in known.transport},
    )
    for row in known.measured:
        assert set(row.gpus) <= gpus
        assert row.what in {*COLLECTIVES, *transports}
        assert (row.role in ROLES) == (row.what in transports)
        assert row.group_size > 1


def test_variants_of_one_measurement_agree_on_the_ranks_that_share_a_domain() -> None:
    near: dict[tuple[Any, ...], int] = {}
    for row in facts().measured:
        for gpu in row.gpus:
            value = min(row.ranks_per_domain, row.group_size)
            assert near.setdefault((gpu, row.what, row.role, row.group_size), value) == value


def test_every_pattern_is_a_regular_expression() -> None:
    assert all(re.compile(row.pattern) for row in facts().transport)


# --- names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device_name", "scale_up"),
    [
        ("NVIDIA A100-SXM4-80GB", 300),
        (H100, 450),
        (H800, 200),
        ("NVIDIA H200", 450),
        ("NVIDIA B200", 900),
        ("NVIDIA GB200", 900),
        ("AMD Instinct MI300X", 448),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
        ("Tesla V100-SXM2-16GB", None),
        (None, None),
    ],
)
def test_a_device_name_finds_its_link_and_boards_with_other_links_find_none(
    device_name: str | None, scale_up: float | None
) -> None:
    assert expected(device_name=device_name, group_size=4, near_count=4, crosses=False)[0] == scale_up


@pytest.mark.parametrize(
    ("kernel", "what", "leaves"),
    [
        ("void deep_ep::internode::dispatch<false, 8>(int4*)", "deepep", True),
        ("void dpsk::ep::internode::combine<8>(int4*)", "deepep", True),
        ("void deep_ep::intranode::combine<__nv_bfloat16, 8>()", "deepep", False),
        ("void deep_ep::internode_ll::dispatch<true, 7168>()", "deepep-ll", None),
        ("void deep_ep::elastic::dispatch_impl<8>()", "deepep-v2", None),
        ("hybrid_ep::dispatch_kernel<8>", "hybridep", None),
        ("nccl_ep_jit_ll_combine_kernel", "nccl-ep-ll", None),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None, None),
    ],
)
def test_a_kernel_name_tells_the_transport_and_sometimes_whether_it_leaves_the_node(
    kernel: str,
    what: str | None,
    leaves: bool | None,  # noqa: FBT001 - a parametrized answer
) -> None:
    names = pl.DataFrame({"name": [kernel]})
    assert names.select(transport(pl.col("name")), leaves=crosses(pl.col("name"))).row(0) == (what, leaves)


# --- expectations ------------------------------------------------------------------------------------


def test_an_all_to_all_within_the_domain_is_held_against_the_scale_up_link() -> None:
    rate, source = expected(group_size=8, near_count=8, crosses=False, far_ratio=0.0)
    assert rate == 450
    assert source is not None
    assert source.startswith("link speed of H100")


@pytest.mark.parametrize(("far", "rate"), [(0.5, 100), (0.05, 450 / 0.95), (1.0, 50)])
def test_bytes_to_near_and_far_peers_move_at_once_and_the_slower_part_decides(
    far: float, rate: float
) -> None:
    given = expected(group_size=16, near_count=8, crosses=True, far_ratio=far)[0]
    assert given == pytest.approx(rate)


def test_without_byte_counts_every_peer_is_taken_to_get_the_same() -> None:
    # 8 of 15 peers are far, over 50 GB/s
    given = expected(group_size=16, near_count=8, crosses=True)[0]
    assert given == pytest.approx(50 * 15 / 8)


@pytest.mark.parametrize(("near", "rate"), [(1, 50), (4, 200), (8, 400), (16, 450)])
def test_a_ring_leaves_the_domain_over_the_adapters_of_all_its_members_there(near: int, rate: float) -> None:
    given = expected(collective="all_reduce", group_size=2 * near, near_count=near, crosses=True)
    assert given[0] == rate


def test_a_send_between_domains_goes_over_one_adapter() -> None:
    assert expected(collective="send_recv", group_size=4, near_count=2, crosses=True)[0] == 50


def test_a_published_rate_comes_before_the_link_and_of_several_the_slowest_counts() -> None:
    rate, source = expected(collective="all_reduce", group_size=8, near_count=8, crosses=False)
    both = [row.gb_per_s for row in facts().measured if row.what == "all_reduce" and "H100" in row.gpus]
    assert len(both) > 1
    assert rate == min(both)
    assert source is not None
    assert source.startswith("published")


def test_a_published_rate_of_another_placement_does_not_count() -> None:
    assert expected(collective="all_reduce", group_size=8, near_count=4, crosses=True)[0] == 200


@pytest.mark.parametrize("role", ROLES)
def test_a_transport_is_held_against_its_own_published_rate(role: str) -> None:
    given = expected(device_name=H800, transport="deepep", role=role, group_size=64, crosses=True)[0]
    assert given == {"dispatch": 51, "combine": 50}[role]


def test_a_role_does_not_hide_the_published_rate_of_a_plain_collective() -> None:
    given = expected(collective="all_gather", role="dispatch", group_size=8, near_count=8, crosses=False)
    assert given[0] == 361


@pytest.mark.parametrize(
    "exchange",
    [
        {"group_size": 1, "near_count": 1, "crosses": False},
        {"collective": "barrier", "group_size": 8, "near_count": 8, "crosses": False},
        {"collective": "all_reduce"},
        {},
        {"device_name": "AMD Instinct MI300X", "group_size": 16, "near_count": 8, "crosses": True},
    ],
    ids=["alone", "barrier", "no group", "nothing", "unknown network"],
)
def test_where_nothing_moves_or_nothing_is_known_nothing_is_expected(exchange: dict[str, Any]) -> None:
    assert expected(**exchange) == (None, None)
