"""The command line. Nothing heavy is imported before a command needs it."""


def main() -> None:
    """Run the `clbruno` program."""
    from clbruno.cli.app import app

    app(prog_name="clbruno")
