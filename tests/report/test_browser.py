"""The pages in a browser: nothing sticks out, all can be read, clicks work.

They go to screenshots/; `make pictures` takes those of the README from there.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from test_report import rows_of_many

from dedup_nb import Config, profile, run
from dedup_nb.base.storage import write_text
from dedup_nb.report.pages import write_index

ROOT = Path(__file__).parent.parent.parent
SHOTS = ROOT / "screenshots"
WIDTHS = (360, 768, 1280)
THEMES = ("light", "dark")
PICTURES = {  # of the README: a page, and the headings from which and to which
    "report": ("runs/{last}/report.html", "What became of the rows", "Which earlier batches had them"),
    "profile": ("profile.html", "By batch", "By day"),
}
PAGES = ("profile.html", "runs/index.html", "runs/{last}/report.html", "many/runs/index.html")

pytestmark = pytest.mark.slow

# of each element with text of its own: how its colour stands out from the colour behind it
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = numbers(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return dark ? [18, 18, 18] : [255, 255, 255];
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("script, style, svg, input")) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push(`${element.tagName} ${element.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on the path")
    with api.sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def site(spark, tmp_path_factory):
    "An output of the samples with its pages, the profile beside, and the page of 300 batches more."
    place = tmp_path_factory.mktemp("pages")
    given = dict(input=str(ROOT / "data_samples"), output=str(place), batch_pattern="run=*", manifest="lake")
    done = run(Config(**given), spark)
    profile(Config(**given), spark)
    for path, text in rows_of_many(300, dropped_250=4000, bad_299=900).items():
        write_text(f"{place}/many/{path}", text)
    write_index(f"{place}/many")
    return place, done.batches[-1]["batch_id"]


@pytest.fixture
def opened(browser, site):
    "Open a page; errors of its console are collected."
    place, last = site
    contexts = []

    def opening(name, width=1280, theme="light", **more):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, offline=True, **more
        )
        contexts.append(context)
        page = context.new_page()
        page.wrong = []
        page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.goto((place / name.format(last=last)).as_uri())
        return page

    yield opening
    for context in contexts:
        context.close()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_window_and_can_be_read(opened, name, theme):
    for width in WIDTHS:
        page = opened(name, width, theme)
        SHOTS.mkdir(exist_ok=True)
        label = name.replace("/", "-").replace("{last}", "batch").removesuffix(".html")
        page.screenshot(path=SHOTS / f"{label}-{width}-{theme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        assert page.wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_its_links_lead_somewhere_and_print_shows_all(opened, site, name):
    page = opened(name)
    place = (site[0] / name.format(last=site[1])).parent
    links = page.eval_on_selector_all("a[href]", "all => all.map((one) => one.getAttribute('href'))")
    if "many" not in name:  # there the pages of the batches are left out
        assert all((place / link).exists() for link in links)
    page.emulate_media(media="print")
    assert page.eval_on_selector("#words dd", "one => one.getBoundingClientRect().height") > 0
    assert (place / Path(name.format(last=site[1])).name).stat().st_size < 300_000


def thumbnail(path):
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(path).convert("L").resize((64, 40)), float)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_of_the_readme_shows_the_page_as_it_is(opened, picture, theme):
    name, first, behind = PICTURES[picture]
    page = opened(name, 900, theme)
    heading = lambda text: page.get_by_role("heading", name=text, exact=True).bounding_box()["y"] - 12
    clip = {"x": 0, "y": heading(first), "width": 900, "height": heading(behind) - heading(first)}
    SHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SHOTS / f"{picture}-{theme}.png", full_page=True, clip=clip)
    now, then = (thumbnail(folder / f"{picture}-{theme}.png") for folder in (SHOTS, ROOT / "docs/pictures"))
    assert abs(now - then).mean() < 5, "make pictures"


def column(page, place):
    return page.eval_on_selector_all(
        f"table.batches tbody td:nth-child({place})", "all => all.map((one) => one.textContent)"
    )


def test_batches_are_sorted_and_searched(opened):
    page = opened("many/runs/index.html")
    head = page.locator("table.batches th button", has_text="dropped")
    head.click()
    dropped = [int(text.replace("\u00a0", "").replace(" ", "")) for text in column(page, 6)]
    assert len(dropped) == 300 and dropped == sorted(dropped)
    head.click()
    assert column(page, 1)[0].strip() == "b0250"
    page.locator("input.search").fill("b025")
    assert page.locator("table.batches tbody tr:visible").count() == 10


def test_an_id_is_copied_as_the_command_that_explains_it(opened):
    page = opened("runs/{last}/report.html", permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("button.copy").first
    button.click()
    page.wait_for_function("document.querySelector('button.copy').textContent === 'copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == button.get_attribute("data-copy") and copied.startswith("dedup explain ")
