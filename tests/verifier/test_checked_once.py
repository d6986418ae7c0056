"""An instruction whose shapes have been checked is checked again once they, or its operation, change."""

import pytest

import hloom as hl
from hloom.errors import HloomError
from hloom.ir import Instruction
from hloom.passes import clone_module
from hloom.verifier import verify_module

TEXT = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  y = f32[2,3] negate(x)
  ROOT z = f32[3,2] transpose(y), dimensions={1,0}
}"""


def _change_result(root: Instruction) -> None:
    root.shape = hl.f32[2, 3]


def _change_operation(root: Instruction) -> None:
    root.op = root.op.replace(permutation=(0, 1))


def _change_operand(root: Instruction) -> None:
    for instruction in (root.operands[0], root.operands[0].operands[0]):
        instruction.shape = hl.f32[4, 3]


@pytest.mark.parametrize("change", [_change_result, _change_operation, _change_operand])
@pytest.mark.parametrize("copied", [False, True])
def test_changed_instructions_are_checked_again(change, copied):
    module = hl.parse(TEXT)
    if copied:
        module = clone_module(module)
    root = module.entry.root
    assert root.is_checked
    change(root)
    assert not root.is_checked
    with pytest.raises(HloomError, match="GEN-2"):
        verify_module(module)
