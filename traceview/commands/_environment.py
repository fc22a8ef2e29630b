"""What the environment asks for; no other module reads it but `store`, for the folder of caches."""

from __future__ import annotations

import os

NVTX = "TRACEVIEW_NVTX"
"""Set to 1, it marks traceview's own stages for Nsight Systems."""


def apply() -> None:
    """Does what the environment asks for."""
    if os.environ.get(NVTX) == "1":
        from traceview import stages

        stages.enable()
