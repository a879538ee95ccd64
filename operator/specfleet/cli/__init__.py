"""`kubectl specfleet`: one module per command."""
