"""Pictures, as pure functions from a result to a HoloViews element; one module per analysis.

Each public module declares ``FIGURES``: the element for each grain that has a picture. The report and
`traceview.api.Result.plot` draw with the same functions.
"""
