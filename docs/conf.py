"""The documentation site: Sphinx reads the pages of this folder, and the notebooks made from `examples/`.

    make site

Nothing in the built pages asks another host for anything: no fonts, scripts, styles or badges from elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import notebooks  # noqa: E402 - found beside this file

import traceview  # noqa: E402 - the checkout, not whatever is installed

project = "traceview"
author = "the traceview developers"
copyright = author  # noqa: A001 - Sphinx's own name
version = release = traceview.__version__

extensions = ["myst_nb"]
exclude_patterns = ["Thumbs.db", ".*", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # output of commands is no language

# `make notebooks` has run them; without it they are shown without their output
nb_execution_mode = "off"
nb_remove_code_outputs = False
notebooks.write_missing()

html_theme = "furo"
html_title = "traceview"
html_static_path = ["static"]
html_css_files = ["traceview.css"]
html_extra_path = ["../out/example"] if (HERE.parent / "out" / "example").is_dir() else []
html_show_sourcelink = False
html_copy_source = False
templates_path: list[str] = []
pygments_style = "default"
