"""`make bench-decisions`: fixed seeds for scoring (tuning used others), results as JSON, a table and a plot."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.decisions.measure import LEVELS, false_alarms, first_week, latency, level
from benchmarks.decisions.report import write
from benchmarks.decisions.speed import measure as speed

PARTS = ("levels", "alarms", "latency", "first week", "speed")
HERE = Path(__file__).parent
SCORING_SEED = 910_000
"""Tuning used seeds below 100,000."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=100)
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--levels", type=float, nargs="*", default=list(LEVELS))
    parser.add_argument("--no-rules", action="store_true", help="only ours")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), help="measure only these again")
    parser.add_argument("--report", action="store_true", help="only write the table and plot from results.json")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    results = options.out / "results.json"
    found = json.loads(results.read_text()) if results.exists() else {"levels": {}, "latency": []}
    parts = [] if options.report else options.parts
    rates = {part: [rate for rate in options.levels if part == "alarms" or rate in (0.5, 5.0)] for part in PARTS}
    if "levels" in parts:
        _levels(options, found, results)
    if "alarms" in parts:
        found["alarms"] = {}
        for rate in rates["alarms"]:
            one = false_alarms(rate, options.fleets, options.days, SCORING_SEED + round(rate * 1000))
            found["alarms"][f"{rate:g}"] = one
            print(f"{rate:g} requests/s: {one['false']}", file=sys.stderr, flush=True)
    if "latency" in parts:
        found["latency"] = [
            latency(rate, options.fleets, SCORING_SEED + 7, share) for rate in rates["latency"] for share in (0.25, 0.5)
        ]
    if "first week" in parts:
        found["first week"] = [
            first_week(rate, max(10, options.fleets // 2), SCORING_SEED + 11) for rate in rates["first week"]
        ]
    if "speed" in parts:
        found["speed"] = speed()
    results.write_text(json.dumps(found, indent=1) + "\n")
    write(found, options.out)


def _commit() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


def _levels(options: argparse.Namespace, found: dict[str, Any], results: Path) -> None:
    for rate in options.levels:
        print(f"{rate:g} requests/s, {options.fleets} fleets, {options.days:g} days ...", file=sys.stderr, flush=True)
        one = level(rate, options.fleets, options.days, SCORING_SEED + round(rate * 1000), not options.no_rules)
        if options.no_rules:
            # The traces are those of the seed, so what other rules make of them is still so.
            one["others"] = found["levels"].get(f"{rate:g}", {}).get("others", {})
        found["levels"][f"{rate:g}"] = one | {"commit": _commit()}
        results.write_text(json.dumps(found, indent=1) + "\n")
        print(f"  {one['seconds']:.0f} s, false alarms {one['false']}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
