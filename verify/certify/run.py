"""``certify_records``: what ``verify certify`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from verify.certify.attention import certify_core, is_attention
from verify.certify.declare import arithmetic_of, declare
from verify.certify.inputs import equal_inputs, gather_inputs, read_values
from verify.certify.names import RecordName, find_records, parse_name
from verify.certify.weights import WeightSource
from verify.dumps.format import open_dump
from verify.dumps.format.reader import Dump
from verify.dumps.format.schema import Record
from verify.errors import ArgumentError
from verify.reference.certificates.certify import certify, certify_pair
from verify.reference.certificates.result import Certificate, Outcome, worst


class RecordCertificate(msgspec.Struct, kw_only=True):
    """The certificate of one record, or of one record against another."""

    record: str
    against: str | None = None
    declared: str
    """The operation with its parameters and roundings, as judged."""
    certificate: Certificate


class CertifyResult(msgspec.Struct, kw_only=True):
    """The result of ``verify certify``."""

    outcome: Outcome
    records: list[RecordCertificate]
    exit_code: int
    schema: str = "verify-certify/1"


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """What the user declares; everything not given is read off the dump."""

    op: str | None = None
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    inputs: dict[str, str] = msgspec.field(default_factory=dict)
    """Input name -> record name."""
    weights: str | None = None
    accumulate: str = "fp32"
    pair: bool = False


def certify_records(names: Sequence[str], options: Options) -> CertifyResult:
    """Certify each record, or with ``options.pair`` the second against the first, step by step.

    Raises:
        ArgumentError: names, parameters or inputs that do not fit.
        DumpError: a run that cannot be read.
        CorruptDumpError: words that are not those that were stored.
    """
    parsed = [parse_name(name) for name in names]
    if not parsed:
        raise ArgumentError("nothing to certify", where="RECORD", allowed="RUN::TAP[@STEP] ...")
    if options.pair and len(parsed) != 2:
        raise ArgumentError(
            "a pair is two records", where="--pair", found=len(parsed), allowed="2 names"
        )
    named = {name: parse_name(text) for name, text in options.inputs.items()}
    found = (
        _certify_pair(parsed[0], parsed[1], options, named)
        if options.pair
        else [one for name in parsed for one in _certify_name(name, options, named)]
    )
    outcome = worst(one.certificate.outcome for one in found)
    return CertifyResult(
        outcome=outcome, records=found, exit_code=0 if outcome is Outcome.EXPLAINED else 1
    )


class _Call(msgspec.Struct):
    """One recorded call: the operation, what it read and what it gave."""

    op: Any
    inputs: dict[str, Any]
    output: Any
    store: str


def _call(dump: Dump, record: Record, options: Options, named: Mapping[str, RecordName]) -> _Call:
    op = declare(record, dump.manifest, options.op, options.settings)
    weights = WeightSource(options.weights, dump.manifest)
    inputs = gather_inputs(dump, record, op, weights, named)
    output = read_values(dump, record)
    if "x" in inputs and getattr(inputs["x"], "ndim", 2) == 3:
        output = output.reshape(inputs["x"].shape)
    if op.name == "select" and op.k is None:
        output = output.reshape(-1)
    return _Call(op, inputs, output, record.dtype)


def _certify_name(
    name: RecordName, options: Options, named: Mapping[str, RecordName]
) -> list[RecordCertificate]:
    dump = open_dump(name.run)
    results = []
    for record in find_records(dump, name):
        if is_attention(record) and options.op is None:
            declared, certificate = certify_core(dump, record)
            text = _name(name, record)
            results.append(
                RecordCertificate(record=text, declared=declared, certificate=certificate)
            )
            continue
        call = _call(dump, record, options, named)
        arithmetic = arithmetic_of(options.accumulate)
        store = None if call.op.name == "select" else call.store
        certificate = certify(call.output, call.inputs, call.op, arithmetic, store=store)
        results.append(_result(name, record, call, certificate))
    return results


def _certify_pair(
    a: RecordName, b: RecordName, options: Options, named: Mapping[str, RecordName]
) -> list[RecordCertificate]:
    dump_a, dump_b = open_dump(a.run), open_dump(b.run)
    first, second = find_records(dump_a, a), find_records(dump_b, b)
    if len(first) != len(second):
        raise ArgumentError(
            "the two names do not stand for equally many records",
            where="--pair",
            found=f"{len(first)} and {len(second)}",
            hint="name one step of each with @STEP",
        )
    results = []
    for ours, theirs in zip(first, second, strict=True):
        call_a = _call(dump_a, ours, options, named)
        call_b = _call(dump_b, theirs, options, named)
        if differing := equal_inputs(call_a.inputs, call_b.inputs):
            raise ArgumentError(
                "the two sides read different inputs, so their outputs are no pair",
                where=f"{_name(a, ours)} against {_name(b, theirs)}",
                found=f"{', '.join(differing)} differ",
                hint="certify each side on its own inputs: leave out --pair",
            )
        certificate = certify_pair(
            call_a.output,
            call_b.output,
            call_a.inputs,
            call_a.op,
            arithmetic_of(options.accumulate),
            op_b=call_b.op,
            store_a=call_a.store,
            store_b=call_b.store,
        )
        result = _result(a, ours, call_a, certificate)
        results.append(msgspec.structs.replace(result, against=_name(b, theirs)))
    return results


def _name(name: RecordName, record: Record) -> str:
    return str(RecordName(name.run, name.tap, record.step))


def _result(
    name: RecordName, record: Record, call: _Call, certificate: Certificate
) -> RecordCertificate:
    return RecordCertificate(
        record=_name(name, record), declared=repr(call.op), certificate=certificate
    )
