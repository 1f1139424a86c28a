"""The commands, their arguments and their help. What they do is imported when they run."""

from collections.abc import Callable
from typing import Any

import click

from clbruno.cli.program import Program, debug_option

# Files are opened, and complained about, in one place; click only completes their names.
PATH = click.Path(readable=False, allow_dash=True)
MODEL = click.argument("model", type=PATH)
DATA = click.argument("data", type=PATH)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
IGNORE = click.option(
    "--ignore", multiple=True, metavar="COLUMN", help="Leave a column out; may be given often."
)
OUT = click.option(
    "-o",
    "--output",
    type=PATH,
    help="Write to this file (.csv, .tsv, .json, .jsonl, .npz, .parquet) and not to the screen.",
)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Completion in the shell:
      bash   eval "$(_CLBRUNO_COMPLETE=bash_source clbruno)"      in ~/.bashrc
      zsh    eval "$(_CLBRUNO_COMPLETE=zsh_source clbruno)"       in ~/.zshrc
      fish   _CLBRUNO_COMPLETE=fish_source clbruno | source       in ~/.config/fish/config.fish

    \b
    Exit codes: 0 done, 2 bad input, 3 an update refused by --validation, 4 drift found by
    compare, 130 stopped by Ctrl-C.
    """,
)
@click.version_option(package_name="clbruno")
def app() -> None:
    """Learn from labelled data that arrive in pieces, keep one model file and no sample.

    DATA is a table: CSV or TSV (also with .gz), Parquet, NPZ (the arrays X, feature_names and one
    for each column), h5ad, a folder of Parquet files, or - for CSV or TSV on standard input.
    """


def _command(example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Register a command with an example in its help."""

    def register(function: Callable[..., Any]) -> click.Command:
        name = function.__name__.removesuffix("_")
        return app.command(name, epilog=f"\b\nExample:\n  {example}")(debug_option(function))

    return register


@_command("clbruno learn tumours.clb boston.csv --label diagnosis --task Boston")
@MODEL
@DATA
@click.option("--label", required=True, metavar="COLUMN", help="The column with the labels.")
@click.option("--task", metavar="NAME", help="The task (site, cohort, therapy) of all rows.")
@click.option("--task-column", metavar="COLUMN", help="The column with the task of each row.")
@click.option("--recipe", help="'default' or 'paper'; only when the model is created.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Replace a number of the recipe, such as max_epochs=20; only when the model is created.",
)
@click.option(
    "--validation",
    type=PATH,
    metavar="FILE",
    help="Refuse the update if it lowers the accuracy on this file (same columns) too much.",
)
@click.option(
    "--max-drop",
    type=click.FloatRange(0, 1),
    default=0.02,
    show_default=True,
    help="How much accuracy every known class and task may lose on the validation file.",
)
@click.option(
    "--buffer",
    type=click.IntRange(2),
    metavar="ROWS",
    help="Learn through a buffer of so many rows: for a table larger than memory. A folder always "
    "is; its buffer holds 8 million numbers.",
)
@click.option("--allow-small", is_flag=True, help="Learn classes of very few samples as well.")
@IGNORE
@SEED
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda, ...")
@JSON
def learn(**options: Any) -> None:
    """Learn DATA: create MODEL, or update it with a new task, new classes or more samples.

    The file is replaced only when the update succeeded. All columns but the label, the task and
    those of --ignore are features.
    """
    from clbruno.cli import learning

    learning.learn(**options)


@_command("clbruno predict tumours.clb new.csv --id patient -o answers.csv")
@MODEL
@DATA
@click.option("--task", metavar="NAME", help="The task of all rows, if it is known.")
@click.option("--id", "id_column", metavar="COLUMN", help="Copy this column to the output.")
@click.option(
    "--missing",
    type=click.Choice(["error", "marginal"]),
    default="error",
    show_default=True,
    help="'marginal' answers rows with empty features, or without some columns, from the others.",
)
@click.option(
    "--coverage", type=SHARE, help="Add the set of labels that covers the true one so often."
)
@click.option(
    "--abstain", type=SHARE, help="Leave the label empty where a row is untypical or unsure."
)
@IGNORE
@OUT
@JSON
def predict(**options: Any) -> None:
    """Predict label and task of every row of DATA, with probabilities.

    Typicality is the share of samples of the task that are as unusual as the row or more: near 0
    means unlike anything that was learned.
    """
    from clbruno.cli import answering

    answering.predict(**options)


@_command("clbruno sample tumours.clb -n 100 --task Boston --label LUAD -o made.csv")
@MODEL
@click.option("-n", "count", type=click.IntRange(1), default=10, show_default=True)
@click.option("--task", metavar="NAME", help="Only this task.")
@click.option("--label", metavar="NAME", help="Only this label.")
@SEED
@OUT
@JSON
def sample(**options: Any) -> None:
    """Draw new samples from what MODEL has learned."""
    from clbruno.cli import answering

    answering.sample(**options)


@_command("clbruno compare tumours.clb march.csv --task Boston --level 0.001")
@MODEL
@DATA
@click.option("--task", metavar="NAME", help="Compare with this task alone.")
@click.option(
    "--level",
    type=SHARE,
    default=0.001,
    show_default=True,
    help="Exit code 4 if the rows fit no task with a p-value of at least this.",
)
@IGNORE
@JSON
def compare(**options: Any) -> None:
    """Tell whether the unlabelled rows of DATA look like the tasks that MODEL has learned.

    Shows for each task how probable it is, whether the rows are exchangeable with those that were
    learned, and the features that differ most. Exit code 4 on drift.
    """
    from clbruno.cli import comparing

    comparing.compare(**options)


@_command("clbruno audit tumours.clb --members in.csv --non-members out.csv --label diagnosis")
@MODEL
@click.option("--members", type=PATH, required=True, help="Rows that MODEL has learned.")
@click.option("--non-members", type=PATH, required=True, help="Rows like them that it has not.")
@click.option("--label", required=True, metavar="COLUMN", help="The column with the labels.")
@click.option("--task", metavar="NAME", help="The task of all rows.")
@click.option("--task-column", metavar="COLUMN", help="The column with the task of each row.")
@IGNORE
@SEED
@JSON
def audit(**options: Any) -> None:
    """Attack MODEL: how well does it tell who was in its data?

    Measures membership inference and how close generated rows come to learned ones. What it finds
    is a lower bound: another attack may find more.
    """
    from clbruno.cli import auditing

    auditing.audit(**options)


@_command("clbruno inspect tumours.clb")
@MODEL
@JSON
def inspect(**options: Any) -> None:
    """Show tasks, classes, counts, features, recipe and size of MODEL."""
    from clbruno.cli import showing

    showing.inspect(**options)


@_command("clbruno log tumours.clb --json")
@MODEL
@JSON
def log(**options: Any) -> None:
    """Show every update that MODEL has had."""
    from clbruno.cli import showing

    showing.log(**options)


@_command("clbruno verify tumours.clb")
@MODEL
@JSON
def verify(**options: Any) -> None:
    """Check MODEL whole: exit code 0, or say what is wrong."""
    from clbruno.cli import showing

    showing.verify(**options)


@_command("clbruno forget tumours.clb --task Boston --label LUAD")
@MODEL
@click.option("--task", metavar="NAME", help="Forget this task, or --label in this task alone.")
@click.option("--label", metavar="NAME", help="Forget this label.")
@JSON
def forget(**options: Any) -> None:
    """Drop the statistics and embeddings of a task or a label, and say what may be left."""
    from clbruno.cli import forgetting

    forgetting.forget(**options)


@_command("clbruno merge boston.clb oslo.clb --base start.clb -o both.clb")
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="The model file to write.")
@click.option(
    "--base",
    type=PATH,
    metavar="FILE",
    help="The model that both descend from; needed for classes that it knew and both learned.",
)
@click.option(
    "--validation",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Report the accuracy of both models and the merged one on it; may be given often.",
)
@click.option("--label", metavar="COLUMN", help="The column with the labels, for --validation.")
@click.option("--task", metavar="NAME", help="The task of all rows, for --validation.")
@click.option("--task-column", metavar="COLUMN", help="The column with the task of each row.")
@IGNORE
@JSON
def merge(**options: Any) -> None:
    """Make one model of FIRST and SECOND, which learned at different sites.

    Exact where both are copies of one file that went on learning with the default recipe: the
    statistics are added up. Otherwise FIRST learns rows that SECOND generates, and the accuracy
    that this costs is reported.
    """
    from clbruno.cli import merging

    merging.merge(**options)


def _about_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that asks a model about tables."""
    for option in (
        IGNORE,
        click.option("--task-column", metavar="COLUMN", help="The column with the true tasks."),
        click.option(
            "--task",
            multiple=True,
            metavar="NAME",
            help="The true task of all rows; or give it once per --data, in the same order.",
        ),
        click.option("--label", metavar="COLUMN", help="The column with the true labels."),
        click.option(
            "--data", multiple=True, type=PATH, metavar="FILE", help="Rows; may be given often."
        ),
    ):
        function = option(function)
    return function


@_command("clbruno report tumours.clb --data test.csv --label diagnosis --id patient")
@MODEL
@_about_data
@click.option("--id", "id_column", metavar="COLUMN", help="The column with the rows' names.")
@click.option(
    "--explain",
    multiple=True,
    metavar="NAME",
    help="Show which features pulled this row to its class; may be given often.",
)
@click.option("-o", "--output", type=PATH, default="report.html", show_default=True)
def report(**options: Any) -> None:
    """Write a report on MODEL: one HTML file with pictures, for people.

    Without --data it tells what the model knows and how it came about. With it: what is confused,
    how sure and how typical the answers are, how far the generated samples match.
    """
    from clbruno.cli import reporting

    reporting.report(**options)


@_command("clbruno card tumours.clb --data test.csv --label diagnosis -o card.md")
@MODEL
@_about_data
@click.option("-o", "--output", type=PATH, default="card.md", show_default=True)
def card(**options: Any) -> None:
    """Write a model card: the facts of MODEL that a change-control file asks for, in Markdown."""
    from clbruno.cli import reporting

    reporting.card(**options)


@_command("clbruno demo")
def demo() -> None:
    """Learn handwritten digits in five pieces, and show what is remembered."""
    from clbruno import demo as demonstration

    demonstration.run()
