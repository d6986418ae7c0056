"""Runs programs that are built ahead of time where their targets run: natively, emulated, in Node and in Chromium."""
