"""Log lines in the real engine's form, and the ones that people and tools look for."""

import os
import sys
import time

from vllm_sim.arguments import ServeArguments

_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/usr/local/bin/vllm", line 10, in <module>\n'
    "    sys.exit(main())\n"
    "             ^^^^^^"
)


def write(line: str) -> None:
    """One line on standard output; a closed pipe is nobody's business."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        pass


def info(place: str, message: str, process: str = "APIServer", level: str = "INFO") -> None:
    """`(APIServer pid=1) INFO 11-29 12:51:48 [file.py:1] message`."""
    write(f"({process} pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{place}] {message}")


def banner(arguments: ServeArguments, version: str) -> None:
    """First lines of a start."""
    info("api_utils.py:347", f"vLLM (simulated) version {version}")
    info("api_utils.py:347", f"model   {arguments.model}")
    info("api_utils.py:286", f"non-default args: {arguments.given}")


def engine_config(arguments: ServeArguments, version: str, speculative: str, max_model_len: int) -> None:
    """The line that carries the whole configuration."""
    a = arguments
    info(
        "core.py:133",
        f"Initializing a V1 LLM engine (v{version}) with config: model={a.model!r}, speculative_config={speculative}, "
        f"tokenizer={a.given.get('tokenizer', a.model)!r}, skip_tokenizer_init=False, tokenizer_mode=auto, "
        f"revision={a.revision}, tokenizer_revision={a.given.get('tokenizer_revision')}, trust_remote_code=False, "
        f"dtype={a.given.get('dtype', 'torch.bfloat16')}, max_seq_len={max_model_len}, download_dir=None, "
        f"tensor_parallel_size={a.tensor_parallel_size}, pipeline_parallel_size={a.pipeline_parallel_size}, "
        f"data_parallel_size={a.data_parallel_size}, quantization={a.given.get('quantization')}, seed={a.seed}, "
        f"served_model_name={a.served_model_name[0]}, enable_prefix_caching={a.enable_prefix_caching}",
        "EngineCore",
    )


def crash(lines: str) -> None:
    """A traceback's first and last lines on standard error, as the real process leaves them."""
    try:
        sys.stderr.write(f"{_TRACEBACK}\n{lines}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
