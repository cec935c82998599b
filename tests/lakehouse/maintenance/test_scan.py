"""A planted value is found wherever and however it lies, and nothing else is."""

import base64
import bz2
import gzip
import io
import json
import lzma
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from governance.records import GovernedBatch
from lakehouse.lake import Lake
from lakehouse.maintenance.scan import scan
from lakehouse.read.spill import sweep_spills
from lakehouse.storage.location import Location
from tests.lakehouse import make
from tests.lakehouse.scans import scan_values
from trajectory.errors import ConfigurationError

VALUE = 'Jörg "JJ" Müller/Öst <jorg.mueller@example.org>'
OTHERS = [f"other-{number}@example.net" for number in range(50)]

ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "raw": lambda v: v.encode(),
    "json": lambda v: json.dumps({"k": v}, ensure_ascii=False).encode(),
    "json_ascii": lambda v: json.dumps({"k": v}).encode(),
    "json_upper": lambda v: json.dumps(v).replace("\\u00f6", "\\u00F6").replace(
        "\\u00fc", "\\u00FC").replace("\\u00d6", "\\u00D6").encode(),
    "json_slash": lambda v: json.dumps(v).replace("/", "\\/").encode(),
    "json_twice": lambda v: json.dumps(json.dumps({"k": v})).encode(),
    "url": lambda v: quote(v, safe="").encode(),
    "url_path": lambda v: quote(v).encode(),
    "url_lower": lambda v: quote(v, safe="").replace("%C3%B6", "%c3%b6").encode()
    if v.isascii() else quote_plus(v).encode(),
    "quoted_printable": lambda v: v.encode().replace("ö".encode(), b"=C3=B6").replace(
        "ü".encode(), b"=C3=BC").replace("Ö".encode(), b"=C3=96"),
    "word_of_a_header": lambda v: quote(v, safe=" \"<@>/.").replace(" ", "_").replace(
        "%", "=").encode(),
    "python_bytes": lambda v: repr(v.encode()).encode(),
    "utf16": lambda v: v.encode("utf-16"),
    "hex": lambda v: v.encode().hex().encode(),
    "base64_0": lambda v: base64.b64encode(v.encode()),
    "base64_1": lambda v: base64.b64encode(b"a" + v.encode() + b"zz"),
    "base64_2": lambda v: base64.urlsafe_b64encode(b"ab" + v.encode() + b"z"),
}  # fmt: skip


def packed_zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.txt", data)
    return out.getvalue()


def packed_tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("inner.gz")
        member.size = len(data := gzip.compress(data))
        archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def zstd_frames(data: bytes) -> bytes:
    pack = zstandard.ZstdCompressor().compress
    return pack(b"first frame") + pack(data)


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd_frames": zstd_frames,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "zip": packed_zip,
    "tar_of_gzip": packed_tar,
    "gzip_of_zstd": lambda d: gzip.compress(zstandard.ZstdCompressor().compress(d)),
}


def found(tmp_path: Path, data: bytes) -> bool:
    (tmp_path / "file.bin").write_bytes(data)
    hits = scan_values([tmp_path], [*OTHERS, VALUE])
    assert {hit.value for hit in hits} <= {len(OTHERS) + 1}
    return bool(hits)


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_is_found(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, os.urandom(5000) + ENCODINGS[name](VALUE) + os.urandom(5000))


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("encoding", ["raw", "json_ascii", "base64_1"])
def test_every_packing_is_found(tmp_path: Path, packing: str, encoding: str) -> None:
    text = b"some text before " * 50 + ENCODINGS[encoding](VALUE) + b" and after" * 50
    assert found(tmp_path, PACKINGS[packing](text))


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_parquet_columns_are_found(tmp_path: Path, compression: str, dictionary: bool) -> None:
    rows = [
        {"plain": f"row {i}", "nested": [{"deep": {"x": f"{i}"}}], "m": {"k": "v"}}
        for i in range(99)
    ]
    for place in ("plain", "nested", "map"):
        planted = [dict(row) for row in rows]
        if place == "plain":
            planted[70]["plain"] = f"hello {VALUE}"
        elif place == "nested":
            planted[70]["nested"] = [{"deep": {"x": json.dumps({"said": VALUE})}}]
        schema = pa.schema([
            ("plain", pa.string()),
            ("nested", pa.list_(pa.struct([("deep", pa.struct([("x", pa.large_string())]))]))),
            ("m", pa.map_(pa.string(), pa.string())),
        ])  # fmt: skip
        for row in planted:
            row["m"] = [("k", VALUE if place == "map" else "v")]
        table = pa.Table.from_pylist(planted, schema=schema)
        pq.write_table(
            table, tmp_path / "t.parquet", compression=compression, use_dictionary=dictionary,
            write_statistics=False,
        )  # fmt: skip
        assert scan_values([tmp_path], [VALUE]), place


def test_packed_values_inside_columns_are_found(tmp_path: Path) -> None:
    table = pa.table({"body": pa.array([b"", gzip.compress(VALUE.encode() * 3)], pa.binary())})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    assert scan_values([tmp_path], [VALUE])


def test_numbers_are_found_in_number_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 4111111111111111, 2]}), tmp_path / "t.parquet")
    assert scan_values([tmp_path], ["4111 1111 1111 1111"])
    assert not scan_values([tmp_path], ["4111 1111 1111 1112"])


def test_arrow_files_and_streams_are_found(tmp_path: Path) -> None:
    table = pa.table({"text": [VALUE]})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(tmp_path / "several"), "wb") as sink:
        for part in (pa.table({"n": [1]}), table):
            with pa.ipc.new_stream(sink, part.schema, options=options) as writer:
                writer.write_table(part)
    with pa.ipc.new_file(str(tmp_path / "file"), table.schema, options=options) as writer:
        writer.write_table(table)
    assert {Path(hit.path).name for hit in scan_values([tmp_path], [VALUE])} == {"several", "file"}


def test_a_value_across_the_edge_of_a_block_is_found(tmp_path: Path) -> None:
    edge = (4 << 20) - 10
    assert found(tmp_path, b"x" * edge + VALUE.encode() + b"x" * 100)


def test_sqlite_journals_logs_and_names_are_found(tmp_path: Path) -> None:
    base = sqlite3.connect(tmp_path / "a.db")
    base.execute("CREATE TABLE t (x)")
    base.execute("INSERT INTO t VALUES (?)", (VALUE,))
    base.commit()
    base.close()
    (tmp_path / "secret-name.log").write_text("nothing")
    hits = scan_values([tmp_path], [VALUE, "secret-name"])
    assert {(Path(hit.path).name, hit.value) for hit in hits} == {
        ("a.db", 1),
        ("secret-name.log", 2),
    }


def test_short_values_count_as_words_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("I am Anna, hello")
    (tmp_path / "b.txt").write_text("Annabel and Savanna and Hosanna")
    (tmp_path / "c.bin").write_bytes(b"\x00\x01Anna\x02\x03")
    assert {Path(hit.path).name for hit in scan_values([tmp_path], ["Anna"])} == {"a.txt"}


def test_broken_files_are_reported_and_still_searched(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(VALUE.encode() * 400 + os.urandom(3000))[:-900])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + VALUE.encode() + b"PAR1")
    report = scan([tmp_path], [VALUE])
    assert len(report.unreadable) == 2
    assert {Path(hit.path).name for hit in report.hits} == {"cut.gz", "bad.parquet"}
    assert report.values_found == 1


def test_clean_files_give_nothing_and_the_caller_decides_what_to_skip(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "clean").write_bytes(os.urandom(1 << 20))
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "raw").write_text(VALUE)
    report = scan([tmp_path], [VALUE], skip=lambda path: path.name == "spool")
    assert (report.files, report.hits) == (1, ())
    assert len(scan([tmp_path], [VALUE]).hits) == 1
    assert scan([tmp_path], []).hits == ()


def test_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        scan_values([tmp_path / "none"], ["value"])
    with pytest.raises(ConfigurationError, match="fewer than 3"):
        scan_values([tmp_path], ["ab"])


def test_a_value_in_a_real_lake_is_found(tmp_path: Path) -> None:
    lake = Lake.open(str(tmp_path))
    said = make.message("user", f"I am {VALUE}")
    lake.append(GovernedBatch(messages=(said,)), app_id="a", version=0)
    hits = scan_values([tmp_path], [VALUE])
    assert "parquet:parts" in {hit.where for hit in hits}


def test_the_copy_that_a_killed_search_of_a_store_left_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "object").write_text(VALUE)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    killed = (
        "import os, signal, sys\nfrom pyarrow.fs import LocalFileSystem\n"
        "from lakehouse.maintenance.scan import _fetched\n"
        "with _fetched(LocalFileSystem(), sys.argv[1]):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", killed, str(tmp_path / "object")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert scan_values([temporary], [VALUE])
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert sweep_spills(Location.parse("s3://bucket/lake")) == 1
    assert list(temporary.iterdir()) == []


def test_hits_never_repeat_the_value(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(VALUE)
    assert "mueller" not in repr(scan_values([tmp_path], [VALUE]))


@given(
    value=st.text(min_size=6, max_size=30).filter(lambda v: v.isprintable()),
    before=st.binary(max_size=5),
    after=st.binary(max_size=5),
)
def test_base64_is_found_at_any_alignment(value: str, before: bytes, after: bytes) -> None:
    from lakehouse.maintenance.scan import forms_of

    whole = base64.b64encode(before + value.encode() + after)
    assert any(form.data in whole for form in forms_of(value) if form.name == "base64")
