"""Recording llama.cpp on the tokens of an earlier run, tensor by tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from verify.dumps.format import open_dump
from verify.dumps.format.schema import Sequence
from verify.dumps.importers.observation import Imported, Observation, Source
from verify.dumps.importers.observation import Tensor as Words
from verify.dumps.importers.writing import write_run
from verify.dumps.llamacpp.tensors import Library, Tensor
from verify.errors import ModelError

_NAMED = re.compile(r"(?!node_|leaf_|cache_)[A-Za-z_]+(-\d+)?$")
"""Nodes to which llama.cpp gives a name of their own; views carry a suffix in brackets."""
_CACHE = re.compile(r"cache_")
_WEIGHT = re.compile(r".*\.(weight|bias)$")
_WRITES = frozenset({"SET_ROWS", "CPY"})
_LOGITS = "result_output"
_MOST_READ = 256
"""Inputs that are listed; a core that reads more of the cache has unknown ones."""
FLASH = {"auto": -1, "off": 0, "on": 1}


def record_llamacpp(
    model: Path,
    tape: Path,
    out: Path,
    *,
    threads: int = 1,
    flash: str = "off",
    tokens: int | None = None,
) -> int:
    """Run the GGUF file ``model`` on the token ids of the run at ``tape``, and write a dump; how many
    records it has. The prompt is one batch; then every generated token but the last is a step.

    Args:
        flash: flash attention, ``off``, ``on`` or ``auto``.
        tokens: of the generated ones, how many are computed; None: all of the tape.

    Raises:
        ModelError: llama-cpp-python is not installed or has another layout of tensors, or the model
            cannot be loaded.
        DumpError: there is no run at ``tape``, or it has several sequences.
    """
    return write_run(_Run(model, tape, threads, flash, tokens).imported(), out)


def _bindings() -> Any:
    try:
        from llama_cpp import llama_cpp
    except ImportError as error:
        raise ModelError(
            "llama-cpp-python is not installed",
            found=error,
            hint="pip install 'firstdiff[llamacpp]'",
        ) from None
    return llama_cpp


class _Run:
    def __init__(
        self, model: Path, tape: Path, threads: int, flash: str, tokens: int | None
    ) -> None:
        self.api = _bindings()
        self.library = Library(Path(self.api.__file__).parent / "lib")
        tracks = open_dump(tape).tokens()
        if len(tracks) != 1:
            raise ModelError(
                "llama.cpp is recorded on one sequence", where=tape, found=len(tracks), allowed=1
            )
        ((self.sequence, track),) = tracks.items()
        self.prompt, generated = list(track.prompt), list(track.generated)
        self.forced = generated if tokens is None else generated[:tokens]
        self.path, self.threads, self.flash = model, threads, flash
        self.found: list[Observation] = []
        self.at: dict[int, int] = {}
        self.cached: dict[str, dict[int, None]] = {}
        """Name of a cache -> the records that were written into it, in all steps."""
        self.step = 0
        self.positions = np.zeros(0, np.int64)
        self.fault: BaseException | None = None
        self.count = 0

    def imported(self) -> Imported:
        source = Source(
            format="llama.cpp",
            path=self.path,
            sequences=[Sequence(id=self.sequence, prompt=self.prompt, generated=self.forced)],
            model=self.path.stem,
            settings={
                "engine": "llama.cpp", "threads": self.threads, "flash_attention": self.flash,
                "kv_cache": "f16", "ggml": self.library.version,
                "system": self.api.llama_print_system_info().decode(),
            },
        )  # fmt: skip
        source.notes.append(
            "nodes are computed one by one, so operations that llama.cpp fuses are not"
        )
        return Imported(source, self._observations())

    def _observations(self) -> Iterator[Observation]:
        api = self.api
        api.llama_backend_init()
        model = api.llama_model_load_from_file(
            str(self.path).encode(), api.llama_model_default_params()
        )
        if not model:
            raise ModelError("llama.cpp cannot load the model", where=self.path)
        callback = api.ggml_backend_sched_eval_callback(self._called)
        context = api.llama_init_from_model(model, self._params(callback))
        if not context:
            raise ModelError("llama.cpp made no context", where=self.path)
        try:
            steps = [self.prompt, *([token] for token in self.forced[:-1])]
            start = 0
            for number, ids in enumerate(steps):
                self.step, self.found, self.at = number, [], {}
                self.positions = np.arange(start, start + len(ids))
                start += len(ids)
                yield self._tokens("tokens.in", ids, self.positions)
                self.count += 1
                self._decode(context, ids)
                yield from self.found
                yield self._tokens(
                    "tokens.out", [self._chosen(context, model)], self.positions[-1:]
                )
                self.count += 1
        finally:
            api.llama_free(context)
            api.llama_model_free(model)

    def _params(self, callback: Any) -> Any:
        params = self.api.llama_context_default_params()
        params.n_ctx = len(self.prompt) + len(self.forced) + 8
        params.n_batch = params.n_ubatch = max(32, len(self.prompt))
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = FLASH[self.flash]
        params.cb_eval = callback
        return params

    def _decode(self, context: Any, ids: list[int]) -> None:
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for row, token in enumerate(ids):
                batch.token[row], batch.pos[row] = token, int(self.positions[row])
                batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
                batch.logits[row] = 1  # else the last layer leaves out all rows but one
            code = self.api.llama_decode(context, batch)
        finally:
            self.api.llama_batch_free(batch)
        if self.fault is not None:
            raise self.fault
        if code:
            raise ModelError("llama.cpp could not decode", where=f"step {self.step}", found=code)

    def _chosen(self, context: Any, model: Any) -> int:
        """The id with the largest logit, the lowest among equal ones."""
        size = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(model))
        logits = np.ctypeslib.as_array(self.api.llama_get_logits_ith(context, -1), (size,))
        return int(np.argmax(logits))

    def _tokens(self, tap: str, ids: list[int], positions: np.ndarray) -> Observation:
        words = np.array(ids, np.int64).view(np.uint64)[None]
        return Observation(
            tap=tap, tensor=Words(words, "int64"), axes="b t", step=self.step, positions=positions,
            sequences=[self.sequence],
        )  # fmt: skip

    def _called(self, address: int, asked: bool, _: Any) -> bool:
        """llama.cpp asks which nodes are wanted, and hands each over when it is computed."""
        try:
            if asked:
                self._written(address)
                return bool(_NAMED.match(self.library.name(address)))
            self._take(self.library.tensor(address))
        except BaseException as error:  # noqa: BLE001 - must not cross the C frames in between
            self.fault = self.fault or error
            return False
        return True

    def _take(self, tensor: Tensor) -> None:
        if not tensor.plain:
            return
        axes = self._axes(tensor)
        if axes is None:
            return
        names, positions = axes
        words = self.library.read(tensor, len(names.split()))
        if tensor.name == _LOGITS:  # those that choose a token, as everywhere else
            words, positions = words[-1:], positions[-1:]
        inputs, weights = self._read(tensor)
        attributes: dict[str, Any] = {"operation": self.library.operation(tensor.address)}
        if weights:
            attributes["weights"] = weights
        observation = Observation(
            tap=tensor.name,
            tensor=Words(words, tensor.dtype),
            axes=names,
            step=self.step,
            positions=positions,
            sequences=[self.sequence] * len(positions),
            inputs=inputs,
            attributes=attributes,
        )
        self.at[tensor.address] = self.count
        self.count += 1
        self.found.append(observation)

    def _axes(self, tensor: Tensor) -> tuple[str, np.ndarray] | None:
        """Axes, and the positions of its tokens: all of the step, or the last, whose logits count."""
        heads, rows = tensor.shape[-3], tensor.shape[-2]
        for count, at in ((len(self.positions), self.positions), (1, self.positions[-1:])):
            if heads > 1 and heads == count:
                return "t h c", at
            if heads == 1 and rows == count:
                return "t c", at
        # The heads of a single token.
        return ("t h c", self.positions) if heads == len(self.positions) == 1 else None

    def _written(self, address: int) -> None:
        """Keep what a node writes into the cache; whoever reads it later has read that."""
        if self.library.operation(address) not in _WRITES:
            return
        tensor = self.library.tensor(address)
        for target in self._caches(address):
            inputs, _ = self._read(tensor, into=target)
            self.cached.setdefault(target, {}).update(dict.fromkeys(inputs or ()))

    def _caches(self, address: int) -> set[str]:
        """Names of the caches that a node is a view of."""
        root, name = address, self.library.name(address)
        while at := self.library.tensor(root).struct.view_src:
            root, name = int(at), self.library.name(int(at))
        return {name} if _CACHE.match(name) else set()

    def _read(self, tensor: Tensor, into: str = "") -> tuple[list[int] | None, list[str]]:
        """The nearest recorded tensors, and the weights on the way; None where there are none, or
        more than are listed.

        Args:
            into: the cache that the node writes, and does not read.
        """
        found: dict[int, None] = {}
        weights: dict[str, None] = {}
        waiting = tensor.sources
        seen: set[int] = set()
        while waiting:
            address = waiting.pop()
            if address in seen:
                continue
            seen.add(address)
            name = self.library.name(address)
            if address in self.at:
                found[self.at[address]] = None
            elif caches := self._caches(address):
                for cache in caches - {into}:
                    found.update(self.cached.get(cache, {}))
            elif _WEIGHT.match(name):
                weights[name] = None
            else:
                waiting += self.library.tensor(address).sources
        known = 0 < len(found) <= _MOST_READ
        return sorted(found) if known else None, sorted(weights)
