"""The explorer's page in a real browser, if installed: all views, with mouse, keys and search."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from explorer.chromium import chromium, wait_until
from explorer.test_text_is_text import HOSTILE, module_that_says
from hloom.explorer.collect import collect
from hloom.explorer.page import page
from hloom.faults import Case

PROGRAM = """
HloModule page

sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

body { state = (s32[], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[16,16] get-tuple-element(state), index=1
  product = f32[16,16] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[16,16] tanh(product)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT new = (s32[], f32[16,16]) tuple(next, t) }

condition { state = (s32[], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(50)
  ROOT less = pred[] compare(i, limit), direction=LT }

ENTRY main { x = f32[16,16] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[16,16]) tuple(zero, x)
  loop = (s32[], f32[16,16]) while(state), condition=condition, body=body
  y = f32[16,16] get-tuple-element(loop), index=1
  root = f32[16,16] sqrt(y), metadata={op_name="jit(f)/</script><b>sqrt"}
  init = f32[] constant(0)
  ROOT total = f32[16] reduce(root, init), dimensions={1}, to_apply=sum }
"""


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    case = Case.random(hl.parse(PROGRAM), 0)
    return collect(case.module, case.arguments)


def test_the_data_has_every_stage(data: dict[str, Any]) -> None:
    assert [c["name"] for c in data["given"]["computations"]][0] == "main"
    assert "(d0)[r0] -> operand0(d0, r0); operand1()" in [
        i.get("elements") for i in data["given"]["computations"][0]["instructions"]
    ]
    assert "fusion" in [run["name"] for run in data["passes"]]
    kernels = [k for k in data["kernels"] if k["kind"] == "nest"]
    assert all(k["nest"] and "define" in k["llvm"] for k in kernels)
    assert any("ret" in k["assembly"] for k in data["kernels"])
    assert any(k["kind"] == "dot" for k in data["kernels"])
    assert max(data["memory"]["bytes"]) == data["memory"]["bytes"][data["memory"]["peak"]]
    assert data["profile"]["seconds"] > 0


def test_the_first_nan_is_the_root_of_a_negative_number(data: dict[str, Any]) -> None:
    assert data["values"]["given"]["first_nan"] == "root"
    statistics = data["values"]["given"]["statistics"]["t"]
    assert sum(statistics["histogram"]) == 256
    assert len(statistics["picture"]) == 16


def test_reasons_name_what_is_not_fused(data: dict[str, Any]) -> None:
    assert "kernel of its own" in data["unfused"]["product"]
    assert "result of the computation" in data["unfused"]["total"]


def test_values_of_any_range_have_pictures() -> None:
    module = hl.parse("HloModule m\nENTRY m { x = f64[4] parameter(0)\n ROOT y = f64[4] negate(x) }")
    largest = np.finfo(np.float64).max
    values = collect(module, [np.array([-largest, largest, np.nan, 1.0])])["values"]["given"]["statistics"]["y"]
    assert values["histogram"][0] == values["histogram"][-1] == 1
    assert values["picture"][0][2] == -1


def test_explore_writes_a_file(tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert hl.explore(PROGRAM, output=output) is None
    assert "not run: give arguments" in output.read_text()


# In a browser


@pytest.fixture(scope="module")
def browser(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(page(data))
    with chromium(path.as_uri()) as found:
        yield found


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def after_drawing(browser: Any, script: str) -> Any:
    """Runs a script once the graph that was requested last is drawn."""
    wait_until(browser, "state.isDrawn && document.body.dataset.ready")
    return browser.execute_script(script)


def shown(browser: Any) -> str:
    return browser.execute_script("return document.body.innerText")


def test_the_page_is_ready_with_its_result_chosen(browser: Any) -> None:
    assert after_drawing(browser, "return document.body.dataset.ready") == "1"
    assert "%" in browser.execute_script("return document.querySelector('#details h2').innerText")


def test_keys_change_the_view(browser: Any) -> None:
    press(browser, "2")
    assert "changes," in shown(browser)
    press(browser, "3")
    assert "loops" in shown(browser)
    press(browser, "4")
    assert "Live at the peak" in shown(browser)
    press(browser, "5")
    assert "The first NaN arises in" in shown(browser)
    press(browser, "1")
    assert browser.execute_script("return state.view") == "graph"


def test_passes_that_changed_an_instruction(browser: Any) -> None:
    from selenium.webdriver.common.by import By

    press(browser, "2")
    shown_lines = "return [...document.querySelectorAll('.content pre')].find((e) => e.offsetParent).innerText"
    everything = browser.execute_script(shown_lines).split("\n")
    field = browser.find_element(By.CSS_SELECTOR, "input[aria-label=instruction]")
    field.send_keys("%root")
    lines = browser.execute_script(shown_lines).split("\n")
    assert lines == [line for line in everything if re.search(r"%root\b", line)] != everything
    field.send_keys("x")
    assert "No pass changed %rootx." in shown(browser)
    browser.execute_script(
        "arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input')); arguments[0].blur()", field
    )
    press(browser, "1")


def test_search_finds_and_a_hit_is_shown(browser: Any) -> None:
    browser.execute_script("enter(0)")
    press(browser, "/", "w", "h", "i", "l", "e")
    assert "1 instruction matches" in shown(browser)
    browser.execute_script("document.querySelector('#details .row').click()")
    press(browser, "\ue00c")  # Escape
    assert "while" in after_drawing(browser, "return document.querySelector('#details pre').innerText")


def test_a_loop_opens_and_closes_and_arrows_move(browser: Any) -> None:
    browser.execute_script("show(graph().computations[0].instructions.find((each) => each.op === 'while').name)")
    before = after_drawing(browser, "return drawing.scene.nodes.length")
    browser.execute_script("canvas.focus()")
    press(browser, "\ue007")  # Enter
    assert after_drawing(browser, "return drawing.scene.nodes.length") > before + 5
    press(browser, "\ue007")
    assert after_drawing(browser, "return drawing.scene.nodes.length") == before
    chosen = browser.execute_script("return state.chosen")
    press(browser, "\ue013")  # ArrowUp
    assert browser.execute_script("return state.chosen") != chosen
    press(browser, "m", "\ue015")
    assert "in different kernels" in shown(browser) or "both are computed" in shown(browser)
    assert len(browser.execute_script("return between(computation(), '0.', state.marked, state.chosen)")) == 2


def test_lines_of_assembly_link_to_their_instruction(browser: Any) -> None:
    press(browser, "3")
    script = """
      const seen = (selector, start) => [...document.querySelectorAll(selector)].find(
        (each) => each.offsetParent && each.innerText.startsWith(start));
      seen('.row', 'nest').click();
      const link = seen('pre .link', '%');
      const name = link.innerText.slice(1);
      link.click();
      return [name, instructionOf(state.chosen).name, state.view];"""
    name, chosen, view = browser.execute_script(script)
    assert (name, view) == (chosen, "graph")


def test_the_original_graph_is_shown(browser: Any) -> None:
    browser.execute_script("show('root', 'given')")
    assert "sqrt(y)" in after_drawing(browser, "return document.body.innerText")
    assert "jit(f)/</script><b>sqrt" in shown(browser)
    browser.execute_script("document.querySelector('#which').value = 'optimized'")


def layers() -> str:
    """A program of three scopes, one of them in another, with 20 instructions each."""
    lines = ["HloModule layers", "ENTRY e {", "  x0 = f32[8] parameter(0)"]
    for scope, first in (("f/outer/one", 0), ("f/outer/two", 20), ("f/last", 40)):
        lines += [
            f'  x{k + 1} = f32[8] negate(x{k}), metadata={{op_name="{scope}/neg"}}' for k in range(first, first + 20)
        ]
    return "\n".join([*lines, "  ROOT result = f32[8] tanh(x60) }"])


@pytest.fixture
def overview(browser: Any, tmp_path: Path) -> Any:
    """The page of `layers`, which shows the graph as given."""
    path = tmp_path / "layers.html"
    path.write_text(page(collect(hl.parse(layers()))))
    browser.get(path.as_uri())
    browser.execute_script("setGraph('given'); enter(0)")
    return browser


LABELS = "return drawing.scene.nodes.map((node) => node.box.title).sort()"


def test_a_large_computation_is_shown_by_its_scopes(overview: Any) -> None:
    """Parameters are left out. The root has no scope, and is in that of its operand."""
    assert after_drawing(overview, LABELS) == ["last", "outer"]
    overview.execute_script("toggle(drawing.scene.nodes.find((n) => n.box.title.includes('outer')).id)")
    assert after_drawing(overview, LABELS) == ["last", "one", "outer", "two"]
    assert "40 negate" in shown(overview)
    after_drawing(overview, "show('x35', 'given')")
    assert len(after_drawing(overview, LABELS)) == 20 + 4
    assert overview.execute_script("return instructionOf(state.chosen).name") == "x35"


def test_words_of_a_search_may_name_fields(overview: Any) -> None:
    from selenium.webdriver.common.by import By

    for words, count in (
        ("scope:two", 20),
        ("%x35", 1),
        ("opcode:neg scope:outer x1", 11),
        ("shape:f32[8] tanh", 1),
        ("re:x3[0-4]\\b", 5),
        ("re:[", 0),
    ):
        field = overview.find_element(By.ID, "search")
        field.clear()
        field.send_keys(words)
        assert overview.execute_script("return document.querySelectorAll('#details .row').length") == count, words


def test_the_address_is_a_link_to_the_state(overview: Any) -> None:
    after_drawing(overview, "show('x35', 'given')")
    labels = after_drawing(overview, LABELS)
    address = overview.current_url
    overview.get("about:blank")
    overview.get(address)
    assert after_drawing(overview, LABELS) == labels
    assert overview.execute_script("return instructionOf(state.chosen).name") == "x35"


def test_names_of_a_module_are_plain_text_in_the_browser(browser: Any, tmp_path: Path) -> None:
    """The page works, and names create no elements, even `constructor`, a property of all JavaScript objects."""
    path = tmp_path / "hostile.html"
    for text in ("".join(HOSTILE), "constructor", "__proto__"):
        data = collect(module_that_says(text))
        path.write_bytes(page(data).encode())
        browser.get(path.as_uri())
        assert after_drawing(browser, "return document.body.dataset.ready") == "1"
        assert browser.execute_script("return data().name") == data["name"]
        press(browser, "2", "3", "4", "1")
        assert browser.execute_script("return document.querySelectorAll('img, b').length") == 0
        assert browser.title != "broken"
        assert "native code" not in shown(browser)
