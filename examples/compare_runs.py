# %% [markdown]
# # Compare two runs
#
# Did the second run beat the first, where, and could it be chance? Steps of one run vary; a difference
# counts only if it exceeds that.

# %%
import polars as pl

import traceview as tv

before = tv.load("sample_traces/ep8-nccl")
after = tv.load("sample_traces/ep8-straggler")
changes = tv.compare(before, after)
changes.totals

# %% [markdown]
# What was configured differently comes first: the reason may stand here.

# %%
changes.configuration

# %% [markdown]
# The rows of the ledger add up to the step in each run, and so their differences add up to the difference
# of the step.

# %%
changes.frame.filter(pl.col("verdict").is_not_null()).head(12)

# %% [markdown]
# ## The null test
#
# The same run, its first steps against its last: nothing may be found.

# %%
half = tv.compare(before, before, steps=(range(10, 12), range(12, 14)))
half.frame["verdict"].drop_nulls().unique().to_list()

# %% [markdown]
# ## As a gate
#
# `traceview compare A B --gate 'delta_step_ratio<=0.02'` does this on the command line, with exit code 1 if
# it is not met.

# %%
(delta,) = changes.totals["delta_step_ratio"]
f"the second step is {delta:+.1%} longer"
