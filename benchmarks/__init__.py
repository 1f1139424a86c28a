"""The paper's experiments, each beside its rivals on equal inputs; see ``python -m benchmarks``."""
