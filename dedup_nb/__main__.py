"""`python -m dedup_nb` is the `dedup` command."""

from dedup_nb.cli import main

main()
