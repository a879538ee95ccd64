"""Runs in the engine's environment: reads argument lists as JSON on stdin, prints what vLLM says to each.

One process for many configurations: importing the engine takes ten seconds, building a configuration does not.
"""

import json
import sys

from specfleet.cli.with_engine import engine_says

if __name__ == "__main__":
    answers = [engine_says(args) for args in json.load(sys.stdin)]
    print("\nANSWERS " + json.dumps(answers))
