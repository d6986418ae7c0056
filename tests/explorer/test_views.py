"""Views of the explorer's page in a browser: changes, large graphs, two modules, and the editor."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hloom as hl
from explorer.chromium import chromium, wait_until
from explorer.test_changes import PROGRAM
from hloom.explorer.collect import collect
from hloom.explorer.page import page

pytestmark = pytest.mark.long


def layers(count: int) -> str:
    """A program of `count` scopes, in each of which every instruction reads two of the others."""
    lines = ["HloModule layers", "ENTRY e {", "  x0 = f32[8] parameter(0)", "  x1 = f32[8] negate(x0)"]
    for k in range(2, 20 * count):
        scope = f'metadata={{op_name="f/layer{k // 20}/part{k // 5 % 4}/add"}}'
        lines.append(f"  x{k} = f32[8] add(x{k - 1}, x{max(0, k - 2 - 7 * k % 60)}), {scope}")
    return "\n".join([*lines, f"  ROOT result = f32[8] tanh(x{20 * count - 1}) }}"])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("large") / "page.html"
    other = layers(30).replace("tanh(x599)", "sine(x599)")
    path.write_text(page(collect(hl.parse(layers(30)), other=hl.parse(other))))
    with chromium(path.as_uri()) as browser:
        wait_until(browser, "document.body.dataset.ready")
        browser.execute_script("setGraph('given'); enter(0)")
        wait_until(browser, "state.isDrawn")
        yield browser


THROUGH = """
const closed = drawing.scene.nodes.filter((node) => !node.isOpen), found = [];
const open = drawing.scene.nodes.filter((node) => node.isOpen);
for (const { key, points } of drawing.scene.edges) {
  for (let k = 2; k < points.length; k += 2) for (let t = 0; t <= 1; t += 0.125) {
    const x = points[k - 2] + t * (points[k] - points[k - 2]), y = points[k - 1] + t * (points[k + 1] - points[k - 1]);
    if (closed.some((n) => x > n.x + 1 && x < n.x + n.width - 1 && y > n.y + 1 && y < n.y + n.height - 1)) found.push(key);
  }
}
return [found.length, drawing.scene.edges.length, closed.length];"""


def test_no_edge_runs_through_a_box_with_everything_open(large: Any) -> None:
    large.execute_script("openAll()")
    wait_until(large, "state.isDrawn")
    through, edges, closed = large.execute_script(THROUGH)
    assert through == 0 and edges > 600 and closed == 600


def test_a_box_that_opens_stays_where_it_was(large: Any) -> None:
    large.execute_script("enter(0)")
    wait_until(large, "state.isDrawn")
    box = large.execute_script("return state.drawn.root.children[1].id")
    node = f"drawing.scene.byId.get('{box}')"
    where = f"(({{ x, y }}) => [drawing.x + drawing.zoom * x, drawing.y + drawing.zoom * y])({node})"
    before = large.execute_script(f"return {where}")
    large.execute_script(f"toggle('{box}')")
    wait_until(large, f"state.isDrawn && {node}.isOpen")
    assert large.execute_script(f"return {where}") == pytest.approx(before)


def test_unchanged_boxes_are_not_laid_out_again(large: Any) -> None:
    counted = """
      const plan = planOf(state.drawn.root), before = layouts.size;
      arrange(plan);
      const first = layouts.size;
      arrange(planOf(state.drawn.root));
      return [first - before, layouts.size - first];"""
    first, second = large.execute_script(counted)
    assert first > 0 and second == 0


def test_pictures_have_all_boxes(large: Any) -> None:
    boxes = "svgOf(drawing.scene, drawing.color).split('<rect').length - 2"
    assert large.execute_script(f"return {boxes} == drawing.scene.nodes.length")


def test_all_that_a_value_is_computed_from_is_highlighted(large: Any) -> None:
    """Every instruction reads the one before it; the first is a parameter, which is left out."""
    large.execute_script("openAll()")
    wait_until(large, "state.isDrawn")
    large.execute_script("choose('0.300')")
    direct = large.execute_script("return drawing.near.size")
    large.execute_script("reach('operands')")
    sources = "new Set(linksOf(state.drawn, boxOfId('0.300')).map(([from]) => from.id)).size"
    assert large.execute_script(f"return {sources}") == 299
    assert large.execute_script("return drawing.near.size") > direct
    large.execute_script("reach('operands')")
    assert large.execute_script("return drawing.near.size") == direct


def test_two_modules_are_side_by_side(large: Any) -> None:
    large.execute_script("view('compare')")
    shown = large.execute_script("return views.compare.innerText")
    assert "largest memory in use" in shown and "tanh" in shown and "sine" in shown
    drawn = "[...views.compare.querySelectorAll('.pair figure')].map((e) => e.querySelectorAll('.gone, .new').length)"
    assert large.execute_script(f"return {drawn}") == [1, 1]
    large.execute_script("view('graph'); setGraph('other.given'); colorSelect.value = 'changed'; enter(0)")
    wait_until(large, "state.isDrawn")
    large.execute_script("colorSelect.value = 'changed'; draw()")
    wait_until(large, "state.isDrawn")
    assert "only here" in large.execute_script("return legend.innerText")


def test_changes_are_drawn_before_and_after(large: Any) -> None:
    large.execute_script("setGraph('optimized'); view('passes'); views.passes.firstChild.ask('x1')")
    signs = "[...views.passes.querySelectorAll('.change')].map((e) => e.querySelectorAll('.gone, .new, .kept').length)"
    assert sum(large.execute_script(f"return {signs}")) > 2
    large.execute_script("view('graph'); enter(0)")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(webbrowser, "open", lambda _: True)
    server = hl.explore(PROGRAM)
    assert server is not None
    with chromium(server.address) as browser:
        wait_until(browser, "document.body.dataset.ready")
        yield browser
    server.close()


def test_a_text_is_checked_drawn_and_run_as_it_is_typed(served: Any, tmp_path: Path) -> None:
    """The errors of two lines; then the corrected text in all views; then a dropped file."""
    from selenium.webdriver.common.by import By

    served.execute_script("view('edit')")
    field = served.find_element(By.TAG_NAME, "textarea")
    wrong = PROGRAM.replace("sine(p)", "sinne(p)").replace("dot(same,", "dot(some,")
    served.execute_script("arguments[0].value = arguments[1]", field, wrong)
    field.send_keys(" ")
    wait_until(served, "problems.querySelectorAll('button').length == 2")
    served.execute_script("arguments[0].value = arguments[1]", field, PROGRAM.replace("sine(p)", "cosine(p)"))
    field.send_keys(" ")
    wait_until(served, "stateOfEditor.textContent.startsWith('no errors')")
    assert served.execute_script("return live.scene.nodes.map((node) => node.box.title).includes('ones')")
    served.execute_script("view('graph'); drawLive(); view('edit')")
    wait_until(served, "live.frames && !live.isUnfitted")
    assert 0 < served.execute_script("return live.zoom") <= 1.1
    served.execute_script("runText()")
    wait_until(served, "state.view == 'graph' && modules.profile && state.isDrawn", 90)
    assert "cosine" in served.execute_script("return JSON.stringify(modules.given)")
    drop = "runText(new TextEncoder().encode(arguments[0]), 'dropped.hlo')"
    served.execute_script(drop, "HloModule dropped\nENTRY e { ROOT x = f32[2] constant({1, 2}) }")
    wait_until(served, "modules.name == 'dropped'", 90)
    assert "HloModule dropped" in served.execute_script("return editor.value")
