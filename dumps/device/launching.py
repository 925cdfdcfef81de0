"""From placed tensors to as few launches of the fingerprint kernels as their dtypes allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from verify.dumps.device.layout import Region
from verify.errors import ArgumentError
from verify.gpu.fingerprint.face import readable
from verify.gpu.fingerprint.jobs import Job, Ring, launch_table, table_words

if TYPE_CHECKING:
    from verify.dumps.device.buffers import TapBuffers


def launch_regions(placed: list[tuple[Tensor, Region]], ring: Ring, buffers: TapBuffers) -> None:
    """One launch for all digests, and one a dtype for those with sketch and statistics.

    Raises ArgumentError for rows that no kernel summarises (too long, or float8_e8m0fnu).
    """
    groups: dict[str | None, list[Job]] = {}
    for tensor, region in placed:
        job = _job(tensor, region)
        build = job.geometry.build if job.summarised else None
        groups.setdefault(build, []).append(job)
    for build, jobs in groups.items():
        table = buffers.table(table_words(jobs))
        launch_table(table.data_ptr(), jobs, ring, build)


def _job(tensor: Tensor, region: Region) -> Job:
    seen = region.observed
    found = readable(tensor, seen.row_axes, seen.dtype, seen.keep == "summary")
    if found is None:
        raise ArgumentError(
            "no kernel summarises rows of this kind",
            where=f"tap {seen.tap}",
            found=f"{seen.dtype} rows of {seen.row_length} elements",
            hint="keep digests alone of this tap",
        )
    return Job(
        tensor=found[0],
        geometry=found[1],
        digests=region.digests,
        sketches=region.sketches,
        statistics=region.statistics,
        words=region.words,
        header=region.header,
        tag=region.number,
    )
