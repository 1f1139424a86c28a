"""Readers of published forms, on small files of the same form."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import originals
from benchmarks.data import DataError


def idx(values: np.ndarray) -> bytes:
    sizes = struct.pack(f">{values.ndim}I", *values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


def archive(path: Path, parts: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in parts.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return path


def member(rows: int, protocol: int = 2) -> bytes:
    images = np.arange(rows * 3072).reshape(rows, 3072).astype(np.uint8)
    content = {b"data": images, b"fine_labels": list(range(rows)), b"filenames": [b"a"] * rows}
    return pickle.dumps(content, protocol=protocol)


@pytest.mark.parametrize("packed", [True, False])
def test__mnist__four_files__come_back(tmp_path: Path, packed: bool) -> None:
    images, labels = np.arange(48).reshape(3, 4, 4), np.array([5, 0, 4])
    for part in ("train", "t10k"):
        for stem, values in (("images-idx3", images), ("labels-idx1", labels)):
            raw = idx(values)
            name = f"{part}-{stem}-ubyte" + (".gz" if packed else "")
            (tmp_path / name).write_bytes(gzip.compress(raw) if packed else raw)
    arrays = originals.mnist(tmp_path)
    np.testing.assert_array_equal(arrays["x_train"], images)
    np.testing.assert_array_equal(arrays["y_test"], labels)


@pytest.mark.parametrize("damage", [lambda r: r[:-1], lambda r: b"\1" + r[1:], lambda r: r[:3]])
def test__idx__damaged__is_refused(tmp_path: Path, damage: type) -> None:
    (tmp_path / "x").write_bytes(damage(idx(np.zeros((2, 3)))))
    with pytest.raises(DataError):
        originals.read_idx(tmp_path / "x")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test__cifar100__made_archive__images_and_labels_come_back(
    tmp_path: Path, protocol: int
) -> None:
    path = archive(tmp_path / "c.tar.gz", {"train": member(3, protocol), "test": member(2)})
    arrays = originals.cifar100(path)
    assert arrays["x_train"].shape == (3, 32, 32, 3)
    assert arrays["y_test"].tolist() == [0, 1]
    flat = np.arange(3072).astype(np.uint8)
    assert arrays["x_train"][0, 0, 1].tolist() == [flat[1], flat[1025], flat[2049]]


class Hostile:
    def __reduce__(self) -> tuple:
        return (print, ("run",))


@pytest.mark.parametrize("raw", [pickle.dumps(Hostile()), b"junk", pickle.dumps({b"data": 1}), b""])
def test__cifar100__anything_else__is_refused_and_not_run(
    raw: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataError):
        originals.read_cifar_part(raw)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "name", [("numpy", "fromfile"), ("os", "system"), ("builtins", "eval"), ("numpy", "load")]
)
def test__arrays_only__any_other_name__is_refused(name: tuple[str, str]) -> None:
    with pytest.raises(DataError, match=name[1]):
        originals.ArraysOnly(io.BytesIO(b"")).find_class(*name)


def test__cifar100__missing_member__is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="test"):
        originals.cifar100(archive(tmp_path / "c.tar.gz", {"train": member(1)}))


def test__pancan__matrix_and_clinical__are_joined(tmp_path: Path) -> None:
    columns = ["TCGA-AA-0001-01A", "TCGA-AA-0001-01B", "TCGA-AA-0002-11A", "TCGA-AA-0003-03A"]
    rows = [
        ["gene_id", *columns],
        ["TP53|7157", "3", "9", "9", "-1"],
        ["FLAT|1", "1", "1", "1", "1"],
        ["GONE|2", "NA", "1", "1", "1"],
    ]
    (tmp_path / "m.tsv").write_text("\n".join("\t".join(row) for row in rows))
    clinical = "x\tbcr_patient_barcode\ttype\n1\tTCGA-AA-0001\tACC\n2\tTCGA-AA-0003\tLAML\n"
    (tmp_path / "c.tsv").write_text(clinical + "3\tTCGA-AA-0002\tBRCA\n")
    arrays = originals.pancan(tmp_path / "m.tsv", tmp_path / "c.tsv", genes=1)
    assert arrays["feature"].tolist() == ["TP53"]
    assert arrays["y"].tolist() == ["ACC", "LAML"]
    assert arrays["x"].tolist() == [[2.0], [0.0]]


def test__pancan__clinical_without_columns__is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match="bcr_patient_barcode"):
        originals.clinical_types(tmp_path / "c.tsv")


def test__ici__tables__are_joined_and_unlabelled_left_out(tmp_path: Path) -> None:
    (tmp_path / "e.tsv.gz").write_bytes(gzip.compress(b"s\tg1\tg2\na\t1\t2\nb\t3\t4\nc\t5\t6\n"))
    about = "s\tresponse\ttherapy\tcancer_type\na\tR\tNivo\tSKCM\nb\tNR\t\tSKCM\n"
    (tmp_path / "c.tsv").write_text(about)
    arrays = originals.ici(tmp_path / "e.tsv.gz", tmp_path / "c.tsv")
    assert arrays["x"].tolist() == [[1.0, 2.0]]
    assert (arrays["therapy"][0], arrays["response"][0]) == ("Nivo", "R")


def test__fetch__absent_then_cached__checks_the_sum_both_times(tmp_path: Path) -> None:
    origin, cache = tmp_path / "origin", tmp_path / "cache"
    origin.write_bytes(b"data")
    digest = hashlib.sha256(b"data").hexdigest()
    source = originals.Source("file.bin", origin.as_uri(), digest)
    path = originals.fetch(source, cache)
    assert path.read_bytes() == b"data"
    origin.unlink()
    assert originals.fetch(source, cache) == path
    path.write_bytes(b"dara")
    with pytest.raises(DataError, match="checksum"):
        originals.fetch(source, cache)


def test__fetch__wrong_sum_or_no_network__leaves_nothing_behind(tmp_path: Path) -> None:
    origin, cache = tmp_path / "origin", tmp_path / "cache"
    origin.write_bytes(b"other")
    digest = hashlib.sha256(b"data").hexdigest()
    for url in (origin.as_uri(), (tmp_path / "absent").as_uri(), "ftp://x"):
        with pytest.raises(DataError):
            originals.fetch(originals.Source("file.bin", url, digest), cache)
    assert list(cache.iterdir()) == []
