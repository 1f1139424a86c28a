"""Files with a right checksum and a wrong content: each is refused for the reason that it has."""

import hashlib
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from clbruno import CLBrunoError, InputError, ModelFileError, load
from clbruno.persist import container, verify

Header = dict[str, Any]
Tensors = dict[str, torch.Tensor]
Change = Callable[[Header, Tensors], None]


def signed(header: bytes, payload: bytes, lengths: tuple[int, int] | None = None) -> bytes:
    """A file whose digest is right, whatever is in it."""
    sizes = lengths or (len(header), len(payload))
    content = struct.pack("<8sIIQ", container.MAGIC, container.PROTOCOL, *sizes) + header + payload
    return content + hashlib.sha256(content).digest()


def parts(path: Path) -> tuple[bytes, bytes]:
    """Header and payload of a file."""
    data = path.read_bytes()
    start = 24 + int.from_bytes(data[12:16], "little")
    return data[24:start], data[start:-32]


def _set(*keys: Any, value: Any) -> Change:
    def change(header: Header, tensors: Tensors) -> None:
        place: Any = header
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def _drop(*keys: Any) -> Change:
    def change(header: Header, tensors: Tensors) -> None:
        place: Any = header
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


def _tensor(name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(header: Header, tensors: Tensors) -> None:
        tensors[name] = make(tensors[name])

    return change


def _poked(value: float, at: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
    def poke(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[at] = value
        return tensor

    return poke


def _no_tensor(header: Header, tensors: Tensors) -> None:
    del tensors["latent.mean"]


def _extra_tensor(header: Header, tensors: Tensors) -> None:
    tensors["more"] = torch.zeros(1)


ANY_MODEL: dict[str, tuple[Change, str]] = {
    "10^9 classes": (_set("registry", "counts", value=10**9), "not a list"),
    "10^9 couplings": (_set("flow", -1, "count", value=10**9), "out of bounds"),
    "negative count": (_set("registry", "counts", 0, value=-1), "not whole numbers from 0"),
    "count that is a text": (_set("registry", "counts", 0, value="40"), "not whole numbers"),
    "count that is true": (_set("registry", "counts", 0, value=True), "not whole numbers"),
    "counts that disagree": (_set("registry", "counts", 0, value=99), "do not count the same"),
    "cell out of range": (_set("registry", "cells", 0, value=[0, 99]), "label is in no task"),
    "negative cell": (_set("registry", "cells", 0, value=[-1, 0]), "not whole numbers"),
    "cell twice": (_set("registry", "cells", 1, value=[0, 0]), "label is in no task|twice"),
    "label twice": (_set("registry", "labels", 1, value="class 0"), "stands there twice"),
    "label that is a list": (_set("registry", "labels", 1, value=[]), "neither a text nor"),
    "label that is null": (_set("registry", "labels", 1, value=None), "neither a text nor"),
    "no tasks": (_set("registry", "tasks", value=[]), "is empty"),
    "registry that is a list": (_set("registry", value=[]), "is not an object"),
    "unknown field": (_set("more", value=1), "unknown field 'more'"),
    "unknown registry field": (_set("registry", "more", value=1), "unknown field 'more'"),
    "missing field": (_drop("seed"), "no field 'seed'"),
    "other program": (_set("library", value="other"), "another program"),
    "unknown recipe": (_set("recipe", "name", value="gold"), "no recipe 'gold'"),
    "recipe setting missing": (_drop("recipe", "hidden"), "the settings that it should"),
    "recipe setting added": (_set("recipe", "gold", value=1), "the settings that it should"),
    "recipe out of bounds": (_set("recipe", "learning_rate", value=-1), "learning_rate must be"),
    "recipe of another type": (_set("recipe", "couplings", value="6"), "couplings must be"),
    "no flow": (_set("flow", value=[]), "the recipe asks for"),
    "10^5 flows": (_set("flow", value=[{"kind": "x"}] * 10**5), "the recipe asks for"),
    "unknown flow": (_set("flow", 0, "kind", value="spline"), "asks for .* holds 'spline'"),
    "more couplings than the recipe's": (
        _set("recipe", "couplings", value=7),
        "another number of couplings",
    ),
    "labels of two kinds": (_set("registry", "labels", 1, value=7), "not names of one kind"),
    "tasks of two kinds": (_set("registry", "tasks", 1, value=True), "not names of one kind"),
    "seed that is a float": (_set("seed", value=0.5), "not a whole number"),
    "seed that no generator takes": (_set("seed", value=-1), "out of bounds"),
    "seed out of bounds": (_set("seed", value=2**32), "out of bounds"),
    "zero temperature": (_set("temperature", value=0.0), "is not positive"),
    "unit of zero": (_set("scaler", "unit", value=0), "is not positive"),
    "root that is a number": (_set("scaler", "root", value=1), "not true or false"),
    "curve of another shape": (_tensor("curve", lambda t: torch.zeros(7, 7).double()), "the shape"),
    "NaN in the weights": (_tensor("scaler.center", _poked(float("nan"))), "holds a NaN"),
    "infinity": (_tensor("latent.mean", _poked(float("inf"), -1)), "holds a NaN or an infinity"),
    "negative count of samples": (_tensor("latent.count", _poked(-1.0)), "count is negative"),
    "scale of zero": (_tensor("scaler.scale", _poked(0.0)), "not positive"),
    "tensor missing": (_no_tensor, "'latent.mean' is missing"),
    "tensor added": (_extra_tensor, "'more' belongs to no part"),
    "tensor of another shape": (_tensor("latent.mean", lambda t: t.T.contiguous()), "the shape"),
    "tensor of another type": (_tensor("latent.mean", torch.Tensor.float), "the type"),
    "tensor of whole numbers": (_tensor("latent.mean", torch.Tensor.long), "the type"),
    "no features": (_tensor("scaler.center", lambda t: t[:0]), "no features"),
    "feature names missing": (_set("features", value=["a"]), "not one name for each"),
    "feature names twice": (_set("features", value=["a"] * 5), "not one name for each"),
    "feature names that are numbers": (_set("features", value=[1] * 5), "are not names"),
    "log that is a text": (_set("log", value="none"), "is not a list"),
    "log entry of another kind": (_set("log", 0, value=7), "a log entry is not an object"),
    "log entry incomplete": (_drop("log", 0, "time"), "no field 'time'"),
    "log entry with more": (_set("log", 0, "more", value=1), "unknown field 'more'"),
    "log figure that is a text": (_set("log", 0, "after", value={"a": "b"}), "not a number"),
    "log seconds of 10^400": (_set("log", 0, "seconds", value=10**400), "not a number"),
    "log count that is half": (_set("log", 0, "counts", value=[["a", "b"]]), "not counts"),
}

TASK_LATENT: dict[str, tuple[Change, str]] = {
    "rho above nu": (_tensor("latent.rho", _poked(9.0)), "0 < rho < nu"),
    "rho equal to nu": (
        lambda header, tensors: tensors.update({"latent.rho": tensors["latent.nu"].clone()}),
        "0 < rho < nu",
    ),
    "negative rho": (_tensor("latent.rho", _poked(-0.1)), "0 < rho < nu"),
    "negative scatter": (_tensor("latent.scatter", _poked(-1.0)), "sum of squares is negative"),
    "dof of two": (_set("latent", "dof", value=2.0), "not above 2"),
    "dof that is a text": (_set("latent", "dof", value="nan"), "not a number"),
    "other latent": (_set("recipe", "latent", value="class"), "has the shape|no field"),
    "embedding missing": (lambda header, tensors: tensors.pop("embedding.task"), "is missing"),
}

CLASS_LATENT: dict[str, tuple[Change, str]] = {
    "ridge of one": (_set("latent", "ridge", value=1.0), "ridge is not below 1"),
    "negative strength": (_set("latent", "strength", value=-1.0), "is not positive"),
    "within that is not symmetric": (_tensor("latent.within", _poked(9.0, 1)), "not symmetric"),
    "context where there is none": (_set("recipe", "context_dim", value=8), "is missing"),
}

FULL: dict[str, tuple[Change, str]] = {
    "negative scatter": (_tensor("latent.scatter", _poked(-1.0)), "sum of squares is negative"),
    "scatter that is not symmetric": (_tensor("latent.scatter", _poked(9.0, 1)), "not symmetric"),
    "rank where there is none": (_set("latent", "ranks", 0, value=1), "the shape"),
}

THIN: dict[str, tuple[Change, str]] = {
    "rank above the features": (_set("latent", "ranks", 0, value=99), "are not ranks"),
    "rank of 10^9": (_set("latent", "ranks", 0, value=10**9), "are not ranks"),
    "negative rank": (_set("latent", "ranks", 0, value=-1), "are not ranks"),
    "rank that is true": (_set("latent", "ranks", 0, value=True), "are not ranks"),
    "too few ranks": (_set("latent", "ranks", value=[]), "are not ranks"),
    "smaller rank": (_set("latent", "ranks", 0, value=0), "the shape"),
}

COUPLINGS: dict[str, tuple[Change, str]] = {
    "10^9 hidden units": (_set("recipe", "hidden", value=10**9), "has the shape"),
    "10^400 hidden units": (_set("recipe", "hidden", value=10**400), "has the shape"),
}


WHITENED: dict[str, tuple[Change, str]] = {
    "whitening that the recipe does without": (_set("recipe", "whiten", value=False), "asks for"),
    "root that is negative": (_tensor("flow.0.root", torch.neg), "must be positive definite"),
}


def _cases() -> list[Any]:
    tables = {
        "default": ANY_MODEL | CLASS_LATENT | FULL,
        "thin": ANY_MODEL | CLASS_LATENT | THIN,
        "whitened": ANY_MODEL | COUPLINGS | WHITENED,
        "paper": ANY_MODEL | COUPLINGS | TASK_LATENT,
    }
    return [
        pytest.param(recipe, change, message, id=f"{recipe}: {name}")
        for recipe, table in tables.items()
        for name, (change, message) in table.items()
    ]


@pytest.mark.parametrize(("learned", "change", "message"), _cases(), indirect=["learned"])
def test__load__hostile_content__is_refused_for_its_reason(
    learned: Any, tmp_path: Path, change: Change, message: str
) -> None:
    header_bytes, payload = parts(learned.path)
    header, tensors = json.loads(header_bytes), safetensors.torch.load(payload)
    change(header, tensors)
    path = tmp_path / "hostile.clb"
    path.write_bytes(signed(json.dumps(header).encode(), safetensors.torch.save(tensors)))
    before = torch.get_rng_state()
    with pytest.raises(ModelFileError, match=message):
        load(path)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("learned", ["default"], indirect=True)
@pytest.mark.parametrize("value", [-1e9, 1e154])
def test__answers__covariances_that_are_none__are_clean_errors(
    learned: Any, tmp_path: Path, value: float
) -> None:
    header, payload = parts(learned.path)
    tensors = safetensors.torch.load(payload)
    tensors["latent.within"][0, 1] = tensors["latent.within"][1, 0] = value
    path = tmp_path / "hostile.clb"
    path.write_bytes(signed(header, safetensors.torch.save(tensors)))
    model = load(path)
    with pytest.raises(ModelFileError, match="cannot answer: the scale matrix is not positive"):
        verify(path)
    with pytest.raises(InputError, match="not positive definite"):
        model.predict(learned.x)
    before = model.model_
    with pytest.raises(CLBrunoError):
        model.partial_fit(learned.x, ["class 0", "class 1"] * 30, task="Oslo")
    assert model.model_ is before


def _index(entries: dict[str, Any], data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


PAYLOADS: dict[str, tuple[bytes, str]] = {
    "none": (b"", "weights are missing"),
    "short": (b"\0" * 7, "weights are missing"),
    "huge index": (struct.pack("<Q", 2**63) + b"{}", "claims 9,223,372,036,854,775,808"),
    "index longer than the payload": (struct.pack("<Q", 3) + b"{}", "claims 3 bytes"),
    "index not JSON": (_index(b"{'a'}"), "not valid JSON"),  # type: ignore[arg-type]
    "index with a key twice": (_index(b'{"a":1,"a":1}'), "twice"),  # type: ignore[arg-type]
    "index nested": (_index(b'{"a":' * 10**5), "deeper than"),  # type: ignore[arg-type]
    "metadata": (_index({"__metadata__": {"a": "b"}}), "does not describe"),
    "half precision": (_index(_entry("F16", [4]), bytes(8)), "a type that no model uses"),
    "type that is a list": (_index(_entry(["F32"]), bytes(8)), "a type that no model uses"),
    "shape with a minus": (_index(_entry(shape=[-2]), bytes(8)), "impossible shape"),
    "shape with a float": (_index(_entry(shape=[2.0]), bytes(8)), "impossible shape"),
    "shape of 10^30": (_index(_entry(shape=[10**30]), bytes(8)), "impossible shape"),
    "shape of five": (_index(_entry(shape=[1, 1, 1, 1, 2]), bytes(8)), "impossible shape"),
    "shape of 10^20 zeros": (
        _index(_entry(shape=[0, 10**10, 10**10], offsets=[0, 0])),
        "impossible",
    ),
    "shape of 10^18": (
        _index(_entry(shape=[10**9, 10**9]), bytes(8)),
        "bytes that its shape needs",
    ),
    "offsets reversed": (_index(_entry(offsets=[8, 0]), bytes(8)), "bytes that its shape needs"),
    "offsets with a gap": (_index(_entry(offsets=[4, 12]), bytes(12)), "does not begin where"),
    "offsets past the end": (_index(_entry(shape=[3], offsets=[0, 12]), bytes(8)), "do not fill"),
    "bytes left over": (_index(_entry(), bytes(12)), "do not fill"),
    "tensors that overlap": (
        _index({**_entry(), "b": _entry(offsets=[4, 12])["a"]}, bytes(12)),
        "does not begin where",
    ),
}


@pytest.mark.parametrize("name", list(PAYLOADS))
def test__read__hostile_payload__is_refused_for_its_reason(tmp_path: Path, name: str) -> None:
    payload, message = PAYLOADS[name]
    path = tmp_path / "hostile.clb"
    path.write_bytes(signed(b"{}", payload))
    with pytest.raises(ModelFileError, match=message):
        container.read(path)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((2**32 - 1, 8), "header claims 4,294,967,295 bytes"),
        ((2, 2**64 - 1), "should be 18,446,744,073,709,551,"),
        ((2, 0), "something was appended"),
        ((3, 10), "was cut off"),
        ((0, 12), "header is not valid JSON"),
    ],
)
def test__read__hostile_lengths__are_refused(
    tmp_path: Path, lengths: tuple[int, int], message: str
) -> None:
    path = tmp_path / "hostile.clb"
    path.write_bytes(signed(b"{}", struct.pack("<Q", 2) + b"{}", lengths))
    with pytest.raises(ModelFileError, match=message):
        container.read(path)


def test__read__sparse_file_of_a_terabyte__is_refused_by_its_length(tmp_path: Path) -> None:
    path = tmp_path / "hostile.clb"
    payload = 2**40
    path.write_bytes(struct.pack("<8sIIQ", container.MAGIC, container.PROTOCOL, 2, payload))
    with path.open("r+b") as file:
        file.truncate(24 + 2 + payload + 32)
    with pytest.raises(ModelFileError, match="larger than"):
        container.read(path)


def test__load__renamed_object_dump_with_a_canary__never_runs_it(tmp_path: Path) -> None:
    canary, path = tmp_path / "canary", tmp_path / "evil.clb"
    dump = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
    for content in (dump, b"\x80\x04" + dump, signed(dump, dump), signed(b"{}", dump)):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            load(path)
    assert not canary.exists()


MEMORY = """
import resource, sys, torch
from clbruno.persist import container
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
start = peak()
try:
    container.read(sys.argv[1])
except Exception as error:
    print(error, file=sys.stderr)
print(peak() - start)
"""


@pytest.mark.parametrize("whole", [True, False])
def test__read__large_file__takes_less_memory_than_twice_the_file(
    tmp_path: Path, whole: bool
) -> None:
    path, size = tmp_path / "large.clb", 100_000_000
    container.write(path, {}, {"a": torch.ones(size // 8), "b": torch.ones(size // 16).double()})
    if not whole:
        with path.open("r+b") as file:
            file.seek(size // 2)
            file.write(b"damage")
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < (1.2 * size if whole else 0.1 * size)
    assert ("checksum" in run.stderr) == (not whole)
