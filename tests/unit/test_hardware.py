"""What GPUs can do: figures against the published ones, and names as profilers really write them."""

from __future__ import annotations

import polars as pl
import pytest

from traceview import hardware
from traceview.errors import UsageError
from traceview.hardware import PRECISIONS, Device, devices, named, of


def found(device_name: str | None) -> Device:
    device = of(device_name)
    assert device is not None
    return device


@pytest.mark.parametrize(
    ("device_name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe"),
        ("NVIDIA A800-SXM4-80GB", "A800"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GB300", "GB300"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X VF (gfx942:sramecc+:xnack-)", "MI300X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("Tesla V100-SXM2-16GB", "V100"),
    ],
)
def test_a_device_is_known_by_the_name_profilers_record(device_name: str, short: str) -> None:
    assert found(device_name).name == short


@pytest.mark.parametrize(
    "device_name", [None, "", "NVIDIA H100", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 3090", "A" * 10**6]
)
def test_a_name_nobody_listed_or_that_leaves_the_board_open_is_unknown(device_name: str | None) -> None:
    assert of(device_name) is None


@pytest.mark.parametrize(
    ("gpu", "bf16", "fp8", "fp4"),
    [
        ("A100", 312, None, None),
        ("H100", 989, 1979, None),
        ("H800", 989, 1979, None),
        ("H200", 989, 1979, None),
        ("H20", 148, 296, None),
        ("B200", 2250, 4500, 9000),
        ("B300", 2250, 4500, 13500),
        ("GB200", 2450, 4900, 9800),
        ("GB300", 2450, 4900, 14700),
        ("MI300X", 1307, 2615, None),
        ("MI325X", 1300, 2610, None),
        ("MI355X", 2500, 5000, 10100),
    ],
)
def test_peaks_are_the_published_dense_ones(
    gpu: str, bf16: float, fp8: float | None, fp4: float | None
) -> None:
    peaks = [named(gpu).peak(precision) for precision in ("bf16", "fp8", "fp4")]
    assert [peak.tflops if peak else None for peak in peaks] == [bf16, fp8, fp4]
    assert all(peak.source for peak in peaks if peak)


@pytest.mark.parametrize("gpu", ["GB200", "GB300"])
def test_both_published_sets_of_the_rack_scale_gpus_can_be_chosen(gpu: str) -> None:
    first, second = (named(gpu).peak("fp8", name=name) for name in ("dgxc", "ml-eng"))
    assert first
    assert second
    assert (first.tflops, second.tflops) == (4900, 5000)
    assert first.source != second.source
    assert named(gpu).peak("fp8") == first


def test_fp16_runs_as_fast_as_bf16_where_both_exist_and_v100_has_only_fp16() -> None:
    half, brain = named("H100").peak("fp16"), named("H100").peak("bf16")
    assert half
    assert brain
    assert half.tflops == brain.tflops
    assert named("V100").peak("bf16") is None
    assert named("V100").peak("fp16") is not None


@pytest.mark.parametrize(
    ("gpu", "precision", "tflops"),
    [("H100", "bf16", 795), ("H100", "fp8", 1403), ("GB200", "bf16", 1822), ("H200", "bf16", None)],
)
def test_the_achievable_rate_is_a_measured_one_or_unknown(
    gpu: str, precision: str, tflops: float | None
) -> None:
    reached = named(gpu).achievable(precision)
    assert (reached.tflops if reached else None) == tflops


def test_nothing_measured_exceeds_its_peak_and_fp8_is_at_least_as_fast_as_bf16() -> None:
    for device in devices():
        for precision in PRECISIONS:
            peak, reached = device.peak(precision), device.achievable(precision)
            assert not reached or (peak and reached.tflops < peak.tflops)
        bf16, fp8 = device.peak("bf16"), device.peak("fp8")
        assert not (bf16 and fp8) or fp8.tflops > bf16.tflops


def test_every_fact_names_its_source_and_links_are_plausible() -> None:
    for device in devices():
        assert all(rates.source for rates in (*device.peaks, *device.achieved))
        assert all(memory.source for memory in device.memories)
        assert len({rates.name for rates in device.peaks}) == len(device.peaks)
        if link := device.link:
            assert link.source
            assert 50 <= link.scale_up_gb_per_s <= 1000
            assert link.scale_out_gb_per_s in {None, 25, 50, 100}
            assert link.scale_up_ranks in {8, 72}


def test_short_names_are_distinct_and_patterns_mean_the_same_in_polars() -> None:
    names = [device.name for device in devices()]
    assert len(set(names)) == len(names)
    for device in devices():
        for name in ("NVIDIA H100 80GB HBM3", "NVIDIA GB200", "NVIDIA B200", "AMD Instinct MI300X VF"):
            mine = (known := of(name)) is not None and known.name == device.name
            assert pl.Series([name]).str.contains(device.pattern).item() == mine


def test_memory_follows_the_variant_and_is_unknown_where_the_name_leaves_it_open() -> None:
    small, large = found("NVIDIA A100-SXM4-40GB").memory, found("NVIDIA A100-SXM4-80GB").memory
    assert small
    assert large
    assert (small.gb, large.gb) == (40, 80)
    assert named("A100").memory is None
    assert named("A100").ridge() is None


def test_the_ridge_is_peak_over_bandwidth() -> None:
    assert named("H100").ridge("bf16") == pytest.approx(989e12 / 3.35e12)
    assert named("H100").ridge("fp4") is None


def test_a_gpu_is_named_shortly_or_as_profilers_do() -> None:
    assert named(" gb300 ") == found("NVIDIA GB300")
    assert named("NVIDIA H100 80GB HBM3").name == "H100"


def test_unknown_gpus_precisions_and_sets_are_refused_with_the_choice() -> None:
    with pytest.raises(UsageError, match="GB300"):
        named("TPU v5p")
    with pytest.raises(UsageError, match="bf16"):
        named("H100").peak("int3")
    with pytest.raises(UsageError, match="bf16"):
        named("H100").achievable("int3")
    with pytest.raises(UsageError, match="dgxc"):
        named("H100").peak("bf16", name="sparse")


def test_the_longest_name_is_looked_at_only_as_far_as_names_go() -> None:
    assert of("x" * hardware._LONGEST_NAME + "NVIDIA GB200") is None
