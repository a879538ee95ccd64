"""Command-line arguments of `vllm bench serve`."""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

USAGE = "usage: vllm bench serve [options]"
BACKENDS = ("vllm", "openai", "openai-chat", "openai-completions", "vllm-chat")
DATASETS = ("random", "custom", "sharegpt")
_NOT_SIMULATED = (
    *("burstgpt", "hf", "random-mm", "random-rerank", "prefix_repetition", "spec_bench", "speed_bench", "timed_trace"),
    "custom_mm",
)
SLO_METRICS = ("ttft", "tpot", "e2el")

# Accepted and without effect here.
_IGNORED_VALUES = [
    "--tokenizer-mode",
    "--logprobs",
    "--probe-request-rate",
    "--lora-modules",
    "--lora-assignment",
    "--random-batch-size",
    "--timeline-itl-thresholds",
    "--log-config-file",
    "--chat-template-kwargs",
    "--hf-subset",
    "--hf-split",
    "--hf-name",
    "--hf-output-len",
    "--spec-bench-output-len",
    "--spec-bench-category",
    "--prefix-repetition-prefix-len",
    "--prefix-repetition-suffix-len",
    "--prefix-repetition-num-prefixes",
    "--prefix-repetition-output-len",
    "--self-timed",
]
_IGNORED_SWITCHES = [
    "--trust-remote-code",
    "--use-beam-search",
    "--profile",
    "--plot-timeline",
    "--plot-dataset-stats",
    "--no-stream",
    "--enable-multimodal-chat",
    "--no-reranker",
    "--custom-ensure-client-side-data",
]


class BenchArgumentsError(Exception):
    """The command line cannot be used: exit code 2."""


@dataclass(frozen=True)
class BenchArguments:
    """A checked command line."""

    backend: str
    base_url: str
    endpoint: str
    model: str | None
    served_model_name: str | None
    tokenizer: str | None
    skip_tokenizer_init: bool
    dataset_name: str
    dataset_path: str | None
    num_prompts: int
    no_oversample: bool
    disable_shuffle: bool
    skip_chat_template: bool
    random_input_len: int
    random_output_len: int
    random_range_ratio: float
    random_prefix_len: int
    custom_output_len: int
    sharegpt_output_len: int | None
    request_rate: float
    burstiness: float
    max_concurrency: int | None
    ramp_up_strategy: str | None
    ramp_up_start_rps: int | None
    ramp_up_end_rps: int | None
    num_warmups: int
    seed: int
    goodput: dict[str, float]
    percentile_metrics: tuple[str, ...]
    metric_percentiles: tuple[float, ...]
    ignore_eos: bool
    sampling: dict[str, Any]
    """Sampling parameters that were given, and --extra-body, as they go into each request."""
    headers: dict[str, str]
    request_id_prefix: str
    save_result: bool
    save_detailed: bool
    append_result: bool
    result_dir: str | None
    result_filename: str | None
    metadata: dict[str, str]
    label: str | None
    ready_check_timeout_sec: int
    disable_tqdm: bool
    insecure: bool
    shown: str
    """The Namespace line of the log."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BenchArgumentsError(f"{USAGE}\nvllm bench serve: error: {message}")


def _parser() -> _Parser:
    parser = _Parser(prog="vllm bench serve", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    switch: Any = {"action": "store_true"}
    add("-h", "--help", **switch)
    add("--backend", "--endpoint-type", default="openai", choices=BACKENDS)
    add("--base-url")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000)
    add("--endpoint", default="/v1/completions")
    add("--header", nargs="*", default=[])
    add("--model")
    add("--served-model-name")
    add("--tokenizer")
    add("--skip-tokenizer-init", **switch)
    add("--dataset-name", default="random", choices=(*DATASETS, *_NOT_SIMULATED))
    add("--dataset-path")
    add("--num-prompts", type=int, default=1000)
    for name in ("--no-oversample", "--disable-shuffle", "--skip-chat-template"):
        add(name, **switch)
    add("--input-len", "--random-input-len", type=int, dest="random_input_len", default=1024)
    add("--random-output-len", type=int, default=128)
    add("--output-len", type=int)
    add("--random-range-ratio", type=float, default=0.0)
    add("--random-prefix-len", type=int, default=0)
    add("--custom-output-len", type=int, default=256)
    add("--sharegpt-output-len", type=int)
    add("--request-rate", type=float, default=math.inf)
    add("--burstiness", type=float, default=1.0)
    add("--max-concurrency", type=int)
    add("--ramp-up-strategy", choices=("linear", "exponential"))
    add("--ramp-up-start-rps", type=int)
    add("--ramp-up-end-rps", type=int)
    add("--num-warmups", type=int, default=0)
    add("--seed", type=int, default=0)
    add("--goodput", nargs="+", default=[])
    add("--percentile-metrics")
    add("--metric-percentiles", default="99")
    add("--ignore-eos", **switch)
    for name, kind in (
        ("--temperature", float),
        ("--top-p", float),
        ("--top-k", int),
        ("--min-p", float),
        ("--frequency-penalty", float),
        ("--presence-penalty", float),
        ("--repetition-penalty", float),
    ):
        add(name, type=kind)
    add("--extra-body", type=_json_object, default={})
    add("--request-id-prefix", default="bench-")
    for name in ("--save-result", "--save-detailed", "--append-result", "--disable-tqdm", "--insecure"):
        add(name, **switch)
    add("--result-dir")
    add("--result-filename")
    add("--metadata", nargs="*", default=[])
    add("--label")
    add("--ready-check-timeout-sec", type=int, default=0)
    for name in _IGNORED_VALUES:
        add(name)
    for name in _IGNORED_SWITCHES:
        add(name, **switch)
    return parser


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.")
    return found


def _dashes(words: Sequence[str]) -> list[str]:
    found = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = name.replace("_", "-") + equals + value
        found.append(word)
    return found


def parse_bench_arguments(words: Sequence[str]) -> BenchArguments | None:
    """None after --help. Raises BenchArgumentsError."""
    space = _parser().parse_args(_dashes(words))
    if space.help:
        print(USAGE)
        return None
    _check(space)
    chat = space.backend.endswith("-chat")
    sampling = {
        name: getattr(space, name)
        for name in ("top_p", "top_k", "min_p", "temperature", "frequency_penalty", "presence_penalty")
        if getattr(space, name) is not None
    }
    if space.repetition_penalty is not None:
        sampling["repetition_penalty"] = space.repetition_penalty
    default_metrics = "ttft,tpot,itl"
    return BenchArguments(
        backend=space.backend,
        base_url=(space.base_url or f"http://{space.host}:{space.port}").rstrip("/"),
        endpoint="/v1/chat/completions" if chat and space.endpoint == "/v1/completions" else space.endpoint,
        model=space.model,
        served_model_name=space.served_model_name,
        tokenizer=space.tokenizer,
        skip_tokenizer_init=space.skip_tokenizer_init,
        dataset_name=space.dataset_name,
        dataset_path=space.dataset_path,
        num_prompts=space.num_prompts,
        no_oversample=space.no_oversample,
        disable_shuffle=space.disable_shuffle,
        skip_chat_template=space.skip_chat_template,
        random_input_len=space.random_input_len,
        random_output_len=space.random_output_len if space.output_len is None else space.output_len,
        random_range_ratio=space.random_range_ratio,
        random_prefix_len=space.random_prefix_len,
        custom_output_len=space.custom_output_len if space.output_len is None else space.output_len,
        sharegpt_output_len=space.sharegpt_output_len if space.output_len is None else space.output_len,
        request_rate=space.request_rate,
        burstiness=space.burstiness,
        max_concurrency=space.max_concurrency,
        ramp_up_strategy=space.ramp_up_strategy,
        ramp_up_start_rps=space.ramp_up_start_rps,
        ramp_up_end_rps=space.ramp_up_end_rps,
        num_warmups=space.num_warmups,
        seed=space.seed,
        goodput=_goodput(space.goodput),
        percentile_metrics=tuple(filter(None, (space.percentile_metrics or default_metrics).split(","))),
        metric_percentiles=tuple(float(part) for part in space.metric_percentiles.split(",")),
        ignore_eos=space.ignore_eos,
        sampling=sampling | space.extra_body,
        headers=_pairs(space.header, "--header"),
        request_id_prefix=space.request_id_prefix,
        save_result=space.save_result or space.append_result,
        save_detailed=space.save_detailed,
        append_result=space.append_result,
        result_dir=space.result_dir,
        result_filename=space.result_filename,
        metadata=_pairs(space.metadata, "--metadata"),
        label=space.label,
        ready_check_timeout_sec=space.ready_check_timeout_sec,
        disable_tqdm=space.disable_tqdm,
        insecure=space.insecure,
        shown=str(space),
    )


def _check(space: argparse.Namespace) -> None:
    def fail(message: str) -> NoReturn:
        raise BenchArgumentsError(f"{USAGE}\nvllm bench serve: error: {message}")

    if space.dataset_name in _NOT_SIMULATED:
        fail(f"the simulated image does not carry the dataset {space.dataset_name!r}; it has {', '.join(DATASETS)}")
    if space.dataset_name in ("custom", "sharegpt") and not space.dataset_path:
        fail(f"--dataset-path is required for --dataset-name {space.dataset_name}")
    if space.burstiness <= 0:
        fail("--burstiness must be positive")
    if space.ramp_up_strategy:
        if not math.isinf(space.request_rate):
            fail("When using ramp-up, do not specify --request-rate.")
        if space.ramp_up_start_rps is None or space.ramp_up_end_rps is None:
            fail("When using --ramp-up-strategy, both --ramp-up-start-rps and --ramp-up-end-rps must be specified")
        if space.ramp_up_start_rps > space.ramp_up_end_rps:
            fail("Ramp-up start RPS must be less than end RPS")


def _pairs(words: Sequence[str], flag: str) -> dict[str, str]:
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BenchArgumentsError(f"{USAGE}\nInvalid {flag} format. Please use KEY=VALUE format.")
        found[name.strip()] = value.strip()
    return found


def _goodput(words: Sequence[str]) -> dict[str, float]:
    found = {}
    for word in words:
        name, colon, value = word.partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if not colon or name not in SLO_METRICS or limit < 0:
            raise BenchArgumentsError(
                f"{USAGE}\nInvalid --goodput {word!r}: use KEY:MILLISECONDS with KEY one of {', '.join(SLO_METRICS)}"
            )
        found[name] = limit
    return found
