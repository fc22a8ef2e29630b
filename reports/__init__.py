"""Renderers: result tables in, text, JSON, CSV, Markdown or HTML out."""

if not __name__.startswith("traceview."):
    message = "import traceview.reports, not reports: a second copy would have a registry of its own"
    raise ImportError(message)
