"""Sections of the HTML report; every public module declares one `Section` as ``SECTION``."""
