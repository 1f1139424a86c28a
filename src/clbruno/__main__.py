"""`python -m clbruno`, and `torchrun -m clbruno`: the command line."""

from clbruno.cli import main

main()
