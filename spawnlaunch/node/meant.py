"""Correct a variable's list of devices that a runtime does not read as a list.

    0-1, 0:1, 0;1, '0 1', [0,1], "0,1"    0,1
    all                                   0,1,2,3 of four
    cuda:0, gpu1                          0; 1

Imported only where a variable has such a value.
"""

from __future__ import annotations

import re

ALL = frozenset(("all", "any", "*"))
OF_ALL = re.compile(r"[\s\[\]{}()\"']+")
WORDS = re.compile(r"(cuda|gpu|hip|rocm|xpu|npu|device|dev)[:_=]?(?=\d)", re.IGNORECASE)
BETWEEN = re.compile(r"[,;:|\s]+")
SPAN = re.compile(r"(\d{1,4})(?:\s*(?:-|\.\.)\s*(\d{1,4}))?")


def devices(value: str, count: int) -> str:
    """Return the numbers that a value means, of `count` devices, with commas; "": not certain.

    >>> devices("0-2", 4), devices("ALL", 2), devices("['0' 1]", 2), devices("cuda:0;cuda:1", 2)
    ('0,1,2', '0,1', '0,1', '0,1')
    >>> devices("NoDevFiles", 4), devices("0-7", 4), devices("0,0", 4)
    ('', '', '')
    """
    if value.strip().lower() in ALL:
        return ",".join(map(str, range(count)))
    plain = WORDS.sub("", OF_ALL.sub(" ", value)).strip()
    found: list[int] = []
    for entry in filter(None, BETWEEN.split(re.sub(r"\s*(-|\.\.)\s*", r"\1", plain))):
        span = SPAN.fullmatch(entry)
        if span is None:
            return ""
        found += range(int(span[1]), int(span[2] or span[1]) + 1)
    is_list = found and max(found) < count and len(set(found)) == len(found)
    return ",".join(map(str, found)) if is_list else ""
