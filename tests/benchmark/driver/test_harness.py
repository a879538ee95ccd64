"""The bench finds a reader of JSON lines whether or not the image has pandas."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from specfleet.benchmark.driver.harness import VllmBenchServe

READS = """
import sys, pandas
table = pandas.read_json(path_or_buf=sys.argv[1], lines=True)
print(getattr(pandas, "__version__", "ours"), [row["prompt"] for _, row in table.iterrows()])
"""
REAL = "__version__ = '9.9'\nfrom .inner import Frame\ndef read_json(path_or_buf, lines): return Frame()\n"
INNER = """
import pandas.names
class Frame:
    def iterrows(self):
        return [(0, {"prompt": pandas.names.NAME})]
"""


def said(work: Path, site: Path) -> str:
    """What a program says that reads prompts as the bench does, in an interpreter with `site` on its path."""
    prompts = work / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\n\n{"prompt": "two"}\n')
    added = VllmBenchServe().environment(work)["PYTHONPATH"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([added, str(site)])}
    command = [sys.executable, "-S", "-c", READS, prompts]
    done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_image_without_pandas_reads_its_prompts_by_ours(tmp_path: Path) -> None:
    assert said(tmp_path, tmp_path / "nothing").endswith("['one', 'two']")


def test_an_image_with_pandas_reads_its_prompts_by_its_own(tmp_path: Path) -> None:
    package = tmp_path / "site" / "pandas"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REAL)
    (package / "inner.py").write_text(INNER)
    (package / "names.py").write_text("NAME = 'of the image'")
    assert said(tmp_path, tmp_path / "site") == "9.9 ['of the image']"


def test_a_path_that_the_image_sets_is_kept_behind_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/opt/engine")
    assert VllmBenchServe().environment(tmp_path)["PYTHONPATH"].split(os.pathsep)[1:] == ["/opt/engine"]
