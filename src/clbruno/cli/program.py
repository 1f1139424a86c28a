"""How the program ends: exit codes, messages without a traceback, warnings in one line."""

import os
import sys
import traceback
import warnings
from typing import Any

import click

from clbruno.errors import CLBrunoError, SmallClassWarning

BAD_INPUT = 2
REFUSED = 3
DRIFTED = 4
STOPPED = 130
_UNFORESEEN = 1
_DEBUG = "clbruno.debug"
_STOPPED = "Stopped. What was there before is unchanged."


def debug_option(command: Any) -> Any:
    """Add `--debug`, which shows the traceback of an error."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        help="Show the traceback of an error.",
        callback=lambda context, _, value: context.meta.update({_DEBUG: value}),
    )(command)


class Program(click.Group):
    """A group of commands whose errors end in one line and an exit code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the program; Ctrl-C ends it in one line, also before a command has begun."""
        try:
            code = super().main(*args, **{**settings, "standalone_mode": False})
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt):
            click.echo(_STOPPED, err=True)
            sys.exit(STOPPED)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", SmallClassWarning)
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except KeyboardInterrupt:
                click.echo(_STOPPED, err=True)
                ctx.exit(STOPPED)
            except BrokenPipeError:
                # Whoever read our output has seen enough. Python would complain once more when
                # it flushes the closed pipe at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                ctx.exit(0)
            except Exception as error:
                if ctx.meta.get(_DEBUG):
                    traceback.print_exc()
                _complain(error, bool(ctx.meta.get(_DEBUG)))
                ctx.exit(BAD_INPUT if isinstance(error, CLBrunoError) else _UNFORESEEN)


def _complain(error: Exception, debug: bool) -> None:
    if isinstance(error, CLBrunoError):
        click.echo(f"Error: {error}", err=True)
    elif isinstance(error, MemoryError):
        click.echo("Error: there is not enough memory for this", err=True)
    else:
        hint = "" if debug else "; run it again with --debug to see where"
        click.echo(f"Unforeseen error: {type(error).__name__}: {error}{hint}", err=True)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {message}", err=True)
