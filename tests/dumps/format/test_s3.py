"""Dumps behind s3://, read from a server of this machine that speaks the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from verify.bisect.run import bisect
from verify.dumps.format import open_dump
from verify.errors import CorruptDumpError, DumpError

s3fs = pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")
settings = pytest.importorskip("fsspec.config").conf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def url(endpoint: str, dump_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setitem(settings, "s3", {"endpoint_url": endpoint})
    s3fs.S3FileSystem.clear_instance_cache()
    system = s3fs.S3FileSystem(endpoint_url=endpoint)
    bucket = dump_path.parent.name.replace("_", "-").lower()[-40:].strip("-")
    system.mkdir(bucket)
    system.put(str(dump_path), f"{bucket}/runs/one", recursive=True)
    return f"s3://{bucket}/runs/one"


def test_a_dump_in_a_bucket_reads_as_on_a_disk(dump_path: Path, url: str) -> None:
    here, there = open_dump(dump_path), open_dump(url)
    assert there.records() == here.records()
    for record in here.records():
        assert np.array_equal(here.rows(record).digest, there.rows(record).digest)
        if here.holder(record).kept == "full":
            assert np.array_equal(here.read_words(record), there.read_words(record))


def test_bisect_of_a_disk_and_a_bucket(dump_path: Path, url: str) -> None:
    assert bisect(open_dump(dump_path), open_dump(url)).exit_code == 0


def test_a_damaged_object_is_corruption(url: str, endpoint: str) -> None:
    system = s3fs.S3FileSystem(endpoint_url=endpoint)
    name = f"{url}/rank-0/part-00001/records.parquet"
    data = bytearray(system.cat_file(name))
    data[len(data) // 3] ^= 0x20
    system.pipe_file(name, bytes(data))
    with pytest.raises(CorruptDumpError, match="other bytes"):
        open_dump(url)


def test_a_bucket_that_is_not_there_is_no_corruption(url: str) -> None:
    with pytest.raises(DumpError) as caught:
        open_dump("s3://no-such-bucket/runs/one")
    assert not isinstance(caught.value, CorruptDumpError)
