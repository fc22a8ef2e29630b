"""One module per question; each declares one ``ANALYSIS``: tables in, tables out."""
