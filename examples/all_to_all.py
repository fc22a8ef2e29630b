# %% [markdown]
# # A closer look at the all-to-all
#
# Expert parallelism sends tokens to their experts and back, twice per layer and phase. This notebook asks,
# in order: is it exposed, does it wait or move bytes, who is late, and are the loads even?

# %%
import polars as pl

import traceview as tv

run = tv.load("sample_traces/ep8-straggler")
tv.overlap(run, by=("axis", "role"))

# %% [markdown]
# ## Waiting or moving bytes?
#
# Kernels of a collective hold both: each rank waits in its kernel until the last one arrives. traceview
# splits them there.

# %%
exchanges = tv.all_to_all(run, by=("layer", "role", "phase"))
exchanges.frame.select(
    "layer",
    "role",
    "phase",
    (pl.col("dur_p50_ns") / 1e6).alias("median ms"),
    "wait_ratio",
    (pl.col("busbw_bytes_per_s") / 1e9).alias("GB/s"),
)

# %% [markdown]
# ## How durations spread
#
# Quantiles of the durations. A long tail over a small median means single late steps rather than a slow
# link.

# %%
tv.latencies(run)

# %% [markdown]
# ## Who is late?
#
# Blame is in exposed time: waiting that is hidden under compute costs nothing. By `rank` and `victim` it is
# a matrix.

# %%
late = tv.stragglers(run)
late.frame.select("rank", "cause", "kind", "suspect", pl.col("blamed_per_step_ns") / 1e6)

# %%
(
    tv.stragglers(run, by=("rank", "victim"))
    .frame.filter(pl.col("rank").is_not_null())
    .pivot("victim", index="rank", values="blamed_ns")
)

# %% [markdown]
# One rank is blamed for everything. The sample was made so, and its truth is beside the traces:

# %%
import json
from pathlib import Path

truth = json.loads(Path("sample_traces/ep8-straggler/truth.json").read_text())
planted = truth["workload"]["stragglers"]
assert [straggler["rank"] for straggler in planted] == late.frame["rank"].drop_nulls().to_list()
planted

# %% [markdown]
# ## Are the loads even?

# %%
tv.expert_load(run, by=("layer", "rank")).frame.pivot("layer", index="rank", values="load")

# %% [markdown]
# ## Who sends how much to whom?

# %%
tv.traffic(run).frame.pivot("peer", index="rank", values="sent_bytes")
