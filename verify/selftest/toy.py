"""A random-weight Llama with its tokenizer, small enough for hundreds of trials."""

from __future__ import annotations

from typing import Any

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 16


def toy_llama(*, seed: int = 0, attn: str = "sdpa", **config: Any) -> Any:
    """LlamaForCausalLM with 2 layers, hidden size 64, 4 query heads and 2 key heads, fp32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "vocab_size": 260,
        "hidden_size": HEADS * HEAD_DIM,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 258,
        "attn_implementation": attn,
    }
    return LlamaForCausalLM(LlamaConfig(**{**values, **config})).eval()


def toy_tokenizer(chat: bool = True) -> Any:
    """Byte-level tokenizer: one id a byte (0-255), then bos, eos and padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: index for index, character in enumerate(alphabet)}
    specials = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    vocab |= {token: len(vocab) + i for i, token in enumerate(specials.values())}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **specials)
    if chat:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
