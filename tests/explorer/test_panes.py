"""The explorer's page in a browser: equal layers, values of the user, two graphs that move together, and screen readers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import hloom as hl
from explorer.chromium import chromium, wait_until
from hloom.explorer.collect import collect
from hloom.explorer.columns import columns_of
from hloom.explorer.page import page

pytestmark = pytest.mark.long

LAYERS, SIZE = 4, 12
VALUES = {
    "own": {"y1": "#ffee00", "y2": "text"},
    "cost": {f"y{k}": float(k) for k in range(2, 40)},
    "owner": {"y1": "alice", "y2": "bob"},
}


def layers(changed: str = "") -> str:
    """Equal layers between two different scopes; `changed` is an operation in the third one that differs."""
    lines = ["HloModule layers", "ENTRY e {", "  x = f32[8] parameter(0)"]
    scoped = '{}, metadata={{op_name="f/{}/op"}}'
    lines.append(scoped.format("  y0 = f32[8] cosine(x)", "embed"))
    lines.append(scoped.format("  y1 = f32[8] sine(y0)", "embed"))
    for k in range(LAYERS * SIZE):
        n, scope = k + 2, f"layer{k // SIZE}/part{k % SIZE // 6}"
        op = "add" if k % 2 else changed if changed and k == 2 * SIZE else "maximum"
        first = n - 1 - k % SIZE
        lines.append(scoped.format(f"  y{n} = f32[8] {op}(y{n - 1}, y{first})", scope))
    last = LAYERS * SIZE + 1
    lines.append(scoped.format(f"  z = f32[8] tanh(y{last})", "head"))
    return "\n".join([*lines, scoped.format("  ROOT result = f32[8] negate(z)", "head"), "}"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("panes") / "page.html"
    data = collect(hl.parse(layers()), other=hl.parse(layers("minimum")))
    path.write_text(page(data | {"columns": columns_of(VALUES)}))
    with chromium(path.as_uri()) as found:
        wait_until(found, "document.body.dataset.ready")
        yield found


def run(browser: Any, script: str) -> Any:
    """Runs a script; the value of its last line is asked for when everything is drawn."""
    *before, last = script.split("; ")
    browser.execute_script("; ".join(before))
    wait_until(browser, "state.isDrawn && !(beside.which && !beside.drawn)")
    return browser.execute_script(f"return {last}")


@pytest.fixture(autouse=True)
def start(browser: Any) -> None:
    browser.execute_script(
        "beside.which = null; setOnce(false); setGraph('given'); colorSelect.value = 'kind'; enter(0)"
    )
    wait_until(browser, "state.isDrawn")


LABELS = "drawing.scene.nodes.filter((node) => !node.isOpen).map((node) => node.box.label[0].slice(2))"
NAME = "boxOfId(state.chosen).title"


def test_equal_layers_are_marked_and_one_leads_to_the_next(browser: Any) -> None:
    """The layers read different values, which makes no difference; their parts are equal, too, also to each other."""
    assert run(browser, LABELS) == ["embed", *(f"layer{k} ×4" for k in range(LAYERS)), "head"]
    layer = "drawing.scene.nodes.find((node) => node.box.title == 'layer3').id"
    assert run(browser, f"choose({layer}); {NAME}") == "layer3"
    assert "one of 4 equal layers" in run(browser, "element('details').innerText")
    assert run(browser, f"nextEqual(1); {NAME}") == "layer0"
    assert run(browser, f"nextEqual(-1); {NAME}") == "layer3"
    run(browser, f"toggle({layer}); 0")
    run(browser, "choose(drawing.scene.nodes.find((node) => node.box.title == 'part1').id); 0")
    assert run(browser, f"nextEqual(1); [{NAME}, boxOfId(state.chosen).parent.title]") == ["part0", "layer0"]


def test_equal_layers_are_one_box(browser: Any) -> None:
    assert run(browser, f"showOnce(); {LABELS}") == ["embed", "4 × layer0 .. layer3", "head"]
    group = "drawing.scene.nodes.find((node) => node.box.title.startsWith('4')).id"
    assert run(browser, f"toggle({group}); {LABELS}") == ["embed", *(f"layer{k} ×4" for k in range(LAYERS)), "head"]
    assert run(browser, "choose('0.30'); boxOfId(state.chosen).instruction.name") == "y29"


def test_a_changed_layer_is_not_equal(browser: Any) -> None:
    browser.execute_script("setGraph('other.given'); enter(0)")
    labels = ["embed", "layer0 ×3", "layer1 ×3", "layer2", "layer3 ×3", "head"]
    assert run(browser, LABELS) == labels


def test_boxes_have_the_largest_value_in_them(browser: Any) -> None:
    labels = "drawing.scene.nodes.map(({ box }) => box.label[1])"
    shown = run(browser, f"colorSelect.value = 'data:cost'; draw(); {labels}")
    assert shown == ["2 instructions", *(f"12 instructions · {n}" for n in (13, 25, 37, 39)), "2 instructions"]
    legend = " ".join(browser.execute_script("return legend.innerText").split())
    assert legend == "cost, largest in each box: 2 11.25 20.5 29.75 39 no value"
    details = run(browser, "choose(drawing.scene.nodes[1].id); element('details').innerText")
    assert "cost: sum 90, mean 7.5, largest 13" in details
    assert run(
        browser, "setGraph('optimized'); enter(0); drawing.scene.nodes.some(({ box }) => box.label[1].endsWith('· 39'))"
    )


def test_texts_have_colours_and_a_legend(browser: Any) -> None:
    run(browser, "colorSelect.value = 'data:owner'; draw(); openAll(); 0")
    assert run(browser, "legend.innerText").split() == ["owner:", "alice", "bob", "no", "value"]
    colors = run(browser, "['0.2', '0.3', '0.4'].map((id) => drawing.color(boxOfId(id)))")
    assert len(set(colors)) == 3


def test_texts_may_be_colours(browser: Any) -> None:
    run(browser, "colorSelect.value = 'data:own'; openAll(); 0")
    assert run(browser, "[drawing.color(boxOfId('0.2')), inkOn('#ffee00'), inkOn('#aa0000')]") == [
        "#ffee00",
        "#000",
        "#fff",
    ]


def test_matches_of_a_search_have_a_colour(browser: Any) -> None:
    run(browser, "colorSelect.value = 'hits'; draw(); 0")
    browser.execute_script("search('opcode:max scope:layer2')")
    colors = browser.execute_script("return drawing.scene.nodes.map(({ box }) => drawing.color(box))")
    assert len(set(colors)) == 2 and colors.count(colors[3]) == 1
    assert "6 instructions match" in browser.execute_script("return element('details').innerText")


def open_file(browser: Any, name: str, content: str) -> None:
    browser.execute_script("openColumns(new File([arguments[0]], arguments[1]))", content, name)


def test_a_file_of_values_is_opened(browser: Any) -> None:
    open_file(browser, "times.json", json.dumps({"%y5": 2, "z": 7}))
    wait_until(browser, "colorSelect.value == 'data:times' && state.isDrawn && legend.innerText.startsWith('times')")
    assert "head" in run(browser, "drawing.scene.nodes.find(({ box }) => box.label[1].endsWith('· 7')).box.title")
    for content, said in (
        ("{", "JSON"),
        ("[]", "has to be an object"),
        ('{"y77": 1}', "1 name is not of this module: %y77. Its names are such as %y0"),
    ):
        open_file(browser, "wrong.json", content)
        wait_until(browser, "element('details').innerText.startsWith('wrong.json')")
        assert said in browser.execute_script("return element('details').innerText")
        browser.execute_script("details()")


WHERE = "(({ x, y, zoom }) => [x, y, zoom])"


def test_two_graphs_move_together(browser: Any) -> None:
    run(browser, "showBeside('other.given'); choose(drawing.scene.nodes[2].id); 0")
    wait_until(browser, "beside.drawn.boxes.get(beside.chosen)?.title == 'layer1'")
    corner = "(({{ x, y, zoom, scene }}, id) => [x + zoom * scene.byId.get(id).x, y + zoom * scene.byId.get(id).y])"
    corners = [
        browser.execute_script(f"return {corner.replace('{{', '{').replace('}}', '}')}({each})")
        for each in ("drawing, state.chosen", "besideViewer, beside.chosen")
    ]
    assert corners[0] == pytest.approx(corners[1], abs=6)
    before = browser.execute_script(f"return {WHERE}(besideViewer)")
    browser.execute_script("drawing.byUser(() => { drawing.moveTo(drawing.x + 40, drawing.y - 25); })")
    x, y, zoom = browser.execute_script(f"return {WHERE}(besideViewer)")
    assert [x, y, zoom] == pytest.approx([before[0] + 40, before[1] - 25, before[2]])
    browser.execute_script("drawing.byUser(() => drawing.zoomTo(drawing.zoom * 0.8, 100, 60))")
    moved = browser.execute_script(f"return {WHERE}(besideViewer)")
    assert moved == pytest.approx([100 + 0.8 * (x - 100), 60 + 0.8 * (y - 60), 0.8 * zoom])
    one = browser.execute_script(f"return {WHERE}(drawing)")
    browser.execute_script("besideViewer.byUser(() => { besideViewer.moveTo(besideViewer.x - 7, besideViewer.y); })")
    assert browser.execute_script(f"return {WHERE}(drawing)") == pytest.approx([one[0] - 7, one[1], one[2]])


def test_what_is_chosen_or_opened_in_one_graph_is_so_in_the_other(browser: Any) -> None:
    run(browser, "showBeside('other.given'); 0")
    run(browser, "toggle(drawing.scene.nodes[3].id); 0")
    wait_until(
        browser, "besideViewer.scene.nodes.filter(({ isOpen }) => isOpen).map(({ box }) => box.title) == 'layer2'"
    )
    run(browser, "choose('0.27'); 0")  # y26 in layer 2, a maximum here and a minimum there
    wait_until(browser, "beside.drawn.boxes.get(beside.chosen)?.instruction?.op == 'minimum'")
    assert "%y26" in browser.execute_script("return element('details').innerText.split('(beside)')[1]")
    browser.execute_script("chooseBeside(besideViewer.scene.nodes.find(({ box }) => box.title == 'embed').box)")
    assert run(browser, NAME) == "embed"
    browser.execute_script("toggleBeside(besideViewer.scene.nodes.find(({ box }) => box.title == 'layer2').box)")
    wait_until(browser, "state.isDrawn && !drawing.scene.nodes.some(({ isOpen }) => isOpen)")


def test_the_graph_as_given_beside_the_optimised_one(browser: Any) -> None:
    """The counterpart of an instruction is the fusion that computes it."""
    run(browser, "showBeside('optimized'); choose('0.30'); 0")
    wait_until(browser, "beside.chosen && beside.drawn.boxes.get(beside.chosen).instruction?.op == 'fusion'")
    fusion = browser.execute_script("return beside.drawn.boxes.get(beside.chosen).instruction.name")
    assert browser.execute_script("return kernelOf('y29')") == fusion
    browser.execute_script("showBeside('given')")


def test_a_link_has_the_graph_beside_and_the_colour(browser: Any) -> None:
    run(browser, "showBeside('other.given'); colorSelect.value = 'data:owner'; showOnce(); 0")
    address = browser.current_url
    browser.get("about:blank")
    browser.get(address)
    wait_until(browser, "document.body.dataset.ready && Boolean(beside.drawn)")
    state = "[state.which, beside.which, colorSelect.value, equalScopes.isOnce, besidePane.hidden]"
    assert run(browser, state) == ["given", "other.given", "data:owner", True, False]


@pytest.mark.parametrize(
    "state",
    [
        '["given",2,"0.1"]',
        '["given","given.x",7,3,99,"a"]',
        '["no"]',
        "{}",
        '["given","other.given",null,true,0,"9.9","z"]',
    ],
)
def test_links_of_other_pages_show_the_graph(state: str, browser: Any) -> None:
    address = browser.current_url.partition("#")[0]
    browser.get("about:blank")
    browser.get(f"{address}#{quote(state)}")
    wait_until(browser, "document.body.dataset.ready && state.isDrawn")
    assert run(browser, "drawing.scene.nodes.length") > 0


def test_what_became_of_an_instruction(browser: Any) -> None:
    browser.execute_script("view('passes'); views.passes.firstChild.ask('y30')")
    shown = browser.execute_script("return views.passes.innerText")
    assert "What became of %y30" in shown and "is computed in %fusion" in shown
    browser.execute_script("views.passes.firstChild.ask('')")


def test_reasons_are_listed_for_all_candidates(browser: Any) -> None:
    browser.execute_script("view('passes'); views.passes.firstChild.ask('')")
    browser.execute_script(
        "[...views.passes.querySelectorAll('.row')].find((row) => / fusion /.test(row.innerText)).click()"
    )
    count = "Number(views.passes.querySelector('.content [role=status]').innerText.split(' ')[0])"
    everything = browser.execute_script(f"return {count}")
    field = "views.passes.querySelector('.content input')"
    browser.execute_script(f"{field}.value = 'no such words'; {field}.dispatchEvent(new Event('input'))")
    assert everything > 0 and browser.execute_script(f"return {count}") == 0
    browser.execute_script("view('graph')")


UNNAMED = """
const nameOf = (each) => each.getAttribute("aria-label") || each.title || each.placeholder || each.innerText.trim() || each.getAttribute("aria-hidden");
return [...document.querySelectorAll("button, select, input, textarea, canvas, svg, [role]")].filter((each) => each.checkVisibility() && !nameOf(each)).map((each) => each.outerHTML.slice(0, 120));"""


def test_everything_has_a_name_for_screen_readers_in_every_view(browser: Any) -> None:
    for view in browser.execute_script("return Object.keys(views)"):
        browser.execute_script(f"view('{view}')")
        assert browser.execute_script(UNNAMED) == [], view
    browser.execute_script("view('graph'); choose('0.30')")
    assert run(browser, "announced.textContent") == "add y29, f32[8], reads 2, read by 1"


def test_arrow_keys_go_through_the_tabs(browser: Any) -> None:
    from selenium.webdriver import ActionChains

    browser.execute_script("view('graph'); document.querySelector('nav button').focus()")
    for key, wanted in (("\ue014", "passes"), ("\ue014", "kernels"), ("\ue012", "passes"), ("\ue012", "graph")):
        ActionChains(browser).send_keys(key).perform()
        assert browser.execute_script("return state.view") == wanted


WHITE = """
const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
const context = h("canvas", { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
const contrast = (color) => {
  context.fillStyle = color; context.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...context.getImageData(0, 0, 1, 1).data].map((part) => linear(part / 255));
  return 1.05 / (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05);
};
const all = [...Object.values(COLORS), ...Array.from({ length: 41 }, (_, k) => [heat(k / 40), ramp(k / 40), hue(`t${k}`)]).flat()];
return Math.min(...all.map(contrast));"""


def test_white_text_is_legible_on_every_colour(browser: Any) -> None:
    """WCAG 2, level AA: a contrast of 4.5."""
    assert browser.execute_script(WHITE) >= 4.5
