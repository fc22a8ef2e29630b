# %% [markdown]
# # Write an analysis of your own
#
# A question of your own needs no fork: an `Analysis` is a `map` of one rank's tables to a small partial
# table, and a `reduce` of the partials of all ranks to the result. One rank is the same code with one
# partial, and no step needs the events of all ranks in one memory.
#
# The question here: *how much of the step goes into kernels too short to be worth their launch?*

# %%
import polars as pl

import traceview as tv
from traceview.contracts import Analysis, Options
from traceview.intervals import Spans, total, union
from traceview.schema import Column, Table
from traceview.trace import Trace

SHORT_NS = 10_000

# %% [markdown]
# ## The result is declared first
#
# Every column has a type, a meaning and a unit. Names end in `_ns`, `_bytes`, `_ratio` or `_count`.

# %%
RESULT = Table(
    "short_kernels",
    "Kernels shorter than 10 µs: how many, and how much of the device's time they take.",
    {
        "rank": Column(pl.Int32(), "global rank; null when ranks are summed", nullable=True),
        "step": Column(pl.Int64(), "step; null when steps are summed", nullable=True),
        "kernel_count": Column(pl.Int64(), "kernels"),
        "short_count": Column(pl.Int64(), "of those, shorter than 10 µs"),
        "short_ns": Column(pl.Int64(), "time in which a short kernel runs (a union)", "ns"),
        "window_ns": Column(pl.Int64(), "time looked at", "ns"),
        "short_ratio": Column(pl.Float64(), "short / window; null for an empty window", nullable=True),
    },
)
PARTIAL = RESULT.only("rank", "step", "kernel_count", "short_count", "short_ns", "window_ns")
GRAINS = {"rank": ("rank",), "step": ("step",)}

# %% [markdown]
# ## Map: one rank
#
# A trace has tables: `ops` (what ran on the device), `steps`, `collectives`, `ranges` and more; the
# reference lists their columns. Steps that were cut off are left out here. Time comes from unions of
# intervals, never from sums of durations.


# %%
def measure(trace: Trace, options: Options) -> pl.DataFrame:
    """One row per step of a rank."""
    steps = trace.table("steps").filter(pl.col("status") == "complete").sort("step")
    kernels = trace.table("ops").filter(
        pl.col("kind") == "kernel", pl.col("step").is_in(steps["step"].to_list())
    )
    short = kernels.filter(pl.col("dur_ns") < SHORT_NS)
    place = steps["step"].search_sorted(short["step"]).to_numpy()
    start = short["ts_ns"].to_numpy()
    spans = union(Spans.of(start, start + short["dur_ns"].to_numpy(), key=place))
    counts = kernels.group_by("step").agg(
        kernel_count=pl.len(), short_count=(pl.col("dur_ns") < SHORT_NS).sum()
    )
    rows = steps.select(
        pl.lit(trace.facts.rank).alias("rank"),
        "step",
        pl.Series("short_ns", total(spans, len(steps))),
        pl.col("dur_ns").alias("window_ns"),
    )
    return PARTIAL.conform(
        rows.join(counts, on="step", how="left").with_columns(
            pl.col("kernel_count", "short_count").fill_null(0)
        )
    )


# %% [markdown]
# ## Reduce: all ranks
#
# The partials of all ranks, summed in the grain that was asked for. A ratio whose denominator is 0 is null.


# %%
def summarize(partials: pl.DataFrame, options: Options) -> pl.DataFrame:
    """`RESULT`, in the grain of ``options``."""
    keys = options.columns(GRAINS)
    sums = [pl.col("kernel_count", "short_count", "short_ns", "window_ns").sum()]
    rows = partials.group_by(keys).agg(sums) if keys else partials.select(sums)
    ratio = pl.when(pl.col("window_ns") > 0).then(pl.col("short_ns") / pl.col("window_ns"))
    return RESULT.frame(rows.with_columns(short_ratio=ratio)).sort("rank", "step")


# %%
ANALYSIS = Analysis(
    name="short_kernels",
    question="How much of the step goes into kernels too short to be worth their launch?",
    needs=("ops", "steps"),
    partial=PARTIAL,
    result=RESULT,
    map=measure,
    reduce=summarize,
    grains=GRAINS,
)

# %% [markdown]
# ## Ask it
#
# Like any other question: with a grain, and on any number of ranks. The answer is a `Result` with all that
# comes with it.

# %%
run = tv.load("sample_traces/ep8-nccl")
tv.analyze(run, ANALYSIS, by=("rank",))

# %%
tv.analyze(run, ANALYSIS, by=())

# %% [markdown]
# ## Check it
#
# Against a count that shares nothing with the code above: a set of the nanoseconds of one step.

# %%
(trace, *_) = run.traces
step = trace.table("steps").filter(pl.col("status") == "complete")["step"][0]
ops = trace.table("ops").filter(
    pl.col("kind") == "kernel", pl.col("step") == step, pl.col("dur_ns") < SHORT_NS
)
counted = {
    ns for start, length in ops.select("ts_ns", "dur_ns").iter_rows() for ns in range(start, start + length)
}
found = tv.analyze(run, ANALYSIS, by=("rank", "step")).frame.filter(
    pl.col("rank") == trace.facts.rank, pl.col("step") == step
)
assert found["short_ns"].to_list() == [len(counted)]

# %% [markdown]
# ## Share it
#
# A package that declares the object as an entry point adds the question to every installation it is put
# into:
#
# ```toml
# [project.entry-points."traceview.analyzers"]
# short_kernels = "our_package.short_kernels:ANALYSIS"
# ```
#
# Then `tv.analyze(run, "short_kernels")` knows it. The same works for parsers (`traceview.parsers`), for
# sections of the HTML report (`traceview.sections`) and for rules of kernel names (`traceview.rules`).
