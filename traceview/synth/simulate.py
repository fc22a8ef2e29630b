"""The run that a plan describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview.synth.machine import Machine
from traceview.synth.routing import route
from traceview.synth.step import Step
from traceview.synth.topology import topology

if TYPE_CHECKING:
    from traceview.synth.timeline import Timeline
    from traceview.synth.workload import Workload


def simulate(workload: Workload) -> Timeline:
    """Run ``workload`` on all its ranks.

    Args:
        workload: The plan.

    Returns:
        What happened, in true time; the same workload always gives the same timeline.
    """
    groups = topology(workload)
    routings = tuple(route(workload, groups.expert))
    machine = Machine(workload, groups)
    by_place = {(r.step, r.microbatch, r.layer): r for r in routings}
    for step in range(workload.first_step, workload.first_step + workload.steps):
        with machine.within(step=step), machine.annotate(f"ProfilerStep#{step}"):
            Step(machine, workload, groups, step, by_place).run()
    machine.synchronize_device()
    return machine.timeline(routings)
