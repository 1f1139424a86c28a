"""Readers of published forms, on small files of the same form."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks import backbone, fetch, originals
from benchmarks.__main__ import main
from benchmarks.data import DataError, made_images
from benchmarks.experiments import EXPERIMENTS


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


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test__fetch__absent_then_cached__checks_the_sum_both_times(tmp_path: Path, kind: str) -> None:
    origin, cache = tmp_path / "origin", tmp_path / "cache"
    origin.write_bytes(b"data")
    digest = hashlib.new(kind, b"data").hexdigest()
    source = originals.Source("file.bin", origin.as_uri(), digest, kind)
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


def published(path: Path) -> originals.Source:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return originals.Source(path.name, path.as_uri(), digest)


def test__fetch_command__pancan_in_published_form__is_what_the_experiment_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    kinds = np.repeat([f"T{code:02d}" for code in range(33)], 10)
    patients = [f"TCGA-AA-{number:04d}" for number in range(len(kinds))]
    rows = [["gene_id", *[f"{patient}-01A" for patient in patients]]]
    rows += [[f"G{gene}|{gene}", *map(str, rng.integers(0, 99, len(kinds)))] for gene in range(5)]
    (tmp_path / "matrix.tsv").write_text("\n".join("\t".join(row) for row in rows))
    lines = [f'{p}\t{k}\t5" caf\u00e9' for p, k in zip(patients, kinds, strict=True)]
    text = "\n".join(["bcr_patient_barcode\tacronym\tnote", *lines])
    (tmp_path / "clinical.tsv").write_bytes(text.encode("latin-1"))
    sources = tuple(published(tmp_path / name) for name in ("matrix.tsv", "clinical.tsv"))
    monkeypatch.setitem(fetch.SOURCES, "pancan", sources)
    asked = ["pancan", "--cache", str(tmp_path / "cache"), "--data", str(tmp_path / "data")]
    assert fetch.main(asked) == 0
    stream = EXPERIMENTS["pancan"](tmp_path / "data", 0, False)
    assert [len(np.unique(step.y)) for step in stream.steps] == [8, 5, 5, 5, 5, 5]
    (tmp_path / "cache" / "clinical.tsv").write_text("other")
    assert fetch.main(asked) == 2
    assert "checksum" in capsys.readouterr().err


def test__sources__every_sum__has_the_length_of_its_kind() -> None:
    for sources in fetch.SOURCES.values():
        for source in sources:
            assert source.url.startswith("https://")
            assert len(bytes.fromhex(source.digest)) == hashlib.new(source.kind).digest_size


def test__images__made_archive__from_the_archive_to_the_table(tmp_path: Path) -> None:
    images = made_images(0, each=8)
    parts = {}
    for part in ("train", "test"):
        rows = images[f"x_{part}"].transpose(0, 3, 1, 2).reshape(-1, 3072)
        labels = images[f"y_{part}"].tolist()
        parts[part] = pickle.dumps({b"data": rows, b"fine_labels": labels}, protocol=2)
    path = archive(tmp_path / "cifar-100-python.tar.gz", parts)
    asked = ["--archive", str(path), "--data", str(tmp_path), "--seed", "3", "--epochs", "2"]
    assert backbone.main([*asked, "--widths", "4", "4", "8", "8"]) == 0
    results = tmp_path / "results"
    asked = ["cifar100-images", "--data", str(tmp_path), "--seeds", "3", "--methods", "ncm,lda"]
    assert main([*asked, "--results", str(results)]) == 0
    record = json.loads((results / "cifar100-images" / "lda-seed3.json").read_text())
    assert len(record["accuracy_matrix"]) == 10
    assert record["figures"]["accuracy"] > 0.2  # chance is 0.01


def test__backbone__not_an_archive__exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.tar.gz").write_bytes(b"junk")
    asked = ["--archive", str(tmp_path / "c.tar.gz"), "--data", str(tmp_path)]
    assert backbone.main(asked) == 2
    assert "error" in capsys.readouterr().err
