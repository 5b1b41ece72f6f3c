"""`python -m bnncert` is the command line."""

from bnncert.cli import main

main()
