"""`python -m hloom` is the `hloom` command."""

from hloom.cli import main

main(prog_name="hloom")
