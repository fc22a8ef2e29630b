"""Questions that compare runs: one module each, from the tables that `analyzers` gives of each run."""
