"""`Result`: the answer to a question, as every notebook and library can take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceview import registry
from traceview.contracts import Analysis, Options
from traceview.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a question: a small table, and what it was asked with.

    Attributes:
        frame: The rows, times in int64 ns, sizes in bytes, ratios 0 to 1; null is what is not known.
        analysis: The question; ``analysis.result`` says what each column means.
        options: Grain and steps it was asked with.
    """

    frame: pl.DataFrame
    analysis: Analysis
    options: Options

    def summary(self) -> list[dict[str, Any]]:
        """The rows as plain Python values, ready for JSON."""
        return self.frame.to_dicts()

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table whose fields carry each column's meaning and unit as metadata."""
        import pyarrow as pa  # noqa: PLC0415 - heavy, and only exports need it

        table = self.analysis.result
        columns = self.frame.to_arrow().columns
        return pa.table(columns, schema=table.only(*self.frame.columns).arrow_schema())

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame.

        Raises:
            ImportError: pandas is not installed; nothing else here needs it.
        """
        try:
            import pandas as pd  # noqa: F401, PLC0415 - heavy, and nothing else needs it
        except ImportError as missing:
            message = (
                "pandas is not installed, and only to_pandas needs it.\n"
                "Hint: pip install pandas; or use .frame (polars), .to_arrow() or .summary()."
            )
            raise ImportError(message) from missing
        return self.frame.to_pandas()

    def plot(self) -> Any:  # noqa: ANN401 - a HoloViews element, and HoloViews is loaded only here
        """The figure of the HTML report that shows this result, as a HoloViews element.

        Raises:
            UsageError: This question has no picture in this grain.
        """
        drawn = registry.figures(self.analysis.name)
        if self.options.by not in drawn:
            grains = "; ".join(", ".join(by) for by in drawn) or "none"
            message = (
                f"no picture of '{self.analysis.name}' by {', '.join(self.options.by) or 'nothing'}; "
                f"grains with one: {grains}."
            )
            raise UsageError(message)
        return drawn[self.options.by](self.frame)

    def coarser(self, by: tuple[str, ...]) -> Result:
        """The same in a coarser grain, without looking at the traces again.

        Only for questions whose partials are their rows, such as `breakdown`.
        """
        partials = self.analysis.partial.conform(self.frame)
        options = Options(steps=self.options.steps, by=by)
        frame = self.analysis.result.conform(self.analysis.reduce(partials, options))
        return Result(frame, self.analysis, options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table as an Arrow C stream: for pyarrow, DuckDB, pandas, narwhals."""
        return self.frame.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<{self.analysis.name} by {', '.join(self.options.by)}>\n{self.frame}"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from traceview.reports import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.result(self.frame, self.analysis, self.options)
