"""The site as it is built: what a browser would find on its pages, and what one makes of them."""

import json
import re
import subprocess
import sys
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.launching import ROOT, run
from tests.support.required import require_packages, require_programs

pytestmark = pytest.mark.full  # it builds the site

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
READERS = [
    *("library.html", "ending.html", "torchrun.html", "pinning.html", "bench.html", "train.html"),
    *("variables.html", "slurm.html", "kubernetes.html"),
]


class Page(HTMLParser):
    """The fetched files of a page, its links, and its headings of each size."""

    def __init__(self, text: str):
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.headings: list[int] = []
        self.without_words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if of.get(FETCHED.get(tag, "")):
            self.fetched.append(of[FETCHED[tag]])
        if tag == "link" and {"stylesheet", "preconnect", "icon"} & set(of["rel"].split()):
            self.fetched.append(of["href"])
        if tag == "img" and not of.get("alt"):
            self.without_words.append(of["src"])
        if tag == "a" and "href" in of:
            self.links.append(of["href"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_packages("material")
    place = tmp_path_factory.mktemp("site")
    words = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", place)
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # a link, an anchor or a picture is not there
    return place


def pages(site: Path) -> dict[str, Page]:
    found = {}
    for path in site.rglob("*.html"):
        if path.name != "404.html":
            found[str(path.relative_to(site))] = Page(path.read_text(encoding="utf-8"))
    return found


def test_a_page_fetches_nothing_from_elsewhere_and_all_that_it_fetches_is_there(site: Path):
    for name, page in pages(site).items():
        for each in page.fetched:
            assert not re.match(r"\w+:|//", each), f"{name} fetches {each}"
            assert ((site / name).parent / each.partition("?")[0]).is_file(), f"{name}: {each}"
    assert "http" not in (site / "site.css").read_text()


def test_a_page_has_a_single_title_and_no_heading_skips_a_size(site: Path):
    for name, page in pages(site).items():
        assert page.headings.count(1) == 1, name
        pairs = zip(page.headings, page.headings[1:], strict=False)
        assert [pair for pair in pairs if pair[1] > pair[0] + 1] == [], name


def test_a_picture_has_a_text_for_readers_who_do_not_see_it(site: Path):
    assert {
        name: page.without_words for name, page in pages(site).items() if page.without_words
    } == {}


def test_no_backslash_stands_before_a_pipe(site: Path):
    for path in site.rglob("*.html"):
        cells = re.findall(r"<td[^>]*>.*?</td>", path.read_text(encoding="utf-8"), re.S)
        assert [cell for cell in cells if r"\|" in cell] == [], path.name


def test_every_kind_of_reader_finds_their_page_from_the_first(site: Path):
    links = Page((site / "index.html").read_text(encoding="utf-8")).links
    assert [each for each in READERS if not any(link.endswith(each) for link in links)] == []


# A browser opens each page in a frame of this width, with the theme's script, and notes what is
# wider than the place that it has.
FRAMES = """<iframe style="border: 0; width: WIDTHpx; height: 900px"></iframe><script>
const frame = document.querySelector("iframe"), found = {};
const of = (page) => new Promise((done) => { frame.onload = done; frame.src = page; });
(async () => {
  for (const page of PAGES) {
    await of(page);
    const body = frame.contentDocument;
    const wide = (each) => each.scrollWidth > each.clientWidth + 1;
    const tables = [...body.querySelectorAll(".md-typeset__table")];
    const near = (each) => each.textContent.trim().slice(0, 60);
    found[page] = {
      dark: frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches,
      tables: tables.length,
      wide: tables.filter(wide).map(near),
      page: wide(body.documentElement),
    };
  }
  document.title = encodeURIComponent(JSON.stringify(found));
})();
</script>"""
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-extensions", "--hide-scrollbars", "--allow-file-access-from-files"),
    *("--virtual-time-budget=600000", "--window-size=1400,1000"),
)
LIGHT, DARK = 1, 0  # of Blink's preferredColorScheme


def browse(files: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run chromium; if it waits for ever, as happens with virtual time, run another."""
    for limit_s in (60, 120):
        with suppress(subprocess.TimeoutExpired):
            return run(
                *BROWSER, f"--user-data-dir={files / str(limit_s)}", *words, timeout_s=limit_s
            )
    return run(*BROWSER, f"--user-data-dir={files}", *words)


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_and_each_of_its_tables_are_as_wide_as_the_screen_at_most(
    site: Path, tmp_path: Path, width: int, scheme: int
):
    require_programs("chromium", package="chromium")
    names = sorted(pages(site))
    text = FRAMES.replace("WIDTH", str(width)).replace("PAGES", json.dumps(names))
    (site / "frames.htm").write_text(text)
    colours = f"--blink-settings=preferredColorScheme={scheme}"
    done = browse(tmp_path, colours, "--dump-dom", f"file://{site / 'frames.htm'}")
    title = re.search(r"<title>(.+?)</title>", done.stdout)
    assert title, done.stderr[-2000:]
    found = json.loads(unquote(title[1]))
    assert sorted(found) == names
    assert sum(each["tables"] for each in found.values()) > len(READERS)
    assert {each["dark"] for each in found.values()} == {scheme == DARK}
    assert {name: each["wide"] for name, each in found.items() if each["wide"]} == {}
    assert [name for name, each in found.items() if each["page"]] == []
