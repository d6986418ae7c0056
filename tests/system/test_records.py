"""Records: constructors, comparison, hashes and text are those of frozen data classes."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import dataclass, field, fields, replace

import pytest

from conftest import ROOT
from hloom.system.records import record


@record
class Point:
    """A point with a note, which is not compared."""

    x: int
    y: tuple[int, ...] = ()
    note: str = field(default="", compare=False, repr=False)


@record(slots=True)
class Labelled(Point):
    """A record derived from another."""

    label: str = "a"


@record(eq=False)
class Identified:
    """A record that equals itself alone."""

    x: int


@record
class Empty:
    pass


@dataclass(frozen=True)
class Peer:
    """The frozen data class with the fields of Point."""

    x: int
    y: tuple[int, ...] = ()
    note: str = field(default="", compare=False, repr=False)


def test_records_are_compared_by_class_and_compared_fields() -> None:
    assert Point(1, note="here") == Point(1, ()) != Point(2)
    assert Point(1) != Labelled(1) != Labelled(1, label="b")
    assert Point(1) != Peer(1)
    assert Empty() == Empty()
    assert Identified(1) != Identified(1)
    same = Identified(1)
    assert same == same


def test_equal_records_have_equal_hashes() -> None:
    assert {Point(1, (2,), "a"): 0}[Point(1, (2,), "b")] == 0
    assert len({Labelled(1), Labelled(1), Labelled(1, label="b")}) == 2
    assert len({Empty(), Empty()}) == 1
    assert len({Identified(1), Identified(1)}) == 2


def test_text_and_fields_are_those_of_data_classes() -> None:
    assert repr(Point(1, (2, 3), "hidden")) == repr(Peer(1, (2, 3), "hidden")).replace("Peer", "Point")
    assert [f.name for f in fields(Labelled)] == ["x", "y", "note", "label"]
    assert Labelled.__doc__ == "A record derived from another."
    match Point(1, (2,)):
        case Point(x, y):
            assert (x, y) == (1, (2,))


def test_records_are_replaced_copied_and_pickled() -> None:
    for value in Point(1, (2,), "a"), Labelled(1, label="b"), Empty():
        assert pickle.loads(pickle.dumps(value)) == copy.copy(value) == value
    assert replace(Labelled(1), label="b") == Labelled(1, label="b")


def test_constructors_are_those_of_data_classes() -> None:
    @record
    class Made:
        x: int
        made: list[int] = field(default_factory=list)
        derived: int = field(init=False)
        own: dict[int, int] = field(init=False, default_factory=dict)

        def __post_init__(self) -> None:
            self.__dict__["derived"] = self.x + len(self.made)

    assert Made(1) == Made(x=1, made=[])
    assert Made(1).made is not Made(1).made
    assert (Made(1, [2]).derived, Made(1, [2]).own) == (2, {})
    for arguments in [], [1, [], 3]:
        with pytest.raises(TypeError, match=r"Made\.__init__\(\)"):
            Made(*arguments)


def test_own_methods_are_kept() -> None:
    @record
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert hash(Own(1)) == 7
    assert repr(Own(1)) == "own"


def test_subpackages_but_for_declarations_have_records_in_place_of_frozen_data_classes() -> None:
    package = ROOT / "src" / "hloom"
    for path in package.rglob("*/*.py"):
        if path.relative_to(package).parts[0] != "ops":
            assert not re.search(r"^@dataclass\(.*frozen=True", path.read_text(), re.MULTILINE), path
