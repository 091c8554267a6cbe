"""For mkdocs: what a page needs on the site that it does not need in the repository.

Links to files that are no pages lead to the repository; a file that is not there is an error. In a
table GitHub needs a backslash before a pipe that stands in code, Python-Markdown shows it. Pages
with wide tables have no second list of their headings beside them.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((\.\./[^)#\s]+)")
ROW = re.compile(r"^\|.*\|$", re.M)
CODE = re.compile(r"`[^`]*`")
WIDE = {"index.md", "errors.md", "flags.md", "torchrun.md", "benchmarks.md", "coming-from.md"}


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
