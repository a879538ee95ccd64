"""Help texts of the commands: the description is filled, the examples stay as they are written."""

import argparse

_EXAMPLES = "examples:\n"


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs, except what `examples` has made."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def examples(*lines: str) -> str:
    """The epilog of a command: lines that can be typed as they are."""
    return _EXAMPLES + "\n".join(f"  kubectl specfleet {line}" for line in lines)
