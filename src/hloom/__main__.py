"""Runs the `hloom` command: `python -m hloom`."""

from hloom.cli import main

main(prog_name="hloom")
