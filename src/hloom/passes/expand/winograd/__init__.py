"""Convolutions of small windows with fewer products."""
