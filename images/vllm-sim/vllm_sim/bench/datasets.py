"""Where prompts come from: random words, a JSONL file, or a ShareGPT file."""

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path

from vllm_sim.tokens import VOCABULARY, count_tokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to be sent."""

    text: str
    prompt_tokens: int
    output_tokens: int


def load_prompts(options: argparse.Namespace) -> list[Prompt]:
    """The prompts of a run. Raises ValueError or OSError as the real one ends."""
    if options.dataset_name == "custom":
        return _custom(options)
    if options.dataset_name == "sharegpt":
        return _sharegpt(options)
    draw = random.Random(options.seed)  # noqa: S311 - the same prompts for the same seed
    length = options.input_len or options.random_input_len
    output = options.output_len or options.random_output_len
    texts = ("".join(draw.choice(VOCABULARY) for _ in range(length)).strip() for _ in range(options.num_prompts))
    return [Prompt(text, count_tokens(text), output) for text in texts]


def _custom(options: argparse.Namespace) -> list[Prompt]:
    if not options.dataset_path:
        raise ValueError("dataset_path must be provided for loading data.")
    rows = [json.loads(line) for line in Path(options.dataset_path).read_text(encoding="utf-8").splitlines() if line]
    if not rows or "prompt" not in rows[0]:
        raise ValueError("JSONL file must contain a 'prompt' column.")
    return _sized(options, [(row["prompt"], row.get("output_tokens")) for row in rows], options.custom_output_len)


def _sharegpt(options: argparse.Namespace) -> list[Prompt]:
    if not options.dataset_path:
        raise ValueError("dataset_path must be provided for loading data.")
    talks = [one["conversations"] for one in json.loads(Path(options.dataset_path).read_text(encoding="utf-8"))]
    pairs = [(talk[0]["value"], count_tokens(talk[1]["value"])) for talk in talks if len(talk) >= 2]
    return _sized(options, [(text, own) for text, own in pairs], options.sharegpt_output_len)


def _sized(options: argparse.Namespace, rows: list[tuple[str, int | None]], output: int | None) -> list[Prompt]:
    """As many as asked for: shuffled unless told not to, repeated when there are too few."""
    if not options.disable_shuffle:
        random.Random(options.seed).shuffle(rows)  # noqa: S311 - the same order for the same seed
    count = min(options.num_prompts, len(rows)) if options.no_oversample else options.num_prompts
    chosen = [rows[index % len(rows)] for index in range(count)]
    length = options.output_len or output
    return [Prompt(text, count_tokens(text), length or own or 256) for text, own in chosen]
