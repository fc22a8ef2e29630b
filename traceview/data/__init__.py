"""Sourced, versioned facts: name rules, hardware and models as TOML."""
