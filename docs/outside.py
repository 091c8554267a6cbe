"""For mkdocs: links of a page to files of the repository that are no pages lead to the repository.

So the pages can be read in a checkout, in the repository and on the site. A file that is not there
is an error.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\((\.\./[^)#\s]+)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """The page's text, with the links changed."""
    here = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def outside(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[1]))
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which is not there")
        return f"]({config.repo_url}/blob/main/{path}"

    return LINK.sub(outside, markdown)
