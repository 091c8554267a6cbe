"""The report's page is true to its record, and a browser draws it without a word of complaint."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support.launching import launch, run
from tests.support.required import require_programs
from tests.watch.conftest import Recorded

REPORT = (sys.executable, "-m", "spawnlaunch.report")
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-extensions", "--hide-scrollbars", "--virtual-time-budget=2000"),
)


@pytest.fixture(scope="module")
def html(failed_twice: Recorded) -> str:
    record = failed_twice.directory
    assert run(*REPORT, record, check=True).stdout == f"{record / 'report.html'}\n"
    return (record / "report.html").read_text()


def test_nothing_is_fetched(html: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not {"fetch(", "import(", "XMLHttpRequest", "@import", "url("} & set(
        re.findall(r"[\w@]+\(?", html)
    )
    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) == {"data:,"}


def test_it_has_what_the_record_has_and_nothing_of_that_is_markup(
    html: str, failed_twice: Recorded
) -> None:
    pictures = re.findall(r'<svg class="picture.*?</svg>(?=\n|<p|</div>)', html, re.DOTALL)
    assert len(pictures) >= 3  # a figure that is 0 all the time has none
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert all(f">{attempt}: {rank}<" in html for attempt in (0, 1) for rank in (0, 1))
    assert "ValueError: bad &lt;i&gt;" in html
    assert "<i>" not in html
    assert "failed first, after 1 restart: rank 1" in html
    for name, fact in failed_twice.lines[0]["explain"]["sources"].items():
        assert f"<td>{name}</td><td>{fact['value']}</td>" in html


def test_what_cannot_be_read_or_written_is_said(
    failed_twice: Recorded, html: str, tmp_path: Path
) -> None:
    record = failed_twice.directory
    done = run(*REPORT, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"spawnlaunch report: error: {tmp_path} has no record")
    done = run(*REPORT, record, "--html", record / "no" / "page.html")
    assert done.returncode == 2
    assert "name another file with --html" in done.stderr
    assert run(*REPORT, record, "--html", "-").stdout == html + "\n"


def test_explain_draws_the_node_alone(tmp_path: Path) -> None:
    (tmp_path / "x.py").touch()
    done = launch("--explain=svg", "--nproc", 2, "x.py", cwd=tmp_path)
    picture = ElementTree.fromstring(done.stdout)
    titles = [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    explained = launch("--explain=json", "--nproc", 2, "x.py", cwd=tmp_path).stdout
    told: dict[str, Any] = json.loads(explained)
    assert len(titles) == told["node"]["cores"]
    assert sum("local rank" in (title or "") for title in titles) >= 1


@pytest.mark.full
@pytest.mark.parametrize("width", [1000, 400])
def test_a_browser_draws_it_has_nothing_to_say_and_nothing_is_wider_than_the_screen(
    html: str, tmp_path: Path, width: int
) -> None:
    """The browser itself measures, by a script that is in a copy of the page."""
    require_programs("chromium", package="chromium")
    measure = (
        "<script>document.title = [document.documentElement.scrollWidth, innerWidth, "
        "document.querySelectorAll('polyline').length].join(' ')</script></body>"
    )
    copy = tmp_path / "copy.html"
    copy.write_text(html.replace("</body>", measure))
    done = subprocess.run(
        [*BROWSER, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0",
         f"--window-size={width},1600", "--dump-dom", f"file://{copy}"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    title = re.search(r"<title>(\d+) (\d+) (\d+)</title>", done.stdout)
    assert title, done.stdout[:500] + done.stderr[-500:]
    scroll, inner, lines = map(int, title.groups())
    assert scroll <= inner
    assert lines >= 4
