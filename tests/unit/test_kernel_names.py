"""Short names of kernels: what is kept of names as profilers wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.reports.kernel_names import LETTERS, short


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT", "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_SendRecv"),
        (
            "void deep_ep::intranode::combine<float, 8>(float*, int (*)(int), int)",
            "deep_ep::intranode::combine<float, 8>",
        ),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4>(int)", "cunn_SoftMaxForward<4>"),
        ("void at::native::elementwise_kernel<(int)128, (bool)1>(int)", "elementwise_kernel<128, 1>"),
        ("_ZN7cutlass13device_kernelIN5flash11enable_sm90IEEEEvT_", "cutlass::device_kernel"),
        ("_ZN2at6native12_GLOBAL__N_116max_pool_forwardIfEEvT_", "max_pool_forward"),
        ("_Z6kernelPf", "kernel"),
        ("_Z", "_Z"),
        ("_ZN99short", "short"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH"),
        (")", ")"),
        ("(int)", "(int)"),
        ("void ", "void"),
        ("", ""),
    ],
)
def test_what_is_left_of_a_name(name: str, told: str) -> None:
    assert short(name) == told


def test_a_long_name_is_cut_with_a_mark() -> None:
    assert short("k" * 500) == "k" * (LETTERS - 1) + "…"


@given(st.text(max_size=200))
def test_any_name_gives_one_that_is_short_and_says_something(name: str) -> None:
    assert len(short(name)) <= LETTERS
    assert bool(short(name)) == bool(name)
