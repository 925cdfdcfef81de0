"""Launching the fingerprint kernels: one tensor at once, or many from a table of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from verify.gpu.arch import device_arch
from verify.gpu.fingerprint.layout import JOB_WORDS, Geometry
from verify.gpu.fingerprint.tables import code_values, tables
from verify.gpu.launch import LoadedKernel, load_kernel

_DATA, _OUTPUTS, _HEADER, _TAG, _CODES, _FIRST_BLOCK = 0, slice(1, 5), 5, 6, 29, 30
_LANES, _FIRST_LANE = 8, 10
_BEYOND = 64  # lanes that a last unit may look past the end of a row
_ONE_FIELDS = (7, 8, 10, 11, *range(13, 17), 31, *range(17, 29))  # arguments after data


@dataclass(frozen=True, slots=True)
class Ring:
    """Where results go: slot ``counter % slots`` of ``slots * step_bytes`` bytes at ``base``, and
    slot 0 without a counter. Addresses on the device."""

    base: int
    counter: int = 0
    slots: int = 1
    step_bytes: int = 0

    def arguments(self) -> tuple[int, int, int, int]:
        return self.base, self.counter, self.slots, self.step_bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One tensor of a launch. Offsets in bytes from the start of a step; 0: not wanted.

    ``header``: offset of two words for the step's stamp and ``tag``; -1: none.
    """

    tensor: Tensor
    geometry: Geometry
    digests: int
    sketches: int = 0
    statistics: int = 0
    words: int = 0
    header: int = -1
    tag: int = 0

    @property
    def summarised(self) -> bool:
        return bool(self.sketches or self.statistics)

    def line(self) -> list[int]:
        """The words of ``struct Job``."""
        line = list(self.geometry.line)
        line[_DATA] = self.tensor.data_ptr()
        line[_OUTPUTS] = self.digests, self.sketches, self.statistics, self.words
        line[_HEADER], line[_TAG] = self.header, self.tag
        if self.geometry.build == "Bytes" and self.summarised:
            line[_CODES] = code_values(self.geometry.dtype, str(self.tensor.device)).data_ptr()
        return line


def digest_kernel(device: torch.device) -> LoadedKernel:
    index = torch.cuda.current_device() if device.index is None else device.index
    return load_kernel("fingerprint", device_arch(index), index)


def summary_kernel(device: torch.device, build: str) -> LoadedKernel:
    index = torch.cuda.current_device() if device.index is None else device.index
    return load_kernel("fingerprint_full", device_arch(index), index, (("KIND", build),))


def launch_digest(job: Job, base: int) -> LoadedKernel:
    """Digests of one tensor to ``base``, from scalar arguments: capturable, nothing is allocated."""
    kernel = digest_kernel(job.tensor.device)
    weights, _, fragments, units = _constants([job])
    line = job.line()
    arguments = (line[_DATA], *(line[place] for place in _ONE_FIELDS))
    grid = (job.geometry.blocks, 1, 1)
    kernel.launch("fingerprint_one", grid, base, weights, fragments, units, *arguments)
    return kernel


def _constants(jobs: Sequence[Job]) -> tuple[int, int, int, int]:
    """Weights, plan, fragments and their size in units, for lanes up to the last of all jobs;
    weights of an odd first lane are computed."""
    lines = [job.geometry.line for job in jobs]
    if any(
        line[_FIRST_LANE] % 8 and not job.summarised for line, job in zip(lines, jobs, strict=True)
    ):
        return 0, 0, 0, 0
    last = max(line[_FIRST_LANE] + line[_LANES] for line in lines) + _BEYOND
    found = tables(jobs[0].tensor.device, last)
    fragments = found.fragments.data_ptr()
    return found.weights.data_ptr(), found.plan.data_ptr(), fragments, found.lanes // 8


def table_words(jobs: Sequence[Job]) -> np.ndarray:
    """The table of a launch, int64: a line a job, then the owner of each block as int32."""
    blocks = [job.geometry.blocks for job in jobs]
    lines = np.array([job.line() for job in jobs], np.int64).reshape(-1, JOB_WORDS)
    lines[:, _FIRST_BLOCK] = np.cumsum([0, *blocks[:-1]])
    owners = np.repeat(np.arange(len(jobs), dtype=np.int32), blocks)
    owners = np.concatenate([owners, np.zeros(len(owners) % 2, np.int32)])
    return np.concatenate([lines.reshape(-1), owners.view(np.int64)])


def launch_table(table: int, jobs: Sequence[Job], ring: Ring, build: str | None) -> LoadedKernel:
    """Many tensors in one launch.

    Args:
        table: address of ``table_words`` in memory that the device reads; it must stay there until
            the launch, and every replay of it, is over.
        build: KIND of fingerprint_full, which all jobs must share; None: digests alone.
    """
    device = jobs[0].tensor.device
    kernel = digest_kernel(device) if build is None else summary_kernel(device, build)
    blocks = sum(job.geometry.blocks for job in jobs)
    owners = table + 8 * JOB_WORDS * len(jobs)
    entry = "fingerprint_many" if build is None else "fingerprint_full"
    kernel.launch(
        entry, (blocks, 1, 1), *ring.arguments(), *_constants(jobs), table, owners
    )  # fmt: skip
    return kernel


def advance(device: torch.device, counter: int) -> None:
    """End the step of a ring: what follows goes into the next slot."""
    digest_kernel(device).launch("fingerprint_advance", (1, 1, 1), counter)
