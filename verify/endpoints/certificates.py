"""Ready certificates for ``Endpoint(certificate=...)``: does the declared rounding explain it?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from verify.bounds import Bound
from verify.endpoints.spec import Inputs
from verify.errors import ArgumentError
from verify.reference.attention.inputs import AttentionInputs, Row
from verify.reference.certificates.result import Certificate, Check, conclude
from verify.reference.replay.arithmetic import Arithmetic

Outputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Judgement:
    """A certificate, and how many of how many rows it judged; None for every row."""

    certificate: Certificate
    rows: int | None = None
    total: int | None = None


Judge = Callable[[Outputs, Inputs], Judgement]


def attention(
    arithmetic: Arithmetic,
    *,
    q: str = "q",
    k: str = "k",
    v: str = "v",
    output: str = "",
    rows: int | None = None,
    seed: int = 0,
    **constants: Any,
) -> Judge:
    """Certificate of an attention output by ``verify.reference.certificates.attention``.

    Args:
        arithmetic: what the kernel declares about its own rounding.
        q, k, v: names of the inputs, [batch, tokens, heads, dim]; ``output``: of the output.
        rows: judge so many (batch, token, head) rows, drawn by ``seed``; all of them if None. Only
            all of them can explain a difference of two endpoints.
        constants: of ``AttentionInputs``: scale, causal, window and so on.
    """

    def judge(found: Outputs, inputs: Inputs) -> Judgement:
        from verify.reference.certificates.attention import certify_attention

        given = [inputs[name].detach().cpu() for name in (q, k, v)]
        problem = AttentionInputs(*given, **constants)
        actual = found[output]
        chosen = _draw(tuple(actual.shape[:3]), rows, seed)
        certificate = certify_attention(actual, problem, arithmetic, chosen)
        return Judgement(certificate, len(chosen), int(np.prod(actual.shape[:3])))

    return judge


def _draw(shape: tuple[int, ...], rows: int | None, seed: int) -> list[Row]:
    every = int(np.prod(shape))
    if rows is None or rows >= every:
        numbers = np.arange(every)
    else:
        numbers = np.sort(np.random.default_rng(seed).choice(every, rows, replace=False))
    return [Row(*map(int, place)) for place in np.transpose(np.unravel_index(numbers, shape))]


def decoding(
    codes: Callable[[Inputs], torch.Tensor],
    *,
    scale: str = "scale",
    fmt: str = "float8_e4m3fn",
    convention: Any = "fp32_multiply",
    output: str = "",
) -> Judge:
    """Certificate of scaled codes stored as float16: every element is the table's, to the bit.

    Args:
        codes: gives the codes that the output holds, uint8, in the shape of the output.
        scale: name of the input with the scale.
        fmt, convention: as for ``verify.reference.scaled_decode.decode_table``.
    """

    def judge(found: Outputs, inputs: Inputs) -> Judgement:
        from verify.reference.scaled_decode import decode_table

        table = decode_table(fmt, float(inputs[scale]), convention)
        wanted = table.words[codes(inputs).detach().cpu().numpy()]
        actual = found[output].numpy()
        if actual.shape != wanted.shape or actual.dtype != np.float16:
            raise ArgumentError(
                "the output does not fit the codes",
                found=f"{actual.dtype} {list(actual.shape)}",
                allowed=f"float16 {list(wanted.shape)}",
            )
        words = actual.view(np.uint16)
        nan = np.isnan(actual) & np.isnan(wanted.view(np.float16))  # any NaN will do
        wrong = (words != wanted) & ~nan
        place = np.argwhere(wrong)[0].tolist() if wrong.any() else None
        check = Check(
            name="elements that are not the table's",
            statistic=float(wrong.sum()),
            limit=Bound(0.0, "a decode of at most 8 bits is a table"),
            passed=not wrong.any(),
            detail=f"first at {place}" if place else "",
        )
        return Judgement(conclude("scaled decode", f"{fmt}, {convention}", [check]))

    return judge


def operation(op: Any, arithmetic: Any = None, *, output: str = "", **names: str) -> Judge:
    """Certificate of a layer by ``verify.reference.certificates.certify``.

    Args:
        op: for example ``verify.reference.certificates.norm.RmsNorm(eps=1e-6)``.
        arithmetic: what else is declared.
        names: input of the operation -> input of the case, where they differ.
    """

    def judge(found: Outputs, inputs: Inputs) -> Judgement:
        from verify.reference.certificates.certify import certify

        wanted = (*op.inputs, *(name for name in op.optional if names.get(name, name) in inputs))
        given = {name: inputs[names.get(name, name)] for name in wanted}
        given = {n: t.cpu() if isinstance(t, torch.Tensor) else t for n, t in given.items()}
        return Judgement(certify(found[output], given, op, arithmetic))

    return judge
