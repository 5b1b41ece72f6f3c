"""The report in a real browser: headless Chromium opens, sorts, filters and reads a page about a
thousand inputs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from bnncert import Concentration, Problem, ball, certify, mlp, output_interval
from bnncert.cli.display import percent
from bnncert.posteriors import Normal
from bnncert.report import write_report
from report_folders import at_radii, verdicts, write_folder
from scenarios import gaussian

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install 'bnncert[dev]'"
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium"
)

COUNT, REJECTED, CODE = 1_000, 5, "probability-too-high"
PATIENCE = (
    10_000  # milliseconds: a page takes a tenth of it, but a busy machine must not fail the tests
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "report"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
ROWS = "#table tbody tr:not(.detail):not([hidden])"


def button(index: int) -> str:
    """Selects what opens an input; by its attribute, since a search by role would look at every
    row."""
    return f"button[aria-label='Details of input {index}']"


class Run(NamedTuple):
    page: Path
    lines: list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A page about a thousand 28 x 28 images, checked, one of them rejected."""
    folder = tmp_path_factory.mktemp("report") / "run"
    lines = write_folder(folder, COUNT)
    verdicts(
        folder,
        lines,
        status={REJECTED: "REJECT"},
        code={REJECTED: CODE},
        message={REJECTED: "at most 0.5"},
    )
    return Run(write_report(folder), lines)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to root
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield opened
        opened.close()


class Visit:
    """A page as one visitor has it, with everything it complained about or asked for."""

    def __init__(self, browser: Any, run: Run, **options: Any) -> None:
        self.context = browser.new_context(**({"viewport": WIDE} | options))
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        started = time.perf_counter()
        self.page.goto(run.page.as_uri())
        self.page.locator(ROWS).nth(COUNT - 1).wait_for(state="attached")
        self.seconds = time.perf_counter() - started

    def column(self, number: int) -> list[str]:
        """The texts of a column, of the rows that are shown."""
        script = "(rows, n) => rows.map(row => row.cells[n].textContent.trim())"
        texts: list[str] = self.page.locator(ROWS).evaluate_all(script, number)
        return texts

    def screenshot(self, name: str) -> bytes:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        picture: bytes = self.page.screenshot(path=path)
        print(f"screenshot: {path}")
        return picture


@pytest.fixture
def visit(browser: Any, run: Run) -> Iterator[Visit]:
    made = Visit(browser, run)
    yield made
    assert made.complaints == []
    made.context.close()


def test_the_page_opens_with_every_input_and_asks_for_nothing(visit: Visit, run: Run) -> None:
    assert [int(text) for text in visit.column(0)] == [line["index"] for line in run.lines]
    assert [url for url in visit.requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in visit.requests) == 1
    print(f"opened in {visit.seconds:.2f} s; {run.page.stat().st_size / 1e6:.2f} MB")
    visit.screenshot("light")


def test_every_column_sorts(visit: Visit, run: Run) -> None:
    columns = (
        "index",
        "label",
        "predicted",
        "status",
        "lower",
        "gap",
        "upper",
        "seconds",
        "verdict",
    )
    buttons = visit.page.locator("th button")
    assert buttons.evaluate_all("own => own.map(one => one.dataset.key)") == list(columns)
    for number, key in enumerate(columns):
        order = sorted(range(COUNT), key=lambda i: value(run.lines[i], key))
        buttons.nth(number).press("Enter")
        assert [int(text) for text in visit.column(0)] == [run.lines[i]["index"] for i in order]
        assert visit.page.locator("th[aria-sort=ascending] button").get_attribute("data-key") == key
    buttons.nth(4).press("Enter")
    buttons.nth(4).press("Space")
    assert (
        visit.page.locator("th[aria-sort=descending] button").get_attribute("data-key") == "lower"
    )
    assert visit.page.locator("th[aria-sort=ascending]").count() == 0
    best = max(run.lines, key=lambda line: line["lower"])
    assert (visit.column(0)[0], visit.column(4)[0]) == (str(best["index"]), percent(best["lower"]))


def value(line: dict[str, Any], key: str) -> Any:
    """What a column sorts by."""
    if key == "verdict":
        return "REJECT" if line["index"] == 3 * REJECTED else "ACCEPT"
    return line["upper"] - line["lower"] if key == "gap" else line[key]


def test_filters_narrow_the_table(visit: Visit, run: Run) -> None:
    def kept(**asked: object) -> list[int]:
        return [
            line["index"]
            for line in run.lines
            if all(line[name] == value for name, value in asked.items())
        ]

    def shows(indices: list[int]) -> None:
        """Locators look again until it is so: the page's own rules forbid functions that do."""
        sync_api.expect(shown).to_have_text(f"{len(indices)} of {COUNT}", timeout=PATIENCE)
        assert [int(text) for text in visit.column(0)] == indices

    filters, shown = visit.page.locator("#filters"), visit.page.locator("#shown")
    filters.get_by_label("Status").select_option("misclassified")
    shows(kept(status="misclassified"))
    filters.get_by_label("Label").select_option("3")
    shows(kept(status="misclassified", label=3))
    filters.get_by_role("button", name="Reset").click()
    shows(kept())
    filters.get_by_label("At least").fill("99.9")
    high = [line["index"] for line in run.lines if 100 * line["lower"] >= 99.9]
    shows(high)
    filters.get_by_label("Input").fill("12")
    shows([index for index in high if "12" in str(index)])
    filters.get_by_label("Check").select_option("REJECT")
    shows([])
    sync_api.expect(visit.page.get_by_text("No input matches the filters.")).to_be_visible(
        timeout=PATIENCE
    )


def test_details_open_by_keyboard_and_tell_everything(visit: Visit, run: Run) -> None:
    page, line = visit.page, run.lines[2]
    opener = page.locator(button(6))
    page.locator("th button[data-key=verdict]").focus()
    for _ in range(3):  # past the first two rows
        page.keyboard.press("Tab")
    assert opener.evaluate("own => own === document.activeElement")
    assert opener.evaluate("own => getComputedStyle(own).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    sync_api.expect(opener).to_have_attribute("aria-expanded", "true", timeout=PATIENCE)
    detail = page.locator("#detail-2")
    text = detail.inner_text()
    for part in (
        repr(line["lower"]),
        repr(line["upper"]),
        line["certificate"],
        "a" * 64,
        f"{2:064x}",
        "accepted",
    ):
        assert part in text
    assert "At the stored counterexample class 0 before class 1 fails" in text
    pictures = detail.locator("img")
    assert pictures.count() == 3
    assert pictures.evaluate_all("own => own.map(one => one.naturalWidth)") == [28, 28, 28]
    visit.screenshot("detail")
    page.locator("th button[data-key=index]").click()  # an open detail moves with its row
    assert detail.evaluate("own => own.previousElementSibling.cells[0].textContent.trim()") == "6"
    opener.press("Space")
    sync_api.expect(detail).to_have_count(0, timeout=PATIENCE)


def test_a_rejected_result_is_struck_out(visit: Visit) -> None:
    page = visit.page
    row = page.locator("tr.void")
    assert row.count() == 1
    assert (
        row.locator("td").nth(4).evaluate("own => getComputedStyle(own).textDecorationLine")
        == "line-through"
    )
    row.locator("td").nth(3).click()  # anywhere in the row
    assert f"{CODE}: at most 0.5" in page.locator(".detail").inner_text()


def test_a_phone_needs_no_sideways_scrolling(browser: Any, run: Run) -> None:
    visit = Visit(browser, run, viewport=PHONE, has_touch=True, is_mobile=True)
    page = visit.page
    few_rows(page)
    assert overhang(page) <= 0
    page.locator("#inputs").scroll_into_view_if_needed()
    visit.screenshot("phone")
    assert visit.complaints == []
    visit.context.close()


def test_no_width_needs_sideways_scrolling(visit: Visit) -> None:
    few_rows(visit.page)
    for width in (320, 480, 700, 975, 980, 1045):
        visit.page.set_viewport_size({"width": width, "height": 800})
        assert overhang(visit.page) <= 0, width


def few_rows(page: Any) -> None:
    """Shows the widest rows, of every status, and one of them open."""
    page.locator("#filters [name=index]").fill("297")
    page.locator(button(2970)).press("Enter")
    sync_api.expect(page.locator(".detail")).to_have_count(1, timeout=PATIENCE)


def overhang(page: Any) -> float:
    """Pixels by which anything of the page is wider than its window."""
    elements = "[...document.querySelectorAll('td, th, dd, p')]"
    script = f"Math.max(...{elements}.map(own => own.getBoundingClientRect().right))"
    page_width, window = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    return float(max(page_width, page.evaluate(script)) - window)


RADII = (8 / 255, 0.1, 2 / 255)
DRAWN = {
    "samples": 20,
    "verified": 11,
    "survived": 17,
    "confidence": 0.99,
    "low": 0.25,
    "high": 0.96875,
}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "all columns"])
def several(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A page about images at three radii; with all columns it is estimated and checked, too."""
    folder, more = (
        tmp_path_factory.mktemp("report") / "run",
        {"estimate": DRAWN} if request.param else {},
    )
    lines = write_folder(folder, COUNT, line=at_radii(*RADII, **more))
    if request.param:
        verdicts(
            folder,
            lines,
            status={REJECTED: "REJECT"},
            code={REJECTED: CODE},
            message={REJECTED: "at most 0.5"},
        )
    return Run(write_report(folder), lines)


def test_radii_sort_filter_and_name_the_details(browser: Any, several: Run) -> None:
    visit = Visit(browser, several)
    page, lines = visit.page, several.lines
    page.locator("th button[data-key=eps]").press("Enter")
    order = sorted(range(COUNT), key=lambda i: lines[i]["eps"])
    shown = list(zip(visit.column(0), visit.column(1), strict=True))
    assert shown == [(str(lines[i]["index"]), f"{lines[i]['eps']:.4g}") for i in order]
    page.locator("#filters").get_by_label("ε").select_option("0.007843")
    assert set(visit.column(1)) == {"0.007843"}
    assert len(visit.column(1)) == sum(line["eps"] == 2 / 255 for line in lines)
    page.locator("button[aria-label='Details of input 6 at ε = 0.007843']").press("Enter")
    assert page.locator(".detail h3").inner_text() == "Input 6 at ε = 0.007843"
    assert repr(2 / 255) in page.locator(".detail .facts").inner_text()
    visit.screenshot("radii")
    cell = page.locator("td.eps").first
    assert cell.evaluate("own => own.scrollWidth <= own.clientWidth")
    page.locator("#filters [name=index]").fill("6")
    for width in (320, 700, 835, 980, 1045):
        page.set_viewport_size({"width": width, "height": 800})
        assert overhang(page) <= 0, width
    struck = page.locator("tr.void td")
    styles = struck.evaluate_all(
        "own => own.map(cell => getComputedStyle(cell).textDecorationLine)"
    )
    marked = [i for i, style in enumerate(styles) if style == "line-through"]
    assert marked == ([5, 7] if len(styles) else [])
    assert visit.complaints == []
    visit.context.close()


def test_dark_and_light_differ(visit: Visit) -> None:
    script = (
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    paper, ink = map(brightness, visit.page.evaluate(script))
    visit.page.emulate_media(color_scheme="dark")
    dark_paper, dark_ink = map(brightness, visit.page.evaluate(script))
    visit.screenshot("dark")
    assert paper - ink > 400
    assert dark_ink - dark_paper > 400


def brightness(colour: str) -> int:
    """The sum of the channels of rgb(r, g, b)."""
    return sum(int(part) for part in colour[4:-1].split(","))


def test_cross_sections_are_drawn(browser: Any, tmp_path: Path) -> None:
    """The networks y = w0 x + w1, of which the boxes of PIE hold some."""
    import torch

    from bnncert import PIE, Network, Problem, ball, certify, half_space, save_posterior
    from bnncert.layers import Dense
    from bnncert.posteriors import Normal
    from bnncert.results.folder import result_folder

    one = torch.ones(1, 1, dtype=torch.float64)
    network = Network((1,), (Dense(1, 1),))
    posterior = Normal(torch.tensor([2.0, 3.0]).double(), torch.tensor([1.0, 1.0]).double())
    problem = Problem(network, posterior, half_space(ball(one, 0.1), torch.ones(1), 0.0))
    with result_folder(tmp_path / "run") as store:
        store(certify(problem, PIE(samples=1)))
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    page.goto(write_report(tmp_path / "run", tmp_path / "p.safetensors").as_uri())
    page.locator(button(0)).click()
    picture = page.locator(".section svg")
    areas = picture.locator("path").evaluate_all("own => own.map(path => path.getBBox().width)")
    wrong, half, *right, proved = areas
    assert 0 < wrong < 49
    assert half == 0
    assert len(right) == 4
    assert min(right) > 0
    assert "of that at the centre" in page.locator(".section .legend").inner_text()
    assert 0 < proved < 49
    assert picture.locator("circle.ring").count() == 3
    assert "inside a proved box" in page.locator(".section .legend").inner_text()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.locator(".section").screenshot(path=SCREENSHOTS / "section.png")
    context.close()


def test_what_was_asked_is_read_and_printed(browser: Any, tmp_path: Path) -> None:
    """The statement stands at the top; coordinates are named; on paper all entries are open, and
    legends keep their colours."""
    network = mlp(3, 4, 1)
    generator = torch.Generator().manual_seed(0)
    mean = gaussian(network.size, generator=generator)
    x = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    y = network.forward(mean, x)[:, 0]
    spec = output_interval(ball(x, 0.1), y - 0.4, y + 0.2)
    problem = Problem(network, Normal(mean, mean.abs() / 50), spec)
    certify(problem, Concentration(upper=True)).save(tmp_path)
    page = browser.new_context(viewport=WIDE).new_page()
    page.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(write_report(tmp_path).as_uri())
    asked = page.locator("section.statement")
    assert "P_safe is the probability that a network drawn at random" in asked.inner_text()
    assert problem.posterior.digest in asked.inner_text()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("tr.detail").count() == 4
    assert page.locator("tr.detail caption").count() >= 1
    assert page.locator(".legend .swatch").first.is_visible()
    style = "own => getComputedStyle(own).printColorAdjust"
    assert page.locator(".legend .swatch").first.evaluate(style) == "exact"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("tr.detail").count() == 0
    assert complaints == []
    page.context.close()
