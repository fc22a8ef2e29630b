"""NVIDIA Nsight Systems reports, in the forms that ``nsys export`` writes.

Source: exports written by nsys 2022.4 to 2026.2, and NVIDIA's user guide. What the format really does, and
this module therefore does:

- One report may hold several processes, each of them a rank. Ids of devices, streams and launches mean
  something within their process only.
- Any table or column may be absent, which says that it was not traced, and rows come in any order.
- The report itself (``.nsys-rep``) is a closed format: where there is an ``nsys``, it is asked to export it,
  and elsewhere it is refused with the command that does.
- Reports hold the environment, the command line and the output of the job; those are never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview.errors import UnknownFormatError
from traceview.parsers import _nsys_files, _nsys_json_lines, _nsys_projection, _nsys_report
from traceview.parsers._nsys_arrow import STREAM_MAGIC
from traceview.parsers._nsys_sqlite import MAGIC as SQLITE_MAGIC
from traceview.parsers._nsys_tool import REPORT_MAGIC

if TYPE_CHECKING:
    from traceview.source import Source
    from traceview.trace import Trace


class Nsys:
    """The Nsight Systems parser."""

    name = "nsys"
    description = "Nsight Systems export: .sqlite (also compressed), _pqtdir/, _arwdir/, .arrows, JSON lines"
    url = "https://docs.nvidia.com/nsight-systems/UserGuide/index.html"
    version = 6

    def sniff(self, source: Source) -> bool:
        """An export, or one of the files beside it that `parse` can say something about."""
        if source.path.is_dir():
            return True
        magics = (SQLITE_MAGIC, STREAM_MAGIC, _nsys_projection.MAGIC, REPORT_MAGIC)
        return source.head.startswith(magics) or _nsys_json_lines.is_row(source.head)

    def parse(self, source: Source) -> list[Trace]:
        """One trace per process that used a device; see the module docstring for what is kept."""
        if source.head.startswith(_nsys_projection.MAGIC):
            return [_nsys_projection.trace(source)]
        with _nsys_files.opened(source) as export:
            if not export.container.tables:
                raise _no_report(source)
            return _nsys_report.traces(export)


PARSER = Nsys()


def _no_report(source: Source) -> UnknownFormatError:
    kinds = {SQLITE_MAGIC: "an SQLite database", STREAM_MAGIC: "an Arrow stream"}
    kind = next((kind for magic, kind in kinds.items() if source.head.startswith(magic)), "a file of tables")
    what = f"{kind} without any table of an Nsight Systems export"
    return UnknownFormatError.of(source.path, what, "pass what nsys export wrote")
