"""A recorded attention core against FP64 on what it read: queries, keys, values and mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.bounds import Bound
from verify.dumps.format.materialise import Materialiser
from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError
from verify.formats import Format, decode, get_format
from verify.reference.certificates.result import Certificate, Check, Outcome, conclude
from verify.reference.layers.grid import round_to
from verify.replay.attention import DEVIATIONS, Storage, judge_rows, storage

Values = NDArray[np.float64]

_OUTPUT = "attn.out"
_READS = ("q", "k", "v", "mask")
_UNKNOWN = ("bias", "softcap", "dropout", "mask_heads")
_ELEMENTS = 1 << 24  # of [rows, keys, dim] held at a time


def is_attention(record: Record) -> bool:
    """Whether the record is the output of an attention core."""
    return record.tap == _OUTPUT or record.tap.endswith(f".{_OUTPUT}")


@dataclass(slots=True)
class _Tally:
    """Worst shares so far, and where."""

    bound: float = 0.0
    deviations: float = 0.0
    place: str = ""
    error: float = 0.0
    floor: float = 0.0
    size: float = 0.0
    rows: int = 0
    unfit: int = 0
    """Rows that read something that is not finite."""


def certify_core(dump: Dump, record: Record, rows: int | None = None) -> tuple[str, Certificate]:
    """The declared roundings in words, and the certificate of one recorded attention output.

    The bounds are those of :mod:`verify.replay.attention`. Rows that read anything that is not
    finite are left out and counted; where none is left, nothing is explained.

    Args:
        rows: judge only so many query rows of each head, spread evenly, the last ones among them;
            None: all.

    Raises:
        ArgumentError: an input was not recorded with its words, or the core does what the bounds
            do not cover (bias, softcap, dropout, a mask of its own for each head).
    """
    q, k, v, allowed = _operands(dump, record)
    fmt = get_format(record.dtype)
    implementation = str(record.attributes.get("implementation", "fused"))
    stored = storage(implementation, fmt)
    out = Materialiser(dump, record.rank).tensor(record)[0]
    output = decode(np.moveaxis(out, record.axes.split().index("t"), 1), record.dtype)
    output = output.reshape(q.shape[0], q.shape[2], q.shape[1], v.shape[-1])
    scale = record.attributes.get("scale")
    scale = float(scale) if isinstance(scale, int | float) else float(q.shape[-1] ** -0.5)
    tally = _Tally()
    for batch, head in np.ndindex(q.shape[0], q.shape[1]):
        shared = head // (q.shape[1] // k.shape[1])
        keys = (k[batch, shared], v[batch, shared], allowed[batch])
        _judge_head(
            tally,
            q[batch, head],
            keys,
            output[batch, :, head],
            scale,
            stored,
            head,
            fmt,
            rows,
        )
    return _declared(implementation, stored, scale), _conclude(tally)


def _operands(dump: Dump, record: Record) -> tuple[Values, Values, Values, NDArray[np.bool_]]:
    """q [b, h, t, d], k and v [b, kv_h, s, d], and which keys each row reads, [b, t, s]."""
    if found := [name for name in _UNKNOWN if record.attributes.get(name)]:
        raise ArgumentError(
            "the bounds of an attention core do not cover what this one does",
            where=record.tap,
            found=", ".join(found),
            hint="declare its arithmetic in Python: verify.reference.certificates.certify",
        )
    base = record.tap.removesuffix("out")
    same_step = [r for r in dump.records(record.rank) if r.step == record.step]
    reads = {
        name: next((r for r in same_step if r.key == (f"{base}in.{name}", record.occurrence)), None)
        for name in _READS
    }
    if missing := [name for name, found_record in reads.items() if found_record is None]:
        raise ArgumentError(
            "what the attention core read was not recorded",
            where=f"{record.tap}, step {record.step}",
            found=f"no {', '.join(f'{base}in.{name}' for name in missing)}",
            hint="capture with the default taps at level full",
        )
    maker = Materialiser(dump, record.rank)
    q, k, v, mask = (_heads_first(maker, reads[name]) for name in _READS)
    return q, k, v, _allowed(mask, k.shape[2])


def _heads_first(maker: Materialiser, record: Record | None) -> Any:
    """The tensor as [b, h, t or s, d]; a mask as [b, t, 3]."""
    assert record is not None
    words, _ = maker.tensor(record)
    axes = record.axes.split()
    tokens = next(axis for axis in ("s", "t") if axis in axes)
    order = [axes.index("b"), *(axes.index(x) for x in axes if x not in ("b", tokens))]
    order.insert(len(order) - 1, axes.index(tokens))
    return decode(words.transpose(order), record.dtype)


def _allowed(mask: NDArray[np.int64], keys: int) -> NDArray[np.bool_]:
    """Which keys a row reads, from first, last and count; rows of padding read none.

    Key slots are positions here, so a cache that begins with padding is refused.
    """
    first, last, count = (mask[..., i] for i in range(3))
    if ((count > 0) & (last - first + 1 != count)).any() or (last >= keys).any():
        raise ArgumentError(
            "the mask is not one run of key positions for each row",
            where="attn.in.mask",
            hint="certify a run without padding, or use `verify bisect --replay`",
        )
    slots = np.arange(keys)
    inside = (slots >= first[..., None]) & (slots <= last[..., None])
    return np.asarray(inside & (count[..., None] > 0))


def _judge_head(
    tally: _Tally,
    q: Values,
    keys: tuple[Values, Values, NDArray[np.bool_]],
    output: Values,
    scale: float,
    stored: Storage,
    head: int,
    fmt: Format,
    most: int | None,
) -> None:
    k, v, allowed = keys
    rows = _chosen(np.flatnonzero(allowed.any(axis=1)), most)
    fit = np.isfinite(q[rows]).all(axis=1) & _reads_finite(allowed[rows], k, v)
    tally.unfit += int((~fit).sum())
    rows = rows[fit]
    step = max(1, _ELEMENTS // max(v.size, 1))
    least = fmt.min_subnormal
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        found = judge_rows(q[some], k, v, allowed[some], scale, stored)
        with np.errstate(invalid="ignore"):
            error = np.abs(output[some] - found.exact)
        error = np.where(np.isfinite(error), error, np.inf)
        share = error / (found.bound + least)
        if share.max() > tally.bound:
            row, channel = np.unravel_index(int(share.argmax()), share.shape)
            tally.bound = float(share.max())
            tally.place = f"head {head}, row {int(some[row])} of the step, channel {int(channel)}"
        tally.deviations = max(tally.deviations, float((error / (found.deviation + least)).max()))
        tally.error += float(np.square(error).sum())
        tally.floor += float(np.square(round_to(found.exact, fmt.name) - found.exact).sum())
        tally.size += float(np.square(found.exact).sum())
        tally.rows += len(some)


def _chosen(rows: NDArray[np.int64], most: int | None) -> NDArray[np.int64]:
    if most is None or len(rows) <= most:
        return rows
    # The last rows of a call are those of its last, partial tile.
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64))]


def _reads_finite(allowed: NDArray[np.bool_], k: Values, v: Values) -> NDArray[np.bool_]:
    """[rows], whether all keys and values that a row may read are finite."""
    bad = np.asarray(~(np.isfinite(k).all(axis=1) & np.isfinite(v).all(axis=1)))
    return np.asarray(~(allowed & bad[None, :]).any(axis=1))


def _declared(implementation: str, stored: Storage, scale: float) -> str:
    return (
        f"attention {implementation!r}: scale {scale:.6g}, unit roundoffs {stored.score:.3g} of "
        f"stored scores, {stored.weight:.3g} of weights, {stored.output:.3g} of the output"
    )


def _conclude(tally: _Tally) -> Certificate:
    checks = [
        Check(
            name="rounding bound",
            statistic=tally.bound,
            limit=Bound(
                1.0, "share of what the declared roundings allow (verify.replay.attention)"
            ),
            passed=tally.bound <= 1.0,
            detail=tally.place,
        ),
        Check(
            name="deviations",
            statistic=tally.deviations,
            limit=Bound(DEVIATIONS, "standard deviations of independent roundings"),
            passed=tally.deviations <= DEVIATIONS or tally.rows == 0,
            if_broken=Outcome.SUSPECT,
        ),
    ]
    reasons = []
    if tally.unfit:
        reasons.append(f"{tally.unfit} rows read operands that are not finite: they are not judged")
        checks.append(
            Check(
                name="rows judged",
                statistic=0.0 if tally.rows else 1.0,
                limit=Bound(0.0, "at least one row has finite operands"),
                passed=tally.rows > 0,
                if_broken=Outcome.SUSPECT,
            )
        )
    relative = float(np.sqrt(tally.error / tally.size)) if tally.size else 0.0
    numbers = {"rows": float(tally.rows), "relative_l2": relative, "budget_used": tally.bound}
    # The floor: rounding the exact result, which no kernel with this output format avoids.
    numbers |= (
        {"error_over_floor": float(np.sqrt(tally.error / tally.floor))} if tally.floor else {}
    )
    numbers |= {"rows_not_finite": float(tally.unfit)} if tally.unfit else {}
    return conclude("attention", "FP32 sums in any order", checks, reasons=reasons, numbers=numbers)
