"""`python -m planform`."""

from planform.cli import main

main()
