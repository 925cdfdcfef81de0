"""Runs of a small decoder in numpy, recorded as a capture records a real one.

Every row is computed on its own in float32, so chunking and batching change no bit: what differs
between two toy runs is what the test planted. A fault is a function from the true rows of a tap to
the wrong ones, and what comes after is computed from the wrong ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.synthetic_dumps import SyntheticRun, Weight
from verify.dumps.format import Dump, open_dump
from verify.formats import decode, encode

HEADS, HEAD_DIM, VOCAB = 2, 8, 24
WIDTH = HEADS * HEAD_DIM

Fault = Callable[[np.ndarray, Sequence[tuple[str, int]]], np.ndarray]
"""(rows [n, width], their (sequence, position)) -> rows."""

Misrecorded = Callable[[np.ndarray, dict[str, np.ndarray]], np.ndarray]
"""(true rows, true rows of the taps before it in the step) -> recorded rows."""


@dataclass
class Toy:
    """A workload: what runs, how it is cut into steps, and what goes wrong."""

    sequences: dict[str, list[int]]
    tokens: int = 3
    layers: int = 2
    chunk: int | None = None
    dtype: str = "float32"
    kv_cast: str | None = None
    faults: dict[str, Fault] = field(default_factory=dict)
    misrecorded: dict[str, Misrecorded] = field(default_factory=dict)
    """What the dump holds in place of a tap's true rows, which the run goes on with."""
    forced: dict[str, list[int]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    weights_seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of SyntheticRun."""
    inputs_known: bool = True
    complete: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


def record(path: Path, toy: Toy) -> Dump:
    """Run the toy and open what it recorded."""
    _Runner(path, toy).run()
    return open_dump(path)


class _Runner:
    def __init__(self, path: Path, toy: Toy) -> None:
        self.toy = toy
        names = {"embed.weight": f"e{toy.weights_seed}"}
        for layer in range(toy.layers):
            names |= {f"layers.{layer}.{w}.weight": f"{w}{toy.weights_seed}" for w in "qkvom"}
        self.run_ = SyntheticRun(
            path,
            toy.sequences,
            settings={"dtype": toy.dtype, **toy.settings},
            weights={**names, **toy.extra.get("weights", {})},
            config={"num_hidden_layers": toy.layers, "hidden_size": WIDTH},
            **toy.options,
        )
        draw = np.random.default_rng(7)
        self.w = {
            name: (draw.standard_normal((WIDTH, WIDTH)) / 4).astype(np.float32)
            for name in [f"{layer}{kind}" for layer in range(toy.layers) for kind in "qkvom"]
        }
        self.embed = draw.standard_normal((VOCAB, WIDTH)).astype(np.float32)
        self.head = draw.standard_normal((WIDTH, VOCAB)).astype(np.float32)
        self.seen: dict[str, np.ndarray] = {}
        self.keys: dict[tuple[int, str], dict[str, np.ndarray]] = {}
        self.reads: dict[str, int] = {}
        """Last record of each key tap: the cache that the next one is made from."""

    def run(self) -> None:
        toy = self.toy
        ids = {name: list(prompt) for name, prompt in toy.sequences.items()}
        generated: dict[str, list[int]] = {name: [] for name in ids}
        longest = max(len(prompt) for prompt in ids.values())
        chunk = toy.chunk or longest
        done = 0
        for number in range(toy.tokens):
            stop = longest + number
            while done < stop:
                end = min(done + chunk, stop)
                rows = [(n, p) for n in ids for p in range(done, min(end, len(ids[n])))]
                chosen = self._step(rows, ids, choose=end == stop)
                done = end
            for name, token in chosen.items():
                generated[name].append(token)
                forced = (toy.forced or {}).get(name)
                ids[name].append(forced[number] if forced else token)
        if toy.complete:
            self.run_.close(generated)

    def _step(
        self, rows: list[tuple[str, int]], ids: dict[str, list[int]], choose: bool
    ) -> dict[str, int]:
        self.seen.clear()
        with self.run_.step():
            tokens = [[ids[n][p]] for n, p in rows]
            at = self.run_.add("tokens.in", tokens, "b t", rows=rows, dtype="int64")
            x = self.embed[[t[0] for t in tokens]]
            x, at = self._tap(
                "embed.out", x, rows, [at, Weight("embed.weight")], ["aten.embedding"]
            )
            for layer in range(self.toy.layers):
                x, at = self._layer(layer, x, at, rows)
            if not choose:
                return {}
            last = {name: i for i, (name, _) in enumerate(rows)}
            picked = [rows[i] for i in last.values()]
            logits = _rowwise(x[list(last.values())], self.head)
            logits, at = self._tap(
                "logits", logits, picked, [at, Weight("embed.weight")], ["aten.mm"]
            )
            best = np.argmax(logits, axis=1)
            best = self.toy.faults.get("tokens.out", lambda v, _: v)(best[:, None], picked)[:, 0]
            self.run_.add(
                "tokens.out", best[:, None], "b t", rows=picked, dtype="int64", inputs=[at]
            )
        return {name: int(t) for (name, _), t in zip(picked, best, strict=True)}

    def _layer(
        self, layer: int, x: np.ndarray, at: int, rows: list[tuple[str, int]]
    ) -> tuple[np.ndarray, int]:
        name = f"layers.{layer}"
        parts = {}
        for kind in "qkv":
            parts[kind] = self._tap(
                f"{name}.{kind}_proj.out",
                _rowwise(x, self.w[f"{layer}{kind}"]),
                rows,
                [at, Weight(f"{name}.{kind}.weight")],
                ["aten.mm"],
            )
        q, q_at = self._tap(
            f"{name}.attn.in.q", parts["q"][0], rows, [parts["q"][1]], [], "b h t d"
        )
        sources = [q_at]
        for kind in "kv":
            values, source = parts[kind]
            before, source = self._tap(
                f"{name}.cache.in.{kind}", values, rows, [source], [], "b h s d"
            )
            if self.toy.kv_cast:
                cast = encode(before.astype(np.float64), self.toy.kv_cast, saturate=True)
                before = decode(cast, self.toy.kv_cast).astype(np.float32)
            tap = f"{name}.attn.in.{kind}"
            cache = [self.reads[tap]] if tap in self.reads else []
            read, source = self._tap(tap, before, rows, [source, *cache], ["aten.cat"], "b h s d")
            self.reads[tap] = source
            sources.append(source)
            for (sequence, _), row in zip(rows, read, strict=True):
                kept = self.keys.setdefault((layer, sequence), {})
                kept[kind] = np.vstack([kept[kind], row]) if kind in kept else row[None]
        out = np.stack([self._attend(layer, s, p, q[i]) for i, (s, p) in enumerate(rows)])
        out, source = self._tap(
            f"{name}.attn.out", out, rows, sources, ["aten.attention"], "b t h d"
        )
        o = _rowwise(out, self.w[f"{layer}o"])
        o, source = self._tap(
            f"{name}.o_proj.out", o, rows, [source, Weight(f"{name}.o.weight")], ["aten.mm"]
        )
        h = x + o
        m = np.tanh(_rowwise(h, self.w[f"{layer}m"]))
        m, m_at = self._tap(
            f"{name}.mlp.out",
            m,
            rows,
            [at, source, Weight(f"{name}.m.weight")],
            ["aten.mm", "aten.tanh"],
        )
        return self._tap(f"{name}.out", h + m, rows, [at, source, m_at], ["aten.add"])

    @np.errstate(all="ignore")  # planted infinities run through here
    def _attend(self, layer: int, sequence: str, position: int, q: np.ndarray) -> np.ndarray:
        kept = self.keys[layer, sequence]
        k, v = (kept[kind][: position + 1].reshape(-1, HEADS, HEAD_DIM) for kind in "kv")
        scores = (k * q.reshape(HEADS, HEAD_DIM)).sum(axis=2) / np.float32(HEAD_DIM**0.5)
        weights = np.exp(scores - scores.max(axis=0))
        weights = weights / weights.sum(axis=0)
        return (weights[:, :, None] * v).sum(axis=0).reshape(-1).astype(np.float32)

    def _tap(
        self,
        tap: str,
        values: np.ndarray,
        rows: list[tuple[str, int]],
        inputs: list[Any],
        ops: list[str],
        axes: str = "b t d",
    ) -> tuple[np.ndarray, int]:
        """Round to the run's dtype, apply the fault, record; gives what the next op reads."""
        words = encode(values.astype(np.float64), self.toy.dtype)
        values = decode(words, self.toy.dtype).astype(np.float32)
        if tap in self.toy.faults:
            with np.errstate(all="ignore"):
                values = self.toy.faults[tap](values.copy(), rows)
                words = encode(values.astype(np.float64), self.toy.dtype)
                values = decode(words, self.toy.dtype).astype(np.float32)
        self.seen[tap] = values
        if tap in self.toy.misrecorded:
            recorded = self.toy.misrecorded[tap](values.copy(), self.seen)
            words = encode(recorded.astype(np.float64), self.toy.dtype)
        shape = None
        if axes in ("b h t d", "b h s d"):
            shape = [1, HEADS, len(rows), HEAD_DIM]
        elif axes == "b t h d":
            shape = [1, len(rows), HEADS, HEAD_DIM]
        attributes = (
            {"scale": HEAD_DIM**-0.5, "is_causal": True} if tap.endswith("attn.out") else {}
        )
        seq = self.run_.add(
            tap,
            words,
            axes,
            rows=rows,
            dtype=self.toy.dtype,
            inputs=inputs if self.toy.inputs_known else [],
            ops=ops,
            shape=shape,
            attributes=attributes,
            carried=self._carried(tap, rows),
        )
        return values, seq

    def _carried(self, tap: str, rows: list[tuple[str, int]]) -> int:
        """Key rows of earlier steps that a reader of the tap sees as well."""
        if ".attn.in." not in tap or tap.endswith("q"):
            return 0
        return sum(min(p for n, p in rows if n == name) for name in {n for n, _ in rows})


def _rowwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x @ w row by row, in an order that does not depend on the other rows."""
    with np.errstate(all="ignore"):
        return (x[:, :, None] * w[None]).sum(axis=1, dtype=np.float32)
