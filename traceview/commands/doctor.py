"""Show versions, tools and the cache, for a bug report.

Nothing private is shown: no environment, no command line.
"""

from __future__ import annotations

import os
import platform
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview import __version__
from traceview.commands import _options

if TYPE_CHECKING:
    import polars as pl

    from traceview.commands._options import Request

PACKAGES = ("polars", "pyarrow", "numpy", "msgspec", "isal", "click", "rich", "holoviews", "bokeh", "nvtx")
TOOLS = {"nsys": "exports .nsys-rep files, which only its maker can read"}


@click.command(help=__doc__)
@_options.request(_options.OUTPUT, _options.REPORTING)
def doctor(request: Request) -> None:
    """See the module's docstring."""
    from traceview.commands import _output
    from traceview.reports.layout import Facts
    from traceview.schema import DIAGNOSTICS

    rows = _rows()
    answer = _output.Answer(
        command="doctor",
        blocks=lambda: [Facts(tuple((name, value or "not found") for name, value, _ in rows.iter_rows()))],
        main=rows,
        tables={"rows": rows},
        runs=(),
        diagnostics=DIAGNOSTICS.empty(),
    )
    _output.deliver(answer, request)


def _rows() -> pl.DataFrame:
    """One row per fact: ``name, value`` (null: not found), ``kind``."""
    import polars as pl

    from traceview import jobs, store, units

    cache = store.default_folder()
    facts: list[tuple[str, str | None, str]] = [
        ("traceview", __version__, "version"),
        ("python", platform.python_version(), "version"),
        ("platform", f"{platform.system()} {platform.machine()}", "machine"),
        *((name, _version(name), "version") for name in PACKAGES),
        *((name, shutil.which(name), "tool") for name in TOOLS),
        *_plugins(),
        ("cores", str(jobs.default_workers()), "machine"),
        ("cache", str(cache), "cache"),
        ("cache size", units.size(_size(cache)), "cache"),
    ]
    return pl.DataFrame(
        facts, schema={"name": pl.String, "value": pl.String, "kind": pl.String}, orient="row"
    )


def _plugins() -> list[tuple[str, str, str]]:
    """What other distributions add, or would if they could."""
    from traceview import registry
    from traceview.plugins import Broken

    return [
        (
            f"{found.group.removeprefix('traceview.')} plugin {found.name}",
            f"{found.distribution}{f', left out: {found.why}' if isinstance(found, Broken) else ''}",
            "plugin",
        )
        for found in registry.contributed()
    ]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _size(folder: Path) -> int:
    """Bytes of the files under ``folder``; 0 where there is none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # another process may be tidying up
                total += Path(place, name).lstat().st_size
    return total
