"""From true time to the stamps in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceview.synth.workload import Clock

EPOCH_NS = 1_775_078_550_000_000_000
"""Unix time that the stamps in a file count from: Kineto's quarter of a year, the same on every rank."""
RUN_START_NS = 973_473_392_000_000
"""When the run began, counted from `EPOCH_NS`; far enough in that no clock offset makes a stamp negative."""


def stamp(true_ns: NDArray[np.int64], clock: Clock) -> NDArray[np.int64]:
    """What ``clock`` reads at ``true_ns``, counted from `EPOCH_NS`; drift counts from the run's start."""
    drift = np.rint(true_ns * (clock.drift_ppm * 1e-6)).astype(np.int64)
    return np.asarray(RUN_START_NS + true_ns + drift + clock.offset_ns)
