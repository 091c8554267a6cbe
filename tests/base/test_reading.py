"""What is read of a file: all of what was asked for, and no more."""

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch.base import reading


@given(content=st.text("ab", max_size=20), most=st.integers(1, 25), begin=st.integers(0, 25))
def test_the_end_of_a_file_begins_behind_a_place(tmp_path_factory, content: str, most, begin):
    """Whatever is added meanwhile: a process may go on writing to it."""
    path = tmp_path_factory.getbasetemp() / "log"
    path.write_text(content)
    behind = content[begin:]
    found = reading.end_of_file(str(path), most, begin)
    assert found == (behind[-most:], len(behind) <= most)
