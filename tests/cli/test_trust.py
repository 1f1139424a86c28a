"""`compare`, `audit` and the cautious answers of `predict`, from the command line."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.conftest import FEATURES, World, table, write_csv


def test__compare__same_kind_of_rows__shows_the_tasks_and_ends_well(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, _ = table(["LUAD", "LUSC"], 60, seed=5)
    batch = write_csv(tmp_path / "batch.csv", x, {})

    ended = clbruno("compare", world.model, batch, "--json")

    assert ended.code == 0, ended.err
    found = ended.json()
    assert found["nearest"] == "Boston"
    assert not found["drift"]
    assert found["matches"][0]["share"] == 1


def test__compare__shifted_feature__is_named_and_ends_with_code_4(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, _ = table(["LUAD", "LUSC"], 60, seed=5)
    x[:, 2] += 1.2
    batch = write_csv(tmp_path / "batch.csv", x, {})

    ended = clbruno("compare", world.model, batch, "--task", "Boston")

    assert ended.code == 4
    assert "Drift" in ended.out
    assert FEATURES[2] in ended.out
    assert clbruno("compare", world.model, batch, "--level", "1e-300").code == 0


def test__compare__unknown_task__is_bad_input(clbruno: Any, world: World) -> None:
    ended = clbruno("compare", world.model, world.new, "--task", "Rome", "--ignore", "patient")

    assert ended.code == 2
    assert "unknown task 'Rome'" in ended.err


def test__audit__rows_in_and_out__shows_every_attack(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, y = table(["LUAD", "LUSC"], 60, seed=7)
    others = write_csv(tmp_path / "others.csv", x, {"diagnosis": y})
    asked = ("audit", world.model, "--members", world.boston, "--non-members", others)
    named = ("--label", "diagnosis", "--task", "Boston")

    found = clbruno(*asked, *named, "--json").json()

    assert [group["name"] for group in found["groups"]][:1] == ["all"]
    names = {attack["name"] for attack in found["groups"][0]["attacks"]}
    assert names == {"likelihood", "likelihood ratio", "nearest generated"}
    assert 0 <= found["closer_to_members"] <= 1
    text = clbruno(*asked, *named)
    assert text.code == 0
    assert "no number here is a guarantee" in text.out


def test__audit__label_that_was_never_learned__is_bad_input(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, _ = table(["LUAD", "LUSC"], 8, seed=7)
    others = write_csv(tmp_path / "others.csv", x, {"diagnosis": ["KIRC"] * 8})

    ended = clbruno(
        *("audit", world.model, "--members", world.boston, "--non-members", others),
        *("--label", "diagnosis", "--task", "Boston"),
    )

    assert ended.code == 2
    assert "KIRC" in ended.err


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test__predict__coverage_and_abstain__adds_sets_and_leaves_labels_empty(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, _ = table(["LUAD", "LUSC"], 20, seed=5)
    x[-1] = 500
    batch, model = write_csv(tmp_path / "batch.csv", x, {}), tmp_path / "m.clb"
    asked = ("--label", "diagnosis", "--task", "Boston", "--set", "couplings=0")
    clbruno("learn", model, world.boston, *asked)  # so few rows are all needed for the sets

    ended = clbruno("predict", model, batch, "--coverage", "0.9", "--abstain", "0.05")

    found = rows_of(ended.out)
    assert found[-1]["label"] == ""
    assert {row["label"] for row in found} == {"", "LUAD", "LUSC"}
    assert all(set(row["set"].split("|")) <= {"LUAD", "LUSC"} for row in found)


def test__predict__a_column_is_gone__is_reported_then_refused_or_answered(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    x, y = table(["LUAD", "LUSC"], 10, seed=5)
    path = tmp_path / "gap.csv"
    with path.open("w") as file:
        print(",".join(FEATURES[:3]), file=file)
        for row in x[:, :3].tolist():
            print(",".join(map(str, row)), file=file)

    refused = clbruno("predict", world.model, path)
    answered = clbruno("predict", world.model, path, "--missing", "marginal")

    assert refused.code == 2
    assert "3 of 4 features are there, and carry" in refused.err
    assert "'g3'" in refused.err
    assert answered.code == 0, answered.err
    assert answered.err.count("3 of 4 features are there") == 1
    labels = [row["label"] for row in rows_of(answered.out)]
    assert np.mean([guess == truth for guess, truth in zip(labels, y, strict=True)]) == 1


def test__predict__empty_cells__are_refused_or_answered(
    clbruno: Any, world: World, tmp_path: Path
) -> None:
    path = tmp_path / "gap.csv"
    path.write_text(",".join(FEATURES) + "\n0,,0.1,0.2\n4,4,4,nan\n")

    assert clbruno("predict", world.model, path).code == 2
    answered = clbruno("predict", world.model, path, "--missing", "marginal")

    assert answered.code == 0, answered.err
    assert [row["label"] for row in rows_of(answered.out)] == ["LUAD", "LUSC"]
