"""In which order the pipeline stages run the microbatches: one forward, one backward.

Source: the 1F1B schedule of PipeDream-Flush (Narayanan et al. 2021), as Megatron Core runs it without
interleaving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Action:
    """One microbatch's forward or backward on one stage."""

    stage: int
    phase: Literal["forward", "backward"]
    microbatch: int

    def needs(self, stages: int) -> Action | None:
        """The action of the neighbouring stage whose output this one takes; None at the ends."""
        source = self.stage - 1 if self.phase == "forward" else self.stage + 1
        return Action(source, self.phase, self.microbatch) if 0 <= source < stages else None


def one_f_one_b(stages: int, microbatches: int) -> Iterator[list[Action]]:
    """Rounds of actions, at most one per stage, that need nothing but what earlier rounds did."""
    waiting = [_of_stage(stage, stages, microbatches) for stage in range(stages)]
    done: set[Action | None] = {None}
    while any(waiting):
        ready = [queue[0] for queue in waiting if queue and queue[0].needs(stages) in done]
        for action in ready:
            waiting[action.stage].pop(0)
        done.update(ready)
        yield ready


def _of_stage(stage: int, stages: int, microbatches: int) -> list[Action]:
    """The actions of one stage in order: early stages begin with forwards to fill the pipeline."""
    ahead = min(stages - 1 - stage, microbatches)
    forwards = [Action(stage, "forward", number) for number in range(microbatches)]
    backwards = [Action(stage, "backward", number) for number in range(microbatches)]
    steady = [action for pair in zip(forwards[ahead:], backwards, strict=False) for action in pair]
    return forwards[:ahead] + steady + backwards[microbatches - ahead :]
