"""Small GGUF files of architecture llama, in any block format, sound or with a fault planted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LAYERS, HIDDEN, HEADS, SHARED, DIM, VOCAB = 2, 256, 4, 2, 64, 64
# Bytes a block, elements a block, and where its float16 scales stand.
_LAYOUT = {
    "Q8_0": (34, 32, (0,)), "Q4_0": (18, 32, (0,)), "Q4_1": (20, 32, (0, 2)),
    "Q5_1": (24, 32, (0, 2)), "Q2_K": (84, 256, (80, 82)), "Q3_K": (110, 256, (108,)),
    "Q4_K": (144, 256, (0, 2)), "Q5_K": (176, 256, (0, 2)), "Q6_K": (210, 256, (208,)),
}  # fmt: skip


@dataclass
class Toy:
    """What a file holds; change it, then write it."""

    kind: str = "Q8_0"
    eps: float = 1e-5
    theta: float = 10000.0
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(7)
        self.tensors["token_embd.weight"] = self._blocks(rng, VOCAB, HIDDEN)
        self.tensors["output_norm.weight"] = self._norm(rng)
        for n in range(LAYERS):
            for name, rows in (
                ("attn_q", HEADS * DIM), ("attn_k", SHARED * DIM), ("attn_v", SHARED * DIM),
                ("attn_output", HIDDEN), ("ffn_gate", HIDDEN), ("ffn_up", HIDDEN),
                ("ffn_down", HIDDEN),
            ):  # fmt: skip
                self.tensors[f"blk.{n}.{name}.weight"] = self._blocks(rng, rows, HIDDEN)
            for name in ("attn_norm", "ffn_norm"):
                self.tensors[f"blk.{n}.{name}.weight"] = self._norm(rng)

    def _norm(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32)

    def _blocks(self, rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
        """Any bytes are a block; only its scales have to be of a size that a network survives."""
        size, elements, scales = _LAYOUT[self.kind]
        blocks = rng.integers(0, 256, (rows, columns // elements, size), np.uint8)
        codes = {"Q8_0": 74, "Q4_0": 5, "Q4_1": 8, "Q5_1": 16}.get(self.kind, 200)
        for at in scales:
            value = rng.uniform(0.5, 1.0, blocks.shape[:2]) / (codes * np.sqrt(columns))
            blocks[..., at : at + 2] = value.astype(np.float16)[..., None].view(np.uint8)
        return blocks.reshape(rows, -1)

    def write(self, path: Path) -> Path:
        from gguf import GGMLQuantizationType, GGUFWriter

        writer = GGUFWriter(path, "llama")
        writer.add_block_count(LAYERS)
        writer.add_context_length(64)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(HIDDEN)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(SHARED)
        writer.add_rope_dimension_count(DIM)
        writer.add_rope_freq_base(self.theta)
        writer.add_layer_norm_rms_eps(self.eps)
        writer.add_vocab_size(VOCAB)
        writer.add_tokenizer_model("none")
        for name, data in self.tensors.items():
            quantised = data.dtype == np.uint8
            kind = GGMLQuantizationType[self.kind] if quantised else None
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path
