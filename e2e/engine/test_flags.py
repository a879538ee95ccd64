"""The list of flags is the engine's own, and the engine ends where the rule says that it does."""

import json
import subprocess

from specfleet.engine.serve_flags import FLAGS, SHORT_FLAGS

from e2e.engine import set_up

LIST_FLAGS = """
import json
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())
print(json.dumps([one for action in parser._actions for one in action.option_strings]))
"""


def run_engine(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(set_up.python()), *words]
    return subprocess.run(command, env=set_up.environment(), capture_output=True, text=True, check=False, timeout=300)


def test_the_list_is_what_the_engine_takes() -> None:
    done = run_engine("-c", LIST_FLAGS)
    assert done.returncode == 0, done.stderr
    taken = set(json.loads(done.stdout.splitlines()[-1])) - {"-h", "--help"}
    assert taken == FLAGS | SHORT_FLAGS


def test_an_unknown_flag_ends_the_engine_before_it_loads_anything() -> None:
    done = run_engine("-m", "vllm.entrypoints.cli.main", "serve", "/no/such/model", "--max-num-sequences", "4")
    assert done.returncode == 2
    assert "unrecognized arguments: --max-num-sequences" in done.stderr
