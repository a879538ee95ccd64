"""Arguments of `vllm bench serve` (vLLM 0.32), those of other tasks and backends left out."""

import argparse
import json
import math
from collections.abc import Sequence


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse, or end with exit code 2 as argparse does."""
    parser = argparse.ArgumentParser(prog="vllm bench serve", allow_abbrev=False)
    _target(parser)
    _dataset(parser)
    _load(parser)
    _sampling(parser)
    _output(parser)
    options = parser.parse_args(words)
    if options.ramp_up_strategy and not math.isinf(options.request_rate):
        raise ValueError("When using ramp-up, do not specify --request-rate. Use --ramp-up-start-rps/-end-rps instead")
    return options


def _target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", default="openai", choices=["openai", "openai-chat", "vllm"])
    parser.add_argument("--base-url")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--endpoint", default="/v1/completions")
    parser.add_argument("--header", nargs="*", default=[])
    parser.add_argument("--model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--tokenizer")
    parser.add_argument("--tokenizer-mode", default="auto")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--skip-tokenizer-init", action="store_true")
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--request-id-prefix", default="bench-")
    parser.add_argument("--ready-check-timeout-sec", type=int, default=0)
    parser.add_argument("--label")


def _dataset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset-name", default="random", choices=["random", "custom", "sharegpt"])
    parser.add_argument("--dataset-path")
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--input-len", type=int)
    parser.add_argument("--output-len", type=int)
    parser.add_argument("--random-input-len", type=int, default=1024)
    parser.add_argument("--random-output-len", type=int, default=128)
    parser.add_argument("--random-range-ratio", default="0.0")
    parser.add_argument("--random-prefix-len", type=int, default=0)
    parser.add_argument("--custom-output-len", type=int, default=256)
    parser.add_argument("--sharegpt-output-len", type=int)
    parser.add_argument("--skip-chat-template", action="store_true")
    parser.add_argument("--disable-shuffle", action="store_true")
    parser.add_argument("--no-oversample", action="store_true")
    parser.add_argument("--seed", type=int, default=0)


def _load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--request-rate", type=float, default=math.inf)
    parser.add_argument("--burstiness", type=float, default=1.0)
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--num-warmups", type=int, default=0)
    parser.add_argument("--ramp-up-strategy", choices=["linear", "exponential"])
    parser.add_argument("--ramp-up-start-rps", type=int)
    parser.add_argument("--ramp-up-end-rps", type=int)
    parser.add_argument("--goodput", nargs="+")


def _sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--logprobs", type=int)
    parser.add_argument("--extra-body", type=json.loads)


def _output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--percentile-metrics")
    parser.add_argument("--metric-percentiles", default="99")
    parser.add_argument("--save-result", action="store_true")
    parser.add_argument("--save-detailed", action="store_true")
    parser.add_argument("--append-result", action="store_true")
    parser.add_argument("--result-dir")
    parser.add_argument("--result-filename")
    parser.add_argument("--metadata", nargs="*", default=[])
    parser.add_argument("--disable-tqdm", action="store_true")
