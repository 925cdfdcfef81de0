"""What is stored is what comes back, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from tests.dumps.format.small_dumps import make_record, make_rows, random_words
from verify.dumps.format import DumpWriter, open_dump
from verify.dumps.format.schema import Input, Rows
from verify.dumps.summaries import row_sketches, row_statistics
from verify.formats import FORMATS, word_dtype

WriterAt = Callable[..., DumpWriter]


def stored(writer: DumpWriter, words: np.ndarray, dtype: str) -> np.ndarray:
    writer.add(make_record(0, words, dtype), make_rows(words, dtype), words)
    writer.close()
    dump = open_dump(writer.path)
    return dump.read_words(dump.records()[0])


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bit_pattern_of_every_dtype(writer_at: WriterAt, dtype: str) -> None:
    """Random words are full of NaN payloads, infinities, subnormals and -0."""
    words = random_words(4, 33, dtype)
    back = stored(writer_at(), words, dtype)
    assert back.dtype == word_dtype(dtype)
    assert back.tobytes() == words.tobytes()


SPECIAL = {
    "float32": [0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 0xFFFFFFFF, 1],
    "bfloat16": [0x8000, 0x7F80, 0xFF80, 0x7FC1, 0x7F81, 0xFFFF, 1],
    "float16": [0x8000, 0x7C00, 0xFC00, 0x7E01, 0x7C01, 0xFFFF, 1],
    "float8_e4m3fn": [0x80, 0x7F, 0xFF, 0x7E, 1],
    "float8_e5m2": [0x80, 0x7C, 0xFC, 0x7D, 0xFF, 1],
    "float64": [1 << 63, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 1],
}


@pytest.mark.parametrize("dtype", SPECIAL)
def test_zeros_infinities_and_nan_payloads(writer_at: WriterAt, dtype: str) -> None:
    words = np.array([SPECIAL[dtype]], word_dtype(dtype))
    assert stored(writer_at(), words, dtype).tolist() == [SPECIAL[dtype]]


@pytest.mark.parametrize(("rows", "length"), [(0, 4), (3, 0), (0, 0), (1, 1)])
def test_sizes_of_zero(writer_at: WriterAt, rows: int, length: int) -> None:
    words = np.zeros((rows, length), np.uint16)
    writer = writer_at()
    writer.add(make_record(0, words, "bfloat16"), make_rows(words, "bfloat16"), words)
    writer.close()
    dump = open_dump(writer.path)
    record = dump.records()[0]
    assert dump.read_words(record).shape == (rows, length)
    assert len(dump.rows(record)) == rows
    assert sum(len(block) for _, block in dump.read_blocks(record, 64)) == rows


def test_a_scalar(writer_at: WriterAt) -> None:
    words = np.array([[7]], np.uint64)
    record = make_record(0, words, "int64", axes="", shape=[], strides=[])
    with writer_at() as writer:
        writer.add(record, make_rows(words, "int64", first=-1, sequence=""), words)
    dump = open_dump(writer.path)
    assert dump.read_words(dump.records()[0]).tolist() == [[7]]
    assert dump.rows(dump.records()[0]).position.tolist() == [-1]


def test_words_that_are_not_contiguous(writer_at: WriterAt) -> None:
    words = random_words(8, 20)[::2, ::-3]
    assert (stored(writer_at(), words, "float32") == words).all()


def test_reuse_of_the_buffer_does_not_reach_the_dump(writer_at: WriterAt) -> None:
    words = random_words(3, 5)
    before = words.copy()
    writer = writer_at()
    writer.add(make_record(0, words), make_rows(words, "float32"), words)
    words[:] = 0
    writer.close()
    dump = open_dump(writer.path)
    assert (dump.read_words(dump.records()[0]) == before).all()


def test_owned_words_are_not_copied(writer_at: WriterAt) -> None:
    words = random_words(3, 5)
    writer = writer_at()
    writer.add(make_record(0, words), make_rows(words, "float32"), words, owned=True)
    assert writer._pending.words["0"] is words


def test_every_field_of_a_record(writer_at: WriterAt) -> None:
    words = random_words(2, 6)
    first = make_record(3, words, tap="tokens.in")
    second = make_record(
        8,
        words,
        step=2,
        tap="modèle.couche.0",
        occurrence=1,
        epoch=4,
        axes="b h t d",
        shape=[1, 3, 2, 2],
        strides=[12, 4, 2, 1],
        storage_offset=7,
        carried=5,
        inputs=[
            Input(kind="record", seq=3),
            Input(kind="weight", name="w"),
            Input(kind="value", name="mask", digest="ab"),
            Input(kind="unknown"),
        ],
        ops=["mm", "add"],
        attributes={"scale": 0.1, "window": None, "names": ["é", 'quote "'], "deep": {"a": [1]}},
    )
    with writer_at() as writer:
        writer.add(first, make_rows(words, "float32"), words)
        writer.add(second, make_rows(words, "float32"), words)
    back = open_dump(writer.path).records()
    assert [msgspec.structs.asdict(r) for r in back] == [
        msgspec.structs.asdict(r) for r in (first, second)
    ]


def test_rows_with_and_without_sketches_and_statistics(writer_at: WriterAt) -> None:
    words = random_words(3, 6) & np.uint32(0x7FFFFF)  # finite
    full = make_rows(words, "float32")
    full.sketch, full.statistics = row_sketches(words, "float32"), row_statistics(words, "float32")
    full.statistics[0, :3] = [np.nan, np.inf, -0.0]  # values, not gaps
    full.sequence[1] = None
    full.visit[:] = [0, 1, 5]
    bare = make_rows(words, "float32", first=-1)
    with writer_at() as writer:
        writer.add(make_record(0, words, kept="digest"), bare, None)
        writer.add(make_record(1, words, kept="stats"), full, None)
        writer.add(make_record(2, words[:0], kept="digest"), make_rows(words[:0], "float32"), None)
    dump = open_dump(writer.path)
    one, two, three = (dump.rows(record) for record in dump.records())
    assert_same_rows(one, bare)
    assert_same_rows(two, full)
    assert len(three) == 0


def assert_same_rows(found: Rows, expected: Rows) -> None:
    assert found.sequence.tolist() == expected.sequence.tolist()
    for name in ("position", "visit", "digest"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()
    for name in ("sketch", "statistics"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype and a.tobytes() == np.ascontiguousarray(b).tobytes()


def test_the_same_tensor_at_several_taps(writer_at: WriterAt) -> None:
    """Chains of ``same`` lead to the record with the rows, also across parts."""
    words = random_words(2, 6)
    with writer_at() as writer:
        writer.add(make_record(0, words), make_rows(words, "float32"), words)
        writer.add(make_record(1, words, kept="same", same_as=0), None, None)
        writer.flush()
        writer.add(make_record(2, words, kept="same", same_as=1), None, None)
    dump = open_dump(writer.path)
    last = dump.records()[2]
    assert (last.same_as, last.n_rows, last.row_length) == (0, 2, 6)
    assert (dump.read_words(last) == words).all()
    assert dump.rows(last).digest.tolist() == make_rows(words, "float32").digest.tolist()
    assert [start for start, _ in dump.read_blocks(last, 24)] == [0, 1]


def test_blocks_are_the_whole_in_order(writer_at: WriterAt) -> None:
    words = random_words(10, 6)
    with writer_at() as writer:
        writer.add(make_record(0, words), make_rows(words, "float32"), words)
    dump = open_dump(writer.path)
    record = dump.records()[0]
    blocks = list(dump.read_blocks(record, 3 * 24))
    assert [start for start, _ in blocks] == [0, 3, 6, 9]
    assert (np.concatenate([block for _, block in blocks]) == words).all()
    assert (dump.read_words(record, 4, 7) == words[4:7]).all()


def test_the_manifest(writer_at: WriterAt) -> None:
    writer = writer_at()
    words = random_words(1, 1, "int64")
    writer.add(make_record(0, words, "int64", tap="tokens.in"), make_rows(words, "int64"), words)
    sequences = writer.manifest.workload.sequences
    sequences[0].generated = [4, 4]
    assert not open_dump(writer.path).complete
    writer.close(sequences, {"4": "é\n"})
    manifest = open_dump(writer.path).manifest
    assert manifest.status == "complete"
    assert manifest.workload.sequences[0].generated == [4, 4]
    assert manifest.workload.token_text == {"4": "é\n"}
    assert manifest.taps == {"tokens.in": "t d"}
    assert manifest.ends["0"].parts == 1
