"""For mkdocs: what a page needs on the site that it does not need in the repository.

Links to files that are no pages lead to the repository; a file that is not there is an error. In a
table GitHub needs a backslash before a pipe that stands in code, Python-Markdown shows it. Pages
with wide tables have no second list of their headings beside them. Each cell has its column's
title: on a narrow screen a row's cells stand below each other (site.css).
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((\.\./[^)#\s]+)")
ROW = re.compile(r"^\|.*\|$", re.M)
CODE = re.compile(r"`[^`]*`")
TABLE = re.compile(r"<table>.*?</table>", re.S)
TABLE_ROW = re.compile(r"<tr>.*?</tr>", re.S)
WIDE = {
    *("index.md", "errors.md", "flags.md", "torchrun.md", "benchmarks.md", "coming-from.md"),
    *("versions.md", "comparison.md"),
}


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page's text, with links and tables changed."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc", "navigation"]
    here = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def outside(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[1]))
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        return f"]({config.extra['repository']}/blob/main/{path}"

    return ROW.sub(_plain_pipes, LINK.sub(outside, markdown))


def _plain_pipes(row: re.Match[str]) -> str:
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def on_page_content(html: str, **_: Any) -> str:
    """The page's HTML, with the titles of columns in the cells."""
    return TABLE.sub(_titled, html)


def _titled(table: re.Match[str]) -> str:
    titles = [re.sub(r"<.*?>", "", each) for each in re.findall(r"<th>(.*?)</th>", table[0], re.S)]

    def row(match: re.Match[str]) -> str:
        left = iter(titles)
        return re.sub("<td>", lambda _: f'<td data-title="{next(left, "")}">', match[0])

    return TABLE_ROW.sub(row, table[0])
