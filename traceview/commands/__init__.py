"""One module per command-line verb."""
