"""Run the program many times from one process that has imported it once.

Each line of standard input is a request in JSON; the program runs in a forked child, as if it had
been started anew. The answer is its exit code.
"""

import json
import os
import resource
import signal
import sys
import time
from typing import Any

import numpy as np
import torch

import clbruno.cli.answering
import clbruno.cli.forgetting
import clbruno.cli.learning
import clbruno.cli.merging
import clbruno.cli.reporting
import clbruno.cli.showing
import clbruno.learn.engine  # noqa: F401
from clbruno import CLBrunoClassifier
from clbruno.cli import main
from clbruno.persist import atomic


def _run(request: dict[str, Any]) -> None:
    os.chdir(request["cwd"])
    for name, descriptor, flags in [
        ("stdin", 0, os.O_RDONLY),
        ("stdout", 1, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        ("stderr", 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ]:
        os.dup2(os.open(request[name], flags, 0o666), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"], resource.RLIM_INFINITY))
    if request["die_at"] is not None:
        _die_at(request["die_at"])
    if request["user"] is not None:
        os.setgid(request["user"])
        os.setuid(request["user"])
    sys.argv = ["clbruno", *request["arguments"]]
    main()


def _die_at(moment: int) -> None:
    """Let the system kill this process at the n-th call that changes the disk."""
    left = moment
    for name in ("open", "fchmod", "fsync", "replace", "close"):
        original = getattr(os, name)

        def counted(*values: Any, original: Any = original, **more: Any) -> Any:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return original(*values, **more)

        setattr(atomic.os, name, counted)


def _wait(child: int, request: dict[str, Any]) -> int:
    """The exit code of a run, after the signal that it was to get unless it ended before."""
    done, status = 0, 0
    if request["signal_after"] is not None:
        deadline = time.monotonic() + request["signal_after"]
        while not done and time.monotonic() < deadline:
            time.sleep(0.001)
            done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.kill(child, request["signal"])
    if not done:
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _warm_up() -> None:
    """Let torch load the parts that it loads when they are first used."""
    x, y = np.random.default_rng(0).normal(size=(20, 2)), ["a", "b"] * 10
    model = CLBrunoClassifier(max_epochs=1, random_state=0).fit(x, y).partial_fit(x, y)
    model.typicality(x)


def _serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 0
            try:
                _run(request)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(json.dumps(_wait(child, request)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _warm_up()
    _serve()
