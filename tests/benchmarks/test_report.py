"""The generated page says nothing that is not in a JSON file."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from benchmarks import report, runner
from benchmarks.__main__ import main
from benchmarks.experiments import EXPERIMENTS
from benchmarks.methods import METHODS

PUBLISHED = report.PUBLISHED


def table_rows(page: str) -> list[tuple[str, list[str]]]:
    """(experiment, cells) of every row of every table."""
    names = {table.title: name for name, table in report.TABLES.items()}
    rows = []
    for section in page.split("\n## ")[1:]:
        experiment = names[section.splitlines()[0]]
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows += [(experiment, row) for row in cells if row[0] not in {"method", "group"}]
    return rows


def allowed(records: list[dict]) -> dict[tuple[str, str], set[str]]:
    """By experiment and title, every way in which the figures may be written."""
    found: dict[tuple[str, str], set[str]] = {}
    groups: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        groups.setdefault((record["experiment"], record["method"]), []).append(record)
    for (experiment, method), runs in groups.items():
        words = found[experiment, runs[0]["title"]] = {"-", "", str(len(runs))}
        words.add(PUBLISHED.get(experiment, {}).get(method, ""))
        words.add(PUBLISHED["seconds"].get(method, "") if experiment == "cifar100" else "")
        for run in runs:
            words.add(", ".join(f"{k} {v}" for k, v in run["settings"].items()))
        for name, cells in relation_cells(runs).items():
            found[experiment, name] = found.get((experiment, name), set()) | cells
        for key in runs[0]["figures"]:
            values = [r["figures"][key] for r in runs if r["figures"][key] is not None]
            if values:
                mean = statistics.fmean(values)
                words |= {f"{mean:.3f}", f"{mean:,.0f}", f"{mean:.1f}"}
                if len(values) > 1:
                    words.add(f"{mean:.3f} ± {statistics.stdev(values):.3f}")
    return found


def relation_cells(runs: list[dict]) -> dict[str, set[str]]:
    """By group of patients, its number and its means, counted row by row."""
    sums: dict[str, list[list[float]]] = {}
    for part in [part for run in runs for part in run.get("task_by_response", [])]:
        organ = {"Atezo": "kidney", "Nivo": "skin"}.get(part["task"])
        if organ:
            inside = part["label"] in {"kidney": ["KIRC", "KIRP", "KICH"], "skin": ["SKCM"]}[organ]
            word = "responders" if part["response"] == "R" else "non-responders"
            name = f"{part['task']}, {organ if inside else 'not ' + organ}, {word}"
            sums.setdefault(name, []).extend([part["mean"]] * part["rows"])
    return {
        name: {str(len(rows))}
        | {f"{statistics.fmean(column):.3f}" for column in zip(*rows, strict=True)}
        for name, rows in sums.items()
    }


def strangers(page: str, records: list[dict]) -> list[tuple[str, str]]:
    known = allowed(records)
    rows = table_rows(page)
    return [(row[0], c) for name, row in rows for c in row[1:] if c not in known[name, row[0]]]


def test__readme__committed__is_what_the_json_gives() -> None:
    records = report.load(runner.RESULTS)
    if not records:
        pytest.skip("no results yet")
    whole = report.README.read_text(encoding="utf-8")
    of_speed = report.speed.section(runner.RESULTS / "speed")
    page = whole.removesuffix(of_speed)
    assert strangers(page, records) == []
    pictures = re.findall(r"!\[(.*?)\]\(pictures/(.*?)\)", page)
    assert all((report.HERE / "pictures" / file).is_file() for _, file in pictures)
    names = {table.title: name for name, table in report.TABLES.items()}
    by_name = {
        names[section.splitlines()[0]]: re.findall(r"!\[(.*?)\]\(pictures/(.*?)\)", section)
        for section in page.split("\n## ")[1:]
    }
    assert report.render(records, by_name, of_speed) == whole


def test__strangers__changed_figure__is_found() -> None:
    record = {"experiment": "pancan", "method": "lda", "title": "T", "settings": {}}
    record["figures"] = {"error": 0.0412}
    good = f"\n## {report.TABLES['pancan'].title}\n| T | 1 | 0.041 |"
    assert strangers(good, [record]) == []
    assert strangers(good.replace("0.041", "0.042"), [record]) == [("T", "0.042")]


def test__report__two_quick_seeds__writes_mean_and_spread(tmp_path: Path) -> None:
    for seed in ("0", "1"):
        asked = ["pancan", "--quick", "--methods", "lda", "--seeds", seed]
        assert main([*asked, "--results", str(tmp_path)]) == 0
    assert report.load(tmp_path) == []
    for path in tmp_path.glob("*/*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "quick": False, "made_data": False}))
    report.write(tmp_path, tmp_path / "README.md")
    page = (tmp_path / "README.md").read_text()
    records = report.load(tmp_path)
    errors = [record["figures"]["error"] for record in records]
    assert f"| streaming LDA | 2 | {sum(errors) / 2:.3f} ± {statistics.stdev(errors):.3f}" in page
    assert "--seeds 0,1 --methods lda" in page
    assert (tmp_path / "pictures" / "pancan-curves.svg").is_file()
    assert strangers(page, records) == []


def test__published__names__are_methods_of_the_tables() -> None:
    for table in EXPERIMENTS:
        assert set(PUBLISHED[table]) - {"measure"} <= set(METHODS)


def test__results__committed__come_from_the_stated_grids() -> None:
    for record in report.load(runner.RESULTS):
        spec, name = METHODS[record["method"]], record["experiment"]
        grid = spec.searched(runner.DATA_OF.get(name, name))
        stale = f"run again: {record['command']}"
        assert record["grid"] == json.loads(json.dumps(grid)), stale
        assert record["title"] == spec.title, stale
        assert set(record["settings"]) == set(grid), stale


@pytest.mark.filterwarnings("ignore::clbruno.errors.SmallClassWarning")
def test__report__clbruno_and_its_oracle__draws_what_the_paper_shows(tmp_path: Path) -> None:
    methods = ["--methods", "clbruno,clbruno-oracle"]
    assert main(["synthetic,ici", "--quick", *methods, "--results", str(tmp_path)]) == 0
    for path in tmp_path.glob("*/*.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "quick": False, "made_data": False}))
    report.write(tmp_path, tmp_path / "README.md")
    page, records = (tmp_path / "README.md").read_text(), report.load(tmp_path)
    assert strangers(page, records) == []
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {
        "synthetic-samples-clbruno.svg",
        "ici-retention-clbruno.svg",
        "ici-tasks-clbruno.svg",
        "ici-relations-clbruno.svg",
    }
    assert "| Atezo, kidney, responders | " in page
    moved = page.replace("| Atezo, kidney, responders | ", "| Atezo, kidney, responders | 99 | ")
    assert strangers(moved, records) != []
    assert "**Open.** The images are not among the data files" in page
