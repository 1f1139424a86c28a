"""How fast, against what: ratios within one run, correctness checked first."""
