"""`python -m bnncert` is the command line."""

from bnncert.cli.main import main

main()
