"""Shardings of arrays. In the order in which to read them: `mesh.py` (how a sharding is represented), `annotations.py`
and `markers.py` (how programs state them), `resharding.py` (moves from one to another), `blocks.py` (blocks of iotas).
"""
