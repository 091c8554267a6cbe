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

REPORT = (sys.executable, "-m", "spawnlaunch.report")
BROWSER = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-extensions", "--hide-scrollbars", "--virtual-time-budget=2000"),
)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two ranks, of which 1 fails at its first attempt."""
    directory = tmp_path_factory.mktemp("page")
    (directory / "fails.py").write_text(
        "import os, time\n"
        "print('<b>said</b>', flush=True)\n"
        "time.sleep(3)\n"
        "if os.environ['RANK'] == '1':\n    raise ValueError('bad <i>')\n"
        "time.sleep(3600)\n"
    )
    flags = ("--nproc", 2, "--quiet", "--max-restarts", 1, "--record", directory / "record")
    done = launch(*flags, directory / "fails.py")
    assert done.returncode == 1, done.stderr
    return directory / "record"


@pytest.fixture(scope="module")
def html(record: Path) -> str:
    assert run(*REPORT, record, check=True).stdout == f"{record / 'report.html'}\n"
    return (record / "report.html").read_text()


def lines_of(record: Path) -> str:
    (file,) = record.glob("*.jsonl")
    return file.read_text()


def test_nothing_is_fetched(html: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not {"fetch(", "import(", "XMLHttpRequest", "@import", "url("} & set(
        re.findall(r"[\w@]+\(?", html)
    )
    assert set(re.findall(r'(?:src|href)="([^"]*)"', html)) == {"data:,"}


def test_the_pictures_are_xml(html: str) -> None:
    pictures = re.findall(r'<svg class="picture.*?</svg>(?=\n|<p|</div>)', html, re.DOTALL)
    assert len(pictures) >= 3  # a figure that is 0 all the time has none
    for picture in pictures:
        ElementTree.fromstring(picture)


def test_the_first_failure_is_there_and_nothing_of_it_is_markup(html: str) -> None:
    assert "ValueError: bad &lt;i&gt;" in html
    assert "<i>" not in html
    assert "failed first, after 1 restart: rank 1" in html


def test_every_attempt_of_every_rank_has_a_bar(html: str) -> None:
    assert all(f">{attempt}: {rank}<" in html for attempt in (0, 1) for rank in (0, 1))


def test_what_was_derived_is_there_with_its_source(html: str, record: Path) -> None:
    start = json.loads(lines_of(record).splitlines()[0])
    for name, fact in start["explain"]["sources"].items():
        assert f"<td>{name}</td><td>{fact['value']}</td>" in html


def test_a_command_that_is_not_utf_8_is_drawn(record: Path, tmp_path: Path) -> None:
    start, *others = lines_of(record).splitlines()
    told = json.loads(start)
    told["command"].append("\udcff.py")
    (tmp_path / "node0.jsonl").write_text("\n".join([json.dumps(told), *others]))
    run(*REPORT, tmp_path, check=True)
    assert "\\udcff.py" in (tmp_path / "report.html").read_text()


def test_a_directory_without_a_record_is_refused(tmp_path: Path) -> None:
    done = run(*REPORT, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"spawnlaunch.report: error: {tmp_path} has no record")


def test_a_page_that_cannot_be_written_is_said(record: Path, html: str) -> None:
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
def test_a_browser_draws_it_and_has_nothing_to_say(
    html: str, record: Path, tmp_path: Path, width: int
) -> None:
    require_programs("chromium", package="chromium")
    assert html
    picture = tmp_path / "page.png"
    done = subprocess.run(
        [*BROWSER, f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--v=0",
         f"--window-size={width},1600", f"--screenshot={picture}",
         f"file://{record / 'report.html'}"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "CONSOLE" not in done.stderr
    assert picture.stat().st_size > 20_000  # an empty page of that size has 7,000 at most


@pytest.mark.full
def test_nothing_is_wider_than_a_narrow_screen(html: str, tmp_path: Path) -> None:
    """The browser itself measures, by a script that is in a copy of the page."""
    require_programs("chromium", package="chromium")
    measure = (
        "<script>document.title = [document.documentElement.scrollWidth, innerWidth, "
        "document.querySelectorAll('polyline').length].join(' ')</script></body>"
    )
    copy = tmp_path / "copy.html"
    copy.write_text(html.replace("</body>", measure))
    done = subprocess.run(
        [*BROWSER, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=400,800",
         "--dump-dom", f"file://{copy}"],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    title = re.search(r"<title>(\d+) (\d+) (\d+)</title>", done.stdout)
    assert title, done.stdout[:500] + done.stderr[-500:]
    scroll, inner, lines = map(int, title.groups())
    assert scroll <= inner
    assert lines >= 4
