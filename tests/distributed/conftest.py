"""Process groups of forks of one process that has imported everything."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed import scenarios

Ranks = Callable[..., list[Any]]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.distributed.scenarios"])


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    """Run a scenario on so many ranks; what each of them returned or raised, None if it died."""
    runs = 0

    def run(size: int, scenario: str, *arguments: Any, seconds: float = 60) -> list[Any]:
        nonlocal runs
        runs += 1
        processes, pipes = [], []
        for rank in range(size):
            here, there = CONTEXT.Pipe(duplex=False)
            values = (rank, size, str(tmp_path / f"store {runs}"), there, scenario, arguments)
            process = CONTEXT.Process(target=scenarios.enter, args=values)
            process.start()
            there.close()
            processes.append(process)
            pipes.append(here)
        answers: list[Any] = []
        for pipe in pipes:
            assert pipe.poll(seconds), f"a rank was silent for {seconds} s"
            try:
                answers.append(pipe.recv())
            except EOFError:
                answers.append(None)
            pipe.close()
        for process in processes:
            process.join(seconds)
            assert process.exitcode is not None
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        if errors:  # what went wrong first, rather than what that did to the others
            raise min(errors, key=lambda error: "another process" in str(error))
        return answers

    return run
