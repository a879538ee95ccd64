"""`python -m vllm_sim` is the `vllm` command."""

import sys

from vllm_sim.cli import main

sys.exit(main(sys.argv[1:]))
