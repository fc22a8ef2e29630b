"""Names what a JSON file is when it is not a profiler trace, so that the refusal helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_BY_KEYS = (
    ({"nodes", "schema"}, "a PyTorch execution trace (ET)", "pass the Kineto trace recorded beside it"),
    ({"segments", "device_traces"}, "a CUDA memory snapshot", "open it in PyTorch's memory_viz"),
    ({"PROFILE_START_TIME"}, "a profiler configuration", "pass the trace it produced"),
    ({"ACTIVITIES_DURATION_SECS"}, "a profiler configuration", "pass the trace it produced"),
    ({"rocprofiler-sdk-tool"}, "a rocprofv3 export", "record with torch.profiler, or export a Kineto trace"),
)
_BY_HEAD = (
    (b'"dynamo_timed"', "torch.compile's own timing log (chromium_events)", "pass a torch.profiler trace"),
    (b'"/host:CPU"', "a JAX/XProf trace-viewer export", "pass the .xplane.pb file beside it"),
    (
        b'"TS1"',
        "an IBM AIU (Spyre) timeline of begin/end pairs",
        "convert it to Kineto form with aiu-trace-analyzer",
    ),
)


def describe(
    head: bytes, keys: Collection[str], categories: Collection[str | None], event_count: int
) -> tuple[str, str]:
    """What the document is and what to pass instead.

    Args:
        head: Its first bytes.
        keys: Top-level keys found before the events (all keys when there is no event list).
        categories: Categories of complete events; None is "no category".
        event_count: Events of any phase.
    """
    for wanted, what, hint in _BY_KEYS:
        if wanted <= set(keys):
            return what, hint
    for mark, what, hint in _BY_HEAD:
        if mark in head:
            return what, hint
    if not event_count:
        return "JSON without trace events", "pass the file that torch.profiler exported"
    if not categories:
        what = "a Chrome trace without complete ('X') events, so it holds no device work traceview can read"
        return what, "pass a torch.profiler (Kineto) trace"
    if set(categories) == {None}:
        what = "a Chrome trace without event categories, such as the legacy autograd profiler writes"
        return what, "record with torch.profiler.profile instead of torch.autograd.profiler"
    listed = ", ".join(sorted(str(category)[:40] for category in categories if category)[:5])
    return f"a Chrome trace of another tool (categories: {listed})", "pass a torch.profiler (Kineto) trace"
