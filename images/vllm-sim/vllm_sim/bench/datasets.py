"""The prompts of a run."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vllm_sim.bench.arguments import BenchArguments
from vllm_sim.tokens import VOCABULARY, count_tokens


class DatasetError(Exception):
    """The prompts cannot be had: exit code 1."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to send."""

    text: str
    prompt_len: int
    output_len: int


def load_prompts(arguments: BenchArguments) -> list[Prompt]:
    """Prompts in the order in which they are sent. Raises DatasetError."""
    loaders: dict[str, Callable[[BenchArguments], list[Prompt]]] = {
        "random": _random,
        "custom": _custom,
        "sharegpt": _sharegpt,
    }
    if arguments.skip_tokenizer_init and arguments.dataset_name != "custom":
        name = arguments.dataset_name
        raise DatasetError(f"AssertionError: Tokenizer must be initialized for the '{name}' dataset.")
    return loaders[arguments.dataset_name](arguments)


def _random(arguments: BenchArguments) -> list[Prompt]:
    source = random.Random(f"random/{arguments.seed}")  # noqa: S311
    ratio = arguments.random_range_ratio
    prefix = [source.choice(VOCABULARY) for _ in range(arguments.random_prefix_len)]

    def length(mean: int) -> int:
        return max(1, round(source.uniform(mean * (1 - ratio), mean * (1 + ratio))) if ratio else mean)

    prompts = []
    for _ in range(arguments.num_prompts):
        words = [*prefix, *(source.choice(VOCABULARY) for _ in range(length(arguments.random_input_len)))]
        prompts.append(Prompt("".join(words), len(words), length(arguments.random_output_len)))
    return prompts


def _custom(arguments: BenchArguments) -> list[Prompt]:
    path = Path(arguments.dataset_path or "")
    if path.suffix != ".jsonl":
        raise DatasetError("NotImplementedError: Only JSONL format is supported for CustomDataset.")
    rows = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DatasetError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict) or "prompt" not in row:
            raise DatasetError("ValueError: JSONL file must contain a 'prompt' column.")
        rows.append(row)
    if not arguments.disable_shuffle:
        random.Random(arguments.seed).shuffle(rows)  # noqa: S311
    prompts = []
    for row in rows[: arguments.num_prompts]:
        if arguments.skip_tokenizer_init:
            # Whatever was asked for: without a tokenizer nothing has a length.
            prompts.append(Prompt(str(row["prompt"]), 1, 1))
            continue
        output = arguments.custom_output_len
        if output == -1:
            if "output_tokens" not in row:
                raise DatasetError(
                    "ValueError: If no output length is provided the custom dataset must contain an "
                    "'output_tokens' field."
                )
            output = int(row["output_tokens"])
        text = str(row["prompt"])
        prompts.append(Prompt(text, count_tokens(text), output))
    return _oversampled(prompts, arguments)


def _sharegpt(arguments: BenchArguments) -> list[Prompt]:
    path = Path(arguments.dataset_path or "")
    try:
        entries = json.loads(_read(path))
        talks = [entry["conversations"] for entry in entries if len(entry.get("conversations", ())) >= 2]
    except (ValueError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path} is not a ShareGPT file: {error}") from error
    random.Random(arguments.seed).shuffle(talks)  # noqa: S311
    prompts: list[Prompt] = []
    for talk in talks:
        if len(prompts) >= arguments.num_prompts:
            break
        text, answer = str(talk[0]["value"]), str(talk[1]["value"])
        length = count_tokens(text)
        output = count_tokens(answer) if arguments.sharegpt_output_len is None else arguments.sharegpt_output_len
        # Bounds of the real loader: nothing shorter than four tokens or longer than 1024 (2048 with the answer).
        if length < 4 or output < 4 or length > 1024 or length + output > 2048:
            continue
        prompts.append(Prompt(text, length, output))
    return _oversampled(prompts, arguments)


def _oversampled(prompts: list[Prompt], arguments: BenchArguments) -> list[Prompt]:
    if not prompts:
        raise DatasetError(f"{arguments.dataset_path} has no usable prompt")
    missing = arguments.num_prompts - len(prompts)
    if missing > 0 and not arguments.no_oversample:
        prompts += random.Random(arguments.seed).choices(prompts, k=missing)  # noqa: S311
    return prompts


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
