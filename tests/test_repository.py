"""Files around the code: notebooks, workflows, recipes and the citation agree with the project."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import notebooks
from conftest import ROOT

yaml = pytest.importorskip("yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job.get("steps", [])]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_and_reach_files_that_exist(workflow: Path) -> None:
    for step in steps(workflow):
        for target in re.findall(r"^make ([\w-]+)$", step.get("run", ""), re.MULTILINE):
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()


def test_the_tests_run_on_every_python_that_the_readme_names() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]["default"]["strategy"]["matrix"]
    (named,) = re.findall(
        r"Python (3\.\d+(?:(?:, | and )3\.\d+)*)", (ROOT / "README.md").read_text().split("| tested |")[1]
    )
    assert matrix["python"] == re.findall(r"3\.\d+", named)


def test_hooks_are_the_checks_of_make() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    checks = re.findall(r"\$\(BIN\)/(.*)", MAKEFILE.split("\ncheck:")[1].split("\n\n")[0])
    names = {" ".join(check.split()[:2]) for check in checks}
    assert names == {" ".join(hook["entry"].removeprefix(".venv/bin/").split()[:2]) for hook in hooks}


def test_recipe_and_citation_have_the_version_and_the_dependencies() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    assert f'version = "{PROJECT["version"]}"' in recipe
    run = re.findall(r"- (.*)", recipe.split("  run:\n")[1].split("\n\n")[0])
    wanted = [f"python {PROJECT['requires-python']}", *PROJECT["dependencies"]]
    assert run == [re.sub(r"(?<=\w)>=", " >=", line) for line in wanted]


def test_the_image_installs_extras_that_exist_from_files_that_it_gets() -> None:
    text = (ROOT / "Dockerfile").read_text()
    (extras,) = re.findall(r"/hloom\[([\w,]+)\]", text)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    copied = [name for line in re.findall(r"^COPY (.*) /\S+$", text, re.MULTILINE) for name in line.split()]
    given = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(given) and all((ROOT / name).exists() for name in copied)


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_have_their_outputs(path: Path) -> None:
    pytest.importorskip("jax")
    notebook = json.loads(path.read_text())
    shown = [len(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    notebooks.run(notebook)
    assert [len(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"] == shown
    assert sum(shown) >= 3 and len(NOTEBOOKS) == 3
