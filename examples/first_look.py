# %% [markdown]
# # First look
#
# A run of eight ranks, loaded and summed up. Run it from the root of the checkout, or put the path of
# traces of your own into `TRACES`: a file, a directory of ranks, a glob.

# %%
import traceview as tv

TRACES = "sample_traces/ep8-straggler"
run = tv.load(TRACES)
run

# %% [markdown]
# The summary is the page that `traceview summary` prints; its last sentence is the one to remember.

# %%
print(tv.summary(run))

# %% [markdown]
# What costs most, one sentence each; `tv.findings(run)` is a table with the numbers behind them. Costs
# overlap and must not be added.

# %%
for sentence in tv.findings(run)["text"]:
    print("-", sentence)

# %% [markdown]
# A question gives a `Result`: a small table whose columns are documented (hover over a heading), with times
# in int64 nanoseconds, ratios 0 to 1, and null for what is not known.

# %%
parts = tv.breakdown(run, by=("rank",))
parts

# %% [markdown]
# `.frame` is a polars frame. The parts of a step add up to it, to the nanosecond:

# %%
frame = parts.frame
total = frame["compute_ns"] + frame["exposed_comm_ns"] + frame["exposed_copy_ns"] + frame["idle_ns"]
assert total.equals(frame["window_ns"])

# %% [markdown]
# Grain and steps are arguments: here the ledger of each step, and what it hides.

# %%
tv.ledger(run, by=("step", "kind"))

# %% [markdown]
# Results hand themselves over to other libraries: `pyarrow.table(parts)`, `parts.to_pandas()`, DuckDB, or
# `parts.plot()` for a HoloViews figure. And `tv.report(run, "report.html")` writes everything onto one
# page.

# %%
parts.to_arrow().schema.field("exposed_comm_ns").metadata
