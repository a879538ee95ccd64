"""Writes a deep target with which drafting really wins on a CPU, and drafts of known quality. Runs in the engine's
environment (torch).

    python -m e2e.engine.make_deep_models FOLDER

The layers of the target after the first write little to the residual stream (their output projections are scaled by
EPSILON), so that its first layer alone, with the same embedding and head, mostly agrees with it and costs a fraction.
`draft` is that layer. `draft-worn` and `draft-lost` are the same with noise on their weights: they agree less and less,
as after changes of the target that the draft has not followed. `draft-never` has other weights and never agrees.

`target-repeats` is as deep, but its answers go round in circles of CIRCLE tokens, as code and tables half do: there is
something for an n-gram proposer to find. (Answers of random weights repeat nothing: it drafts next to nothing.)
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from e2e.engine.make_models import VOCABULARY, save, tokenizer

LAYERS, HIDDEN, HEAD, POSITIONS = 8, 384, 64, 4096
"""Deeper than its draft of one layer, and no more than it takes: a token takes 19 ms, half of it with the draft. (With
24 layers and on slower cores 60 ms, and with twice the width 120: minutes of every benchmark.)"""
EPSILON = 0.008
CIRCLE = 8
NOISE = {"draft": 0.0, "draft-worn": 0.0225, "draft-lost": 0.2}
"""Standard deviation of the noise on each tensor, relative to that of the tensor. Greedy, on 8 prompts of the built-in
set, the next token agrees in 0.98, 0.82 and 0.11 of the steps."""


def config(layers: int) -> LlamaConfig:
    """A Llama of 14 million weights with LAYERS layers (55 MB), of 2 million with one."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=HIDDEN // HEAD,
        num_key_value_heads=HIDDEN // HEAD // 2,
        head_dim=HEAD,
        max_position_embeddings=POSITIONS,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        torch_dtype="float32",
        initializer_range=0.08,
    )


def target_model() -> LlamaForCausalLM:
    """The deep one; its weights are the same each time."""
    torch.manual_seed(0)
    made = LlamaForCausalLM(config(LAYERS)).float()
    soften(made.model.layers[1:], EPSILON)
    return made


def soften(layers: Iterable[torch.nn.Module], factor: float) -> None:
    """Let layers write that much less to the residual stream."""
    with torch.no_grad():
        for layer in layers:
            layer.self_attn.o_proj.weight.mul_(factor)
            layer.mlp.down_proj.weight.mul_(factor)


def repeating_model() -> LlamaForCausalLM:
    """As deep as the target, but every token decides the next one: no layer adds much, and the head of a token is the
    embedding of the one before it in its circle."""
    torch.manual_seed(3)
    made = LlamaForCausalLM(config(LAYERS)).float()
    soften(made.model.layers, EPSILON / 4)
    with torch.no_grad():
        before = torch.arange(VOCABULARY).view(-1, CIRCLE).roll(1, dims=1).flatten()
        made.lm_head.weight.copy_(made.model.embed_tokens.weight[before])
    return made


def draft_model(target: LlamaForCausalLM, noise: float = 0.0) -> LlamaForCausalLM:
    """The target's first layer, embedding and head, with noise on every tensor."""
    chance = torch.Generator().manual_seed(1)
    kept = {name: one for name, one in target.state_dict().items() if ".layers." not in name or ".layers.0." in name}
    made = LlamaForCausalLM(config(1)).float()
    noisy = {
        name: one + noise * one.std() * torch.randn(one.shape, generator=chance) if noise else one
        for name, one in kept.items()
    }
    made.load_state_dict(noisy)
    return made


def main() -> None:
    """Write everything below the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    torch.set_num_threads(1)
    words = tokenizer(VOCABULARY)
    target = target_model()
    save(folder / "target", target, words)
    for name, noise in NOISE.items():
        save(folder / name, draft_model(target, noise), words)
    save(folder / "target-repeats", repeating_model(), words)
    torch.manual_seed(2)
    save(folder / "draft-never", LlamaForCausalLM(config(1)).float(), words)
    # The benchmark's driver runs as another user.
    for file in folder.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)


if __name__ == "__main__":
    main()
