"""Every command on every format, and the five commands of a new user."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from clbruno import CLBrunoClassifier, load, save

COMMANDS = (
    "learn",
    "predict",
    "sample",
    "inspect",
    "log",
    "verify",
    "forget",
    "merge",
    "report",
    "card",
    "demo",
)
ANSWERS = ["label", "probability", "task", "task_probability", "typicality"]
FEATURES = ("g0", "g1", "g2", "g3")


def rows_of(text: str) -> list[dict[str, str]]:
    """A CSV text as one dictionary a row."""
    return list(csv.DictReader(io.StringIO(text)))


def test__installed__cohort_in_two_files_and_a_third__from_nothing_to_predictions(
    installed: Any, world: Any, tmp_path: Path
) -> None:
    quick = ("--set", "max_epochs=1")
    steps = [
        ("learn", "m.clb", world.boston, "--label", "diagnosis", "--task", "Boston", *quick),
        ("learn", "m.clb", world.oslo, "--label", "diagnosis", "--task", "Oslo"),
        ("inspect", "m.clb"),
        ("predict", "m.clb", world.new, "--id", "patient", "-o", "answers.csv"),
        ("verify", "m.clb"),
    ]
    for step in steps:
        ended = installed(*step, cwd=tmp_path)
        assert ended.code == 0, ended.err
        assert ended.err == ""
    answers = rows_of((tmp_path / "answers.csv").read_text())
    assert list(answers[0]) == ["patient", *ANSWERS]
    assert [row["patient"] for row in answers] == [f"p{at}" for at in range(30)]
    truth = ["LUAD", "LUSC", "BRCA"] * 10
    assert sum(row["label"] == name for row, name in zip(answers, truth, strict=True)) >= 28
    assert all(0 <= float(row[name]) <= 1 for row in answers for name in ANSWERS[1::2])


def test__learn__folder_of_parquet__is_streamed_and_predicted(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    (tmp_path / "oslo").mkdir()
    for at, table in enumerate((world.oslo, world.boston)):
        rows = pyarrow.csv.read_csv(table)
        pq.write_table(rows, tmp_path / "oslo" / f"{at}.parquet")
    model = world.copy(tmp_path)
    command = ("learn", model, "oslo", "--label", "diagnosis", "--task", "Oslo", "--json")

    ended = clbruno(*command, "--validation", world.oslo, cwd=tmp_path)

    assert ended.code == 0, ended.err
    assert ended.json()["rows"] == 140
    assert sorted(map(tuple, ended.json()["counts"])) == [
        ("Oslo", "BRCA", 30),
        ("Oslo", "LUAD", 70),
        ("Oslo", "LUSC", 40),
    ]
    assert len(clbruno("log", model, "--json").json()) == 2
    ended = clbruno("predict", model, "oslo", "--ignore", "diagnosis", cwd=tmp_path)
    assert len(rows_of(ended.out)) == 140


def test__merge__two_copies_of_a_file__is_exact_and_logged(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    start, (boston, oslo) = world.model, (tmp_path / "boston.clb", tmp_path / "oslo.clb")
    for path in (boston, oslo):
        path.write_bytes(start.read_bytes())
    learn = ("--label", "diagnosis", "--task")
    assert clbruno("learn", boston, world.boston, *learn, "Boston").code == 0
    assert clbruno("learn", oslo, world.oslo, *learn, "Oslo").code == 0
    both = tmp_path / "both.clb"

    exam = ("--validation", world.oslo, "--label", "diagnosis", "--json")
    ended = clbruno("merge", boston, oslo, "-o", both, *exam)

    assert ended.code == 0, ended.err
    assert ended.json()["exact"] is True
    (found,) = ended.json()["validation"]
    assert found["merged"] >= 0.95 > found["first"]
    log = clbruno("log", both, "--json").json()
    assert len(log) == 4
    assert log[1]["source"].startswith("boston.clb (SHA-256 ")
    assert log[2]["source"].startswith("oslo.clb (SHA-256 ")
    assert "merged boston.clb" in log[3]["source"]
    assert "oslo.clb (SHA-256" in clbruno("log", both).out
    assert clbruno("verify", both).code == 0
    classes = clbruno("inspect", both, "--json").json()["classes"]
    assert {(c["task"], c["label"]): c["samples"] for c in classes} == {
        ("Boston", "LUAD"): 80,
        ("Boston", "LUSC"): 80,
        ("Oslo", "LUAD"): 30,
        ("Oslo", "BRCA"): 30,
    }


def test__merge__both_learned_more_of_an_old_class__asks_for_the_base(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    start, one, other = world.model, tmp_path / "1.clb", tmp_path / "2.clb"
    for path in (one, other):
        path.write_bytes(start.read_bytes())
        learn = ("learn", path, world.boston, "--label", "diagnosis", "--task", "Boston")
        assert clbruno(*learn).code == 0

    refused = clbruno("merge", one, other, "-o", tmp_path / "both.clb")
    ended = clbruno("merge", one, other, "-o", tmp_path / "both.clb", "--base", start)

    assert refused.code == 2
    assert "--base" in refused.err
    assert ended.code == 0, ended.err
    assert "(exact)" in ended.out
    assert "Accuracy on replay" in ended.out
    bad = clbruno("merge", one, other, "-o", tmp_path / "x.clb", "--validation", world.oslo)
    assert bad.code == 2
    assert "--label" in bad.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1.clb", "2.clb", "both.clb"]


def test__learn__buffer__streams_any_table_and_counts_small_classes_over_all_of_it(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    command = ("learn", tmp_path / "m.clb", world.boston, "--label", "diagnosis", "--buffer", "8")
    ended = clbruno(*command, "--validation", world.boston)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    few = tmp_path / "few.csv"
    few.write_text("".join(world.boston.read_text().splitlines(keepends=True)[:8]))
    before = (tmp_path / "m.clb").read_bytes()

    ended = clbruno("learn", tmp_path / "m.clb", few, *command[3:], "--task", "new")

    assert ended.code == 2
    assert "fewer than 5 samples" in ended.err
    assert (tmp_path / "m.clb").read_bytes() == before


def test__installed__help_and_version__load_nothing_heavy(installed: Any) -> None:
    ended = installed("--help")
    assert ended.code == 0
    assert all(f"\n  {name} " in ended.out for name in COMMANDS)
    assert all(shell in ended.out for shell in ("bash_source", "zsh_source", "fish_source"))
    assert installed("--version").out.startswith("clbruno, version ")
    script = (
        "import sys; sys.argv = ['clbruno', '--help']; from clbruno.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'sklearn', 'rich'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip().endswith("[]")


def test__installed__demo__ends_with_the_path_of_its_report(installed: Any, tmp_path: Path) -> None:
    ended = installed("demo", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "learned in five steps" in ended.out
    (report,) = tmp_path.iterdir()
    assert ended.out.strip().splitlines()[-1] == f"report: {report}"
    page = report.read_text(encoding="utf-8")
    assert page.index('id="opening"') < page.index('id="retention"')


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test__installed__completion__is_a_script_for_the_shell(shell: str) -> None:
    program = Path(sys.executable).with_name("clbruno")
    run = subprocess.run(
        [program],
        env={**os.environ, "_CLBRUNO_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_CLBRUNO_COMPLETE" in run.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test__help__of_every_command__has_an_example(clbruno: Any, command: str) -> None:
    ended = clbruno(command, "--help")
    assert ended.code == 0
    assert f"Example:\n    clbruno {command}" in ended.out


def _save_as(path: Path, x: np.ndarray, columns: dict[str, Any]) -> Path:
    """The same table in the format of the suffix."""
    import anndata
    import pandas as pd

    frame = pd.DataFrame({**columns, **dict(zip(FEATURES, x.T, strict=True))})
    suffix = "".join(path.suffixes)
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".npz":
        np.savez(path, X=x, feature_names=np.array(FEATURES), **columns)
    elif suffix == ".h5ad":
        obs = pd.DataFrame(columns, index=[f"cell{at}" for at in range(len(x))])
        anndata.AnnData(x, obs=obs, var=pd.DataFrame(index=list(FEATURES))).write_h5ad(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in suffix else ",")
    return path


def _table(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    y = np.array(["LUAD", "LUSC"] * 20)
    site = np.array(["A"] * 20 + ["B"] * 20)
    return rng.normal(4.0 * (y == "LUSC")[:, None], 1, (40, 4)), {"diagnosis": y, "site": site}


FORMATS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npz", ".h5ad")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test__learn_and_predict__every_format__the_same_model_and_answers(
    clbruno: Any, tmp_path: Path
) -> None:
    x, columns = _table(seed=0)
    new, _ = _table(seed=1)
    answers, learned = {}, {}
    for suffix in FORMATS:
        data = _save_as(tmp_path / f"d{suffix}", x, columns)
        fresh = _save_as(tmp_path / f"n{suffix}", new, {})
        model = tmp_path / f"m{suffix}.clb"
        ended = clbruno(
            "learn", model, data, "--label", "diagnosis", "--task-column", "site",
            "--set", "max_epochs=1", "--set", "hidden=8",
        )  # fmt: skip
        assert ended.code == 0, (suffix, ended.err)
        assert list(load(model).feature_names_in_) == list(FEATURES)
        learned[suffix] = load(model).predict_proba(new).tobytes()
        answers[suffix] = clbruno("predict", model, fresh).out
    assert len(set(learned.values())) == 1
    assert len(set(answers.values())) == 1
    assert len(rows_of(answers[".csv"])) == 40


def test__predict__standard_input__is_read_as_csv_or_tsv_zipped_or_not(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    plain = world.new.read_bytes()
    expected = clbruno("predict", world.model, world.new, "--id", "patient").out
    variants = [plain, plain.replace(b",", b"\t"), plain.replace(b",", b";"), gzip.compress(plain)]
    for content in variants:
        (tmp_path / "in").write_bytes(content)
        ended = clbruno("predict", world.model, "-", "--id", "patient", stdin=tmp_path / "in")
        assert ended.code == 0, ended.err
        assert ended.out == expected


def test__predict__every_output__holds_the_same_answers(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    import pandas as pd

    expected = pd.read_csv(
        io.StringIO(clbruno("predict", world.model, world.new, "--id", "patient").out)
    )
    readers = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".csv.gz": pd.read_csv,
        ".json": pd.read_json,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
        ".parquet": pd.read_parquet,
        ".npz": lambda path: pd.DataFrame(dict(np.load(path))),
    }
    for suffix, reader in readers.items():
        path = tmp_path / f"out{suffix}"
        ended = clbruno("predict", world.model, world.new, "--id", "patient", "-o", path)
        assert ended.code == 0, ended.err
        assert ended.out == f"Wrote 30 rows to {path}.\n"
        pd.testing.assert_frame_equal(reader(path), expected, check_dtype=False)
    lines = clbruno("predict", world.model, world.new, "--id", "patient", "--json").out
    pd.testing.assert_frame_equal(
        pd.DataFrame([json.loads(line) for line in lines.splitlines()]), expected, check_dtype=False
    )


def test__predict__reordered_columns__are_matched_by_name(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    import pandas as pd

    frame = pd.read_csv(world.new)
    frame[["g2", "patient", "g0", "g3", "g1"]].to_csv(tmp_path / "other.csv", index=False)
    asked = [
        clbruno("predict", world.model, file, "--ignore", "patient").out
        for file in (world.new, tmp_path / "other.csv")
    ]

    expected, found = (pd.read_csv(io.StringIO(text)) for text in asked)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)  # products may round differently


def test__predict__known_task__answers_within_it(clbruno: Any, world: Any, tmp_path: Path) -> None:
    path = world.copy(tmp_path)
    assert clbruno("learn", path, world.oslo, "--label", "diagnosis", "--task", "Oslo").code == 0
    ended = clbruno("predict", path, world.new, "--id", "patient", "--task", "Boston")
    rows = rows_of(ended.out)
    assert {row["task"] for row in rows} == {"Boston"}
    assert {row["label"] for row in rows} == {"LUAD", "LUSC"}


def test__predict__many_chunks__equal_one(clbruno: Any, world: Any, tmp_path: Path) -> None:
    header, *lines = world.new.read_text().splitlines()
    (tmp_path / "long.csv").write_text("\n".join([header, *lines * 9000]) + "\n")
    began = clbruno("predict", world.model, world.new, "--id", "patient").out.splitlines()
    ended = clbruno("predict", world.model, tmp_path / "long.csv", "--id", "patient")
    out = ended.out.splitlines()
    assert len(out) == 1 + 30 * 9000
    assert out[-30:] == began[1:]


def test__sample__output__can_be_learned_again(clbruno: Any, world: Any, tmp_path: Path) -> None:
    made, again = tmp_path / "made.npz", tmp_path / "again.clb"
    ended = clbruno("sample", world.model, "-n", 60, "--task", "Boston", "-o", made)
    assert ended.code == 0, ended.err
    ended = clbruno(
        "learn", again, made, "--label", "label", "--task-column", "task", "--set", "max_epochs=1"
    )
    assert ended.code == 0, ended.err
    assert load(again).tasks_.tolist() == ["Boston"]
    one = clbruno("sample", world.model, "-n", 5, "--label", "LUSC").out
    assert one == clbruno("sample", world.model, "-n", 5, "--label", "LUSC").out
    assert one != clbruno("sample", world.model, "-n", 5, "--label", "LUSC", "--seed", 1).out
    assert {row["label"] for row in rows_of(one)} == {"LUSC"}


def test__sample__more_rows_than_any_memory__are_drawn_and_written_in_pieces(world: Any) -> None:
    program = Path(sys.executable).with_name("clbruno")
    command = f"'{program}' sample '{world.model}' -n {10**12} | head -3"
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert len(rows_of(run.stdout)) == 2
    assert run.stderr == ""


def test__sample__several_pieces__are_different_rows(clbruno: Any, world: Any) -> None:
    out = clbruno("sample", world.model, "-n", 300_000, "--label", "LUAD", "--json").out
    lines = out.splitlines()
    assert len(lines) == len(set(lines)) == 300_000


def test__inspect_and_log__json__say_what_was_learned(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = world.copy(tmp_path)
    command = ("learn", path, world.oslo, "--label", "diagnosis", "--task", "Oslo", "--json")
    report = clbruno(*command).json()
    assert (report["update"], report["created"], report["refused"]) == (2, False, False)
    assert report["counts"] == [["Oslo", "BRCA", 30], ["Oslo", "LUAD", 30]]
    facts = clbruno("inspect", path, "--json").json()
    assert facts["tasks"] == ["Boston", "Oslo"]
    assert {(c["task"], c["label"], c["samples"]) for c in facts["classes"]} == {
        ("Boston", "LUAD", 40),
        ("Boston", "LUSC", 40),
        ("Oslo", "BRCA", 30),
        ("Oslo", "LUAD", 30),
    }
    assert facts["features"] == list(FEATURES)
    assert facts["bytes"] == path.stat().st_size
    log = clbruno("log", path, "--json").json()
    assert [record["number"] for record in log] == [1, 2]
    assert log[1]["counts"] == report["counts"]
    assert log[1]["versions"].keys() == {"clbruno", "torch", "numpy"}
    for command in ("inspect", "log", "verify"):
        ended = clbruno(command, path)
        assert ended.code == 0
        assert "Traceback" not in ended.err
    assert "Boston" in clbruno("inspect", path).out
    assert clbruno("verify", path, "--json").json()["whole"] is True


def _validation(folder: Path, world: Any) -> Path:
    path = folder / "validation.csv"
    path.write_bytes(world.boston.read_bytes())
    return path


def test__learn__validation_that_holds__is_shown_and_logged(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = world.copy(tmp_path)
    exam = _validation(tmp_path, world)
    command = ("learn", path, world.oslo, "--label", "diagnosis", "--task", "Oslo")
    ended = clbruno(*command, "--validation", exam, "--max-drop", 0.5)
    assert ended.code == 0, ended.err
    assert "Accuracy on the validation file" in ended.out
    record = clbruno("log", path, "--json").json()[-1]
    assert record["before"]["validation accuracy, label LUSC"] > 0.9
    assert record["after"]["validation accuracy, label LUSC"] > 0.9


def test__learn__validation_that_falls__is_refused_with_code_3(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    # The same rows under swapped names: whoever learns them forgets who was who.
    path = world.copy(tmp_path)
    swapped = (
        world.boston.read_text().replace("LUAD", "?").replace("LUSC", "LUAD").replace("?", "LUSC")
    )
    header, *lines = swapped.splitlines()
    (tmp_path / "swapped.csv").write_text("\n".join([header, *lines * 20]) + "\n")
    command = ("learn", path, tmp_path / "swapped.csv", "--label", "diagnosis", "--task", "Boston")
    exam = _validation(tmp_path, world)
    ended = clbruno(*command, "--validation", exam)
    assert ended.code == 3
    assert "too low" in ended.out
    assert "Refused: the update lowers the accuracy of label 'LUAD'" in ended.out
    assert path.read_bytes() == world.model.read_bytes()
    report = clbruno(*command, "--validation", exam, "--json")
    assert report.code == 3
    assert report.json()["refused"] is True
    assert all(figure["dropped"] for figure in report.json()["validation"])
    assert path.read_bytes() == world.model.read_bytes()
    # A larger drop may be allowed.
    assert clbruno(*command, "--validation", exam, "--max-drop", 1).code == 0


def test__learn__validation_by_task__has_a_line_for_each(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    lines = world.boston.read_text().splitlines()
    with_site = "\n".join([f"site,{lines[0]}", *(f"Boston,{line}" for line in lines[1:])])
    (tmp_path / "d.csv").write_text(with_site)
    path = world.copy(tmp_path)
    command = ("learn", path, tmp_path / "d.csv", "--label", "diagnosis", "--task-column", "site")
    ended = clbruno(*command, "--validation", tmp_path / "d.csv", "--json")
    assert ended.code == 0, ended.err
    groups = [(figure["kind"], figure["name"]) for figure in ended.json()["validation"]]
    assert groups == [("label", "LUAD"), ("label", "LUSC"), ("task", "Boston")]


def test__learn__small_class__is_refused_unless_allowed_and_marked_then(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    header, *lines = world.oslo.read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([header, *lines[:6]]) + "\n")
    path = world.copy(tmp_path)
    command = ("learn", path, tmp_path / "few.csv", "--label", "diagnosis", "--task", "Oslo")
    ended = clbruno(*command)
    assert ended.code == 2
    assert "fewer than 5 samples: 'LUAD' (3), 'BRCA' (3)" in ended.err
    assert "--allow-small" in ended.err
    assert path.read_bytes() == world.model.read_bytes()
    ended = clbruno(*command, "--allow-small")
    assert ended.code == 0
    assert "Warning: fewer than 5 samples of" in ended.err
    assert clbruno("inspect", path).out.count("small: close to showing them") == 2
    assert "few samples of" in clbruno("log", path).out
    # Two more batches of the same classes make them large enough.
    assert clbruno(*command).code == 0
    assert "small" not in clbruno("inspect", path).out


@pytest.mark.parametrize(
    "choice", [("--label", "LUSC"), ("--task", "Oslo"), ("--task", "Oslo", "--label", "LUAD")]
)
def test__forget__what_was_asked__is_gone_and_the_rest_is_named(
    clbruno: Any, world: Any, tmp_path: Path, choice: tuple[str, ...]
) -> None:
    path = world.copy(tmp_path)
    assert clbruno("learn", path, world.oslo, "--label", "diagnosis", "--task", "Oslo").code == 0
    before = {tuple(c.values())[:2] for c in clbruno("inspect", path, "--json").json()["classes"]}
    ended = clbruno("forget", path, *choice)
    assert ended.code == 0, ended.err
    assert "The scaling of the features" in ended.out
    after = {tuple(c.values())[:2] for c in clbruno("inspect", path, "--json").json()["classes"]}
    wanted = dict(zip(choice[::2], choice[1::2], strict=True))
    gone = {
        (task, label)
        for task, label in before
        if wanted.get("--task", task) == task and wanted.get("--label", label) == label
    }
    assert after == before - gone
    assert gone
    assert clbruno("verify", path).code == 0
    assert clbruno("predict", path, world.new, "--id", "patient").code == 0
    assert clbruno("forget", path, *choice).code == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, {"weights of the flow"}),
        ({"couplings": 0}, set()),
        ({"couplings": 0, "memory": 20}, {"kept in thin form"}),
        ({"couplings": 0, "whiten": True}, {"weights of the flow"}),
        (
            {"recipe": "paper", "couplings": 1, "hidden": 4, "context_dim": 2, "max_epochs": 1},
            {"weights of the flow", "one sum for all labels"},
        ),
    ],
)
def test__forget__what_may_be_left__is_what_this_model_keeps(
    clbruno: Any, tmp_path: Path, settings: dict[str, Any], named: set[str]
) -> None:
    x, columns = _table(seed=0)
    model = CLBrunoClassifier(random_state=0, **settings).fit(x, columns["diagnosis"])
    save(model, tmp_path / "m.clb")
    left = clbruno("forget", tmp_path / "m.clb", "--label", "LUSC", "--json").json()["left"]
    every = {"kept in thin form", "weights of the flow", "one sum for all labels"}
    assert {name for name in every if any(name in sentence for sentence in left)} == named
    assert any("update log" in sentence for sentence in left)


def test__forget__label_of_a_task_with_one_sum__says_that_it_stays(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.clb"
    ended = clbruno(
        "learn", path, world.boston, "--label", "diagnosis", "--recipe", "paper",
        "--set", "max_epochs=1", "--set", "hidden=8", "--set", "context_dim=4",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    ended = clbruno("forget", path, "--label", "LUSC")
    assert ended.code == 0, ended.err
    assert "one sum for all labels of a task" in ended.out
    assert clbruno("verify", path).code == 0


def test__learn__model_made_in_python_with_numbers_as_labels__goes_on(
    clbruno: Any, tmp_path: Path
) -> None:
    x, columns = _table(seed=0)
    labels = (columns["diagnosis"] == "LUSC").astype(int)
    save(CLBrunoClassifier(max_epochs=1, random_state=0).fit(x, labels), tmp_path / "m.clb")
    np.savez(tmp_path / "d.npz", X=x, y=labels)
    ended = clbruno("learn", tmp_path / "m.clb", tmp_path / "d.npz", "--label", "y")
    assert ended.code == 0, ended.err
    assert load(tmp_path / "m.clb").class_count_.tolist() == [40, 40]
    np.savez(tmp_path / "d.npz", X=x, y=columns["diagnosis"])
    ended = clbruno("learn", tmp_path / "m.clb", tmp_path / "d.npz", "--label", "y")
    assert ended.code == 2
    assert "another kind" in ended.err


def test__predict__pipe_that_closes_early__ends_without_a_word(
    installed: Any, world: Any, tmp_path: Path
) -> None:
    header, *lines = world.new.read_text().splitlines()
    (tmp_path / "long.csv").write_text("\n".join([header, *lines * 3000]) + "\n")
    program = Path(sys.executable).with_name("clbruno")
    command = f"'{program}' predict '{world.model}' long.csv --id patient | head -2"
    run = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert len(run.stdout.splitlines()) == 2
    assert run.stderr == ""


def on_a_terminal(*arguments: Any) -> str:
    """What the program shows on a terminal."""
    import pty

    program = str(Path(sys.executable).with_name("clbruno"))
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [program, *map(str, arguments)],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(child)
    shown = b""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    os.close(parent)
    return shown.decode()


def test__predict__on_a_terminal__is_a_table_with_progress(world: Any, tmp_path: Path) -> None:
    header, *lines = world.new.read_text().splitlines()
    (tmp_path / "long.csv").write_text("\n".join([header, *lines * 12_000]) + "\n")
    text = on_a_terminal("predict", world.model, tmp_path / "long.csv", "--id", "patient")
    assert "task_probability" in text
    assert "359,980 more rows" in text
    assert "reading" in text


@pytest.mark.parametrize("couplings", [0, 1])
def test__learn__on_a_terminal__shows_one_bar_and_in_a_pipe_none(
    clbruno: Any, world: Any, tmp_path: Path, couplings: int
) -> None:
    settings = ("couplings", couplings), ("hidden", 4), ("max_epochs", 2), ("patience", 9)
    more = [part for name, value in settings for part in ("--set", f"{name}={value}")]
    command = ("learn", world.boston, "--label", "diagnosis", *more)
    text = on_a_terminal(command[0], tmp_path / "a.clb", *command[1:])
    assert "update 1" in text
    assert "update 2" not in text
    shown = re.findall(r"epoch (\S+)  loss -?\d+\.\d+  held-back -?\d+\.\d+ \(best", text)
    assert set(shown) == ({"2/2"} if couplings else set()) | set(shown) & {"1/2"}
    assert ("epoch" in text) == bool(couplings)
    done = re.search(
        r"in closed form  held-back accuracy \d\.\d+  held-back log-loss \d\.\d+", text
    )
    assert (done is None) == bool(couplings)
    ended = clbruno(command[0], tmp_path / "b.clb", *command[1:])
    assert (ended.code, ended.err) == (0, "")
    assert "epoch" not in ended.out


def test__inspect__names_with_control_characters__do_not_reach_the_terminal(
    clbruno: Any, tmp_path: Path
) -> None:
    x, _ = _table(seed=0)
    model = CLBrunoClassifier(max_epochs=1, random_state=0)
    model.fit(x, ["\x1b[2Jevil", "[bold]good"] * 20, task="\x1b]0;title\x07")
    save(model, tmp_path / "m.clb")
    for command in (("inspect",), ("log",), ("forget", "--label", "\x1b[2Jevil")):
        ended = clbruno(command[0], tmp_path / "m.clb", *command[1:])
        assert ended.code == 0
        assert "\x1b" not in ended.out
    assert "[bold]good" in clbruno("inspect", tmp_path / "m.clb").out


def test__learn__new_model_with_validation_in_another_order__matches_by_name(
    clbruno: Any, world: Any, tmp_path: Path
) -> None:
    import pandas as pd

    frame = pd.read_csv(world.boston)
    frame["g0"] += 100
    frame.to_csv(tmp_path / "d.csv", index=False)
    frame[["g3", "g0", "diagnosis", "g1", "g2"]].to_csv(tmp_path / "v.csv", index=False)
    command = ("learn", tmp_path / "m.clb", tmp_path / "d.csv", "--label", "diagnosis")
    ended = clbruno(*command, "--validation", tmp_path / "v.csv", "--json")
    assert ended.code == 0, ended.err
    assert all(f["after"] > 0.9 and f["before"] is None for f in ended.json()["validation"])
    (tmp_path / "v.csv").write_text("diagnosis,g0,g1,g2\nLUAD,1,2,3\n")
    ended = clbruno(*command, "--validation", tmp_path / "v.csv")
    assert ended.code == 2
    assert "v.csv: the features do not match" in ended.err


def test__log__table__names_what_was_learned(clbruno: Any, world: Any) -> None:
    out = clbruno("log", world.model).out
    for part in ("Boston: LUAD 40, LUSC 40", "default", "data ", "clbruno 0.", "torch ", "numpy "):
        assert part in out
