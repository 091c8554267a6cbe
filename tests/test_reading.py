"""What is read of a file: all of what was asked for, and no more."""

from hypothesis import given
from hypothesis import strategies as st

from spawnlaunch import reading


@given(
    content=st.binary(max_size=20).filter(bytes.isascii),
    most_bytes=st.integers(1, 25),
    begin=st.integers(0, 25),
)
def test_the_end_of_a_file_is_what_stands_behind_a_place_in_it(
    tmp_path_factory, content: bytes, most_bytes: int, begin: int
):
    """Whatever is added meanwhile: a process may go on writing to it."""
    path = tmp_path_factory.getbasetemp() / "log"
    path.write_bytes(content)
    behind = content[begin:].decode()
    found = reading.end_of_file(str(path), most_bytes, begin)
    assert found == (behind[-most_bytes:], len(behind) <= most_bytes)
