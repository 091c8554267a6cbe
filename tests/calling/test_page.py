"""docs/library.md: its examples say what stands below them."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.launching import ROOT, run

PAGE = (ROOT / "docs" / "library.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n+(?:```text\n(.*?)```)?", PAGE, re.DOTALL)


@pytest.mark.full
@pytest.mark.parametrize(("code", "said"), EXAMPLES)
def test_an_example_says_what_the_page_says(code: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    (tmp_path / "example.py").write_text(code)
    done = run(sys.executable, "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == said
