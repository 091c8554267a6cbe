"""For mkdocs: what a page needs on the site that it does not need in the repository.

Two pages come from elsewhere (MOVED), with copies of the scripts and manifests beside them. Links
to other files that are no pages lead to the repository; a file that is not there is an error. In a
table GitHub needs a backslash before a pipe that stands in code, Python-Markdown shows it. Pages
with wide tables have the list of their headings beside them, and no list of pages. Each cell has
its column's title: on a narrow screen a row's cells stand below each other (site.css).
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"^```.*?^```|\]\((?!\w+:)([^)#\s]+)", re.M | re.S)  # or a block of code
ROW = re.compile(r"^\|.*\|$", re.M)
CODE = re.compile(r"`[^`]*`")
TABLE = re.compile(r"<table>.*?</table>", re.S)
TABLE_ROW = re.compile(r"<tr>.*?</tr>", re.S)
WIDE = {"index.md", "errors.md", "flags.md", "torchrun.md", "benchmarks.md", "comparison.md"}
# Pages that lie beside what they are about, and what they are on the site.
MOVED = {"slurm/README.md": "slurm.md", "kubernetes/README.md": "kubernetes.md"}
COPIED = (".sh", ".yaml")  # of what lies beside them


def on_files(files: Any, *, config: Any) -> Any:
    """The pages of docs/, those of MOVED, and the files that are copied."""
    for path, at in MOVED.items():
        files.append(File.generated(config, at, abs_src_path=str(ROOT / path)))
        for each in (ROOT / path).parent.iterdir():
            if each.suffix in COPIED:
                copy = each.relative_to(ROOT).as_posix()
                files.append(File.generated(config, copy, abs_src_path=str(each)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page's text, with links and tables changed."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["navigation"]
    source = next((path for path, at in MOVED.items() if at == page.file.src_uri), None)
    here = posixpath.dirname(source or posixpath.join("docs", page.file.src_uri))

    def outside(match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        path = posixpath.normpath(posixpath.join(here, match[1]))
        copied = path.endswith(COPIED) and path
        at = MOVED.get(path) or copied or (path.startswith("docs/") and path.removeprefix("docs/"))
        if at:
            return f"]({posixpath.relpath(at, posixpath.dirname(page.file.src_uri) or '.')}"
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        return f"]({config.extra['repository']}/blob/main/{path}"

    return ROW.sub(_plain_pipes, LINK.sub(outside, markdown))


def _plain_pipes(row: re.Match[str]) -> str:
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """The page's HTML, with the titles of columns in the cells."""
    if page.file.src_uri == "errors.md":  # whose headings are whole messages
        for part in page.toc.items[0].children:
            part.children.clear()
    return TABLE.sub(_titled, html)


def _titled(table: re.Match[str]) -> str:
    titles = [re.sub(r"<.*?>", "", each) for each in re.findall(r"<th>(.*?)</th>", table[0], re.S)]

    def row(match: re.Match[str]) -> str:
        remaining = iter(titles)
        return re.sub("<td>", lambda _: f'<td data-title="{next(remaining, "")}">', match[0])

    return TABLE_ROW.sub(row, table[0])
