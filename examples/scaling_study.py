# %% [markdown]
# # A scaling study
#
# The same job at 256, 512 and 1,024 ranks, of which 8 ranks each were recorded: one whole expert-parallel
# group. Does it scale, and who owns what is lost?

# %%
import polars as pl

import traceview as tv

runs = [tv.load(f"sample_traces/scaling/{size}") for size in (256, 512, 1024)]
study = tv.scaling(runs)
study.sizes.select("run", "scaling", "step_ns", "retention", "retention_low", "retention_high")

# %% [markdown]
# *Retention* is tokens per second and rank, over those of the smallest job, with a 95 % interval over
# steps. *Weak* means that the tokens per rank stayed the same; the study says so only since `run.toml` of
# each run says how many there were.

# %% [markdown]
# ## Efficiency
#
# A product of factors, each the fault of one thing.

# %%
study.efficiency.select(
    "run", "parallel_ratio", "ep_balance_ratio", "communication_ratio", "orchestration_ratio"
)

# %%
product = (
    study.efficiency["load_balance_ratio"]
    * study.efficiency["communication_ratio"]
    * study.efficiency["orchestration_ratio"]
)
assert (product - study.efficiency["parallel_ratio"]).abs().max() < 1e-9

# %% [markdown]
# ## Who owns the loss
#
# What each part of a step takes beyond the ideal, in milliseconds per step and rank.

# %%
losses = study.losses.filter(pl.col("run") == "1024").sort("loss_ns", descending=True)
losses.select("part", "axes", "cause", pl.col("loss_ns") / 1e6, "loss_ratio").head(6)

# %% [markdown]
# And why: what changed along each axis.

# %%
study.axes.filter(pl.col("run") == "1024").select(
    "axis", "cause", "base_size", "size", "base_dur_ns", "dur_ns"
)
