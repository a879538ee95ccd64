"""Exit codes of every command, for CI."""

OK = 0
"""Nothing is refused (warnings allowed unless --strict)."""
REFUSED = 1
"""At least one object is refused, or a check failed."""
UNUSABLE_INPUT = 2
"""A file cannot be read, is no YAML, or holds nothing that the command knows."""
