"""Reports of users, each with a program that shows it, and those without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.program import Tree
from benchmarks.program import add as add_program


@dataclass(frozen=True)
class Issue:
    """A report: the repository and number, the claim, and what the program of the same name computes."""

    repository: str
    number: int
    reported: str = ""
    program: str = ""
    reason: str = ""
    """Why hloom is slower here, or why there is no program."""

    @property
    def name(self) -> str:
        return f"{self.repository.split('/')[1]} {self.number}"

    @property
    def link(self) -> str:
        return f"[{self.name}](https://github.com/{self.repository}/issues/{self.number})"


ISSUES: dict[str, Issue] = {}
UNMEASURED: list[Issue] = []
JAX, XLA = "jax-ml/jax", "openxla/xla"


def add(issue: Issue, initialise: Callable[[Any], tuple[Tree, ...]], step: Callable[..., Tree], **options: Any) -> None:
    """Registers a report, with the functions and options of its program (see `benchmarks.program.add`)."""
    ISSUES[issue.name] = issue
    add_program(issue.name, initialise, step, **options)
