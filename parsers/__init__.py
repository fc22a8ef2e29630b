"""One module per trace format; each declares one ``PARSER`` and turns bytes into canonical tables."""

if not __name__.startswith("traceview."):
    message = "import traceview.parsers, not parsers: a second copy would have a registry of its own"
    raise ImportError(message)
