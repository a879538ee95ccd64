"""Writes tiny models for the engine tests: a target, drafts and heads. Runs in the engine's environment (torch).

target and draft share weights and tokenizer, so that drafts are accepted; draft-vocab has another vocabulary; the heads
have no weights (they are loaded as `dummy`): what is tested is that they start and answer, not that they are accepted.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, HIDDEN, LAYERS, HEADS, POSITIONS = 512, 256, 8, 4, 2048
CORPUS = ("the operator compares both arms and keeps the one that the evidence favours . " * 40).split(" . ")
CHAT = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def config(vocabulary: int = VOCABULARY, layers: int = LAYERS, positions: int = POSITIONS) -> LlamaConfig:
    """A small Llama."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=positions,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        torch_dtype="float32",
        initializer_range=0.08,
    )


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer in which every number decodes."""
    own = Tokenizer(models.BPE(unk_token=None))
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=1,
        show_progress=False,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=alphabet,
    )
    own.train_from_iterator(CORPUS, trainer)
    own.add_tokens([f"<x{number}>" for number in range(vocabulary - own.get_vocab_size())])
    return PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=CHAT
    )


def save(folder: Path, model: LlamaForCausalLM, words: PreTrainedTokenizerFast) -> None:
    """Weights, configuration and tokenizer."""
    model.generation_config = GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=2)
    model.save_pretrained(folder, safe_serialization=True)
    words.save_pretrained(folder)


def head(folder: Path, **fields: Any) -> None:
    """A configuration without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config(layers=1).to_dict(), **fields}, default=str, indent=1))


def main(folder: Path) -> None:
    """Writes everything below the folder."""
    torch.set_num_threads(1)
    words = tokenizer(VOCABULARY)
    torch.manual_seed(0)
    target = LlamaForCausalLM(config()).float()
    save(folder / "target", target, words)
    save(folder / "draft", target, words)
    torch.manual_seed(1)
    save(folder / "draft-vocab", LlamaForCausalLM(config(640, 1)).float(), tokenizer(640))
    save(folder / "eagle3-named-draft", target, words)
    head(folder / "eagle", architectures=["LlamaForCausalLM"])
    three = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": VOCABULARY}
    head(folder / "eagle3", **three)
    head(folder / "eagle3-layers", **three, eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    medusa = {"model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": 3, "num_hidden_layers": 1}
    head(folder / "medusa", **medusa, truncated_vocab_size=VOCABULARY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
