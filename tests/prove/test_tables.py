"""The record of proofs of partitioning and generated code has every operation, and no counterexample."""

from __future__ import annotations

import verdicts_tables
from prove.sharded_operations import opcode_of, templates
from prove.test_code import ELEMENTS
from prove.test_nests import LARGE


def test_the_record_is_complete_and_has_no_counterexample() -> None:
    record = verdicts_tables.recorded()
    opcodes = {*map(opcode_of, (*templates(), *LARGE)), *(op.opcode for op, _, _ in ELEMENTS.values())}
    assert set(record) == opcodes, "python tools/verdicts_tables.py"
    verdicts = [text for outcomes in record.values() for counts in outcomes.values() for text in counts]
    assert not [text for text in verdicts if text.startswith("false")]
    assert len(ELEMENTS) == sum(sum(outcomes["elements"].values()) for outcomes in record.values())
