"""Configurations that the engine refuses: exit code and last lines as recorded from vLLM 0.32."""

import contextlib
import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from vllm_sim.serve import serve

from tests.vllm_sim.launch import MODEL, command, environment, recorded

CASES: dict[str, str] = {
    "unknown-key": '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4,"num_spec_tokens_typo":3}',
    "method-unknown": '{"method":"nosuch","num_speculative_tokens":3}',
    "tokens-0": '{"method":"ngram","num_speculative_tokens":0,"prompt_lookup_max":4}',
    "tokens-missing": '{"method":"draft_model","model":"DRAFT"}',
    "medusa-no-model": '{"method":"medusa","num_speculative_tokens":3}',
    "missing-draft-dir": '{"method":"draft_model","model":"./models/no-such-dir","num_speculative_tokens":3}',
    "vocab-mismatch": '{"method":"draft_model","model":"DRAFT-640","num_speculative_tokens":3}',
    "not-json": "{method: ngram",
}


def _model(folder: Path, vocabulary: int) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llama", "vocab_size": vocabulary, "max_position_embeddings": 4096})
    )
    return str(folder)


def _serve(*words: str, profile: dict[str, object] | None = None) -> "subprocess.CompletedProcess[str]":
    """`vllm serve` in a process of its own."""
    return subprocess.run(
        [*command(), "serve", *words],
        env=environment(profile),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _refused(*words: str, profile: dict[str, object] | None = None) -> tuple[int, str]:
    """Exit code and standard error of the simulated `vllm serve` in this process: quicker, and it never serves."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = serve(words, environment(profile))
    return code, said.getvalue()


def _normal(text: str) -> str:
    """Addresses and abbreviated reprs differ from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "0xADDRESS", text)
    return text.replace("'./models/no-such-dir'", "'models/no-such-dir'")


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_refusal_is_the_recorded_one(case: str, tmp_path: Path, simulated_only: None) -> None:
    target = _model(tmp_path / "target", 512)
    config = CASES[case].replace("DRAFT-640", _model(tmp_path / "other", 640))
    config = config.replace("DRAFT", _model(tmp_path / "draft", 512))
    done = _serve(target, "--speculative-config", config)
    code, _, lines = recorded(f"bad/{case}.txt").partition("\n")
    assert f"exit code {done.returncode}" == code
    assert _normal(done.stderr).rstrip().endswith(_normal(lines).rstrip())


def test_an_unknown_flag_ends_with_2() -> None:
    done = _serve(MODEL, "--no-such-flag", "1")
    assert done.returncode == 2
    assert done.stderr.rstrip().splitlines()[-1].startswith("vllm: error: unrecognized arguments: --no-such-flag")


def test_every_flag_of_the_operator_is_known(simulated_only: None) -> None:
    flags = [
        "--host",
        "0.0.0.0",
        "--revision",
        "abc",
        "--tokenizer",
        "t",
        "--tokenizer-revision",
        "r",
        "--quantization",
        "fp8",
        "--dtype",
        "bfloat16",
        "--max-model-len",
        "4096",
        "--max-num-seqs",
        "64",
        "--max-num-batched-tokens",
        "4096",
        "--gpu-memory-utilization",
        "0.9",
        "-tp",
        "2",
        "--pipeline-parallel-size",
        "1",
        "--data-parallel-size",
        "1",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--seed",
        "1",
        "--fingerprint-mode",
        "custom",
        "--fingerprint-value",
        "x",
        "--shutdown-timeout",
        "30",
        "--load-format",
        "dummy",
        "--trust-remote-code",
        "--download-dir",
        "/tmp",
        "--kv-cache-dtype",
        "fp8",
        "--block-size",
        "32",
        "--no-async-scheduling",
        "--enable-chunked-prefill",
        "--per-request-spec-decode-metrics",
        "summary",
        "--api_key",
        "k",
        "--spec-method",
        "ngram",
        "--spec-tokens",
        "0",
    ]
    # Everything is accepted but the last one, which is refused by the configuration (1), not by the parser (2).
    code, said = _refused(MODEL, *flags)
    assert code == 1, said
    assert "Input should be greater than 0" in said


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2},
            "must be <=",
        ),
        ({"method": "mlp_speculator", "model": "a/b", "num_speculative_tokens": 3}, "MLPSpeculatorPreTrainedModel"),
        ({"method": "eagle", "model": "a/b", "num_speculative_tokens": 3, "tensor_parallel_size": 2}, "draft_tensor"),
        ({"method": "ngram", "num_speculative_tokens": 3, "disable_by_batch_size": 8}, "Unexpected keyword argument"),
        (
            {"method": "ngram", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[2, 4, 3]]},
            "must start with batch size 1",
        ),
    ],
)
def test_other_rules_of_the_engine_hold(config: dict[str, object], words: str, simulated_only: None) -> None:
    code, said = _refused(MODEL, "--speculative-config", json.dumps(config))
    assert code == 1
    assert words in said


def test_suffix_needs_its_package(simulated_only: None) -> None:
    code, said = _refused(MODEL, "--speculative-config", '{"method":"suffix"}', profile={"installed": []})
    assert code == 1
    assert "ImportError: Arctic Inference is required" in said


def test_a_profile_with_an_unknown_field_names_it(simulated_only: None) -> None:
    code, said = _refused(MODEL, profile={"proposers": {"eagle3": {"acceptence": [0.5]}}})
    assert code == 2
    assert "profile.proposers.eagle3.acceptence" in said


def test_version_is_printed() -> None:
    done = subprocess.run([*command(), "--version"], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", done.stdout.strip().splitlines()[-1])
