"""Any text for flags, variables and files: what may stand there, a slip of it, and worse."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

PLAIN = [
    *("0", "1", "2", "3", "8", "29500", "auto", "gpu", "cpu", "none", "node", "exclusive"),
    *("localhost", "node0", "node0:29500", "[::1]:1", "host", "c10d", "static", "json", "on"),
    *("0:3,1:1", "r9:3", "0-3", "0-1:2-3", "0xff,0xff00", "first-per-l3", "2.5"),
    *("torch,numpy", "kill", "dump", "hyphen", "logs", "node[0-3]", "2(x3),1", "a.py", "-m"),
]
NUMBERS = [
    *("-1", "-0", "+1", "1_0", "00", "007", "1e9", "nan", "inf", "0x10", "1.", ".5", "1.2.3"),
    *("²", "٣", "\uff11", " 2 ", "65535", "65536", "1048576", "4294967290", "1000000000"),
    *("9" * 18, "9" * 19, "9" * 5000, "." + "9" * 5000, "0" * 5000),
]
LISTS = [
    *("node[0-999999999]", "node[0-" + "9" * 30 + "]", "1(x1000000000)", "2(x2", "2(x0)", ","),
    *("a[[1]]", "a[1]]", "a[", "a" + "[1-2]" * 40, "n[0-9:0]", "n[3-1]", "n[1-9:3]x[0-99999]y"),
    *("0-1048575", "0-1048576", "3-1", "0-", "-3", "0-3:5/2", "0:0", ":::", "0:,1", "0xg", "0x"),
    *("f" * 300000, ",".join(map(str, range(20000))), "1:4", "node0,,node1", "[" * 1000),
]
ODD = [
    *("", " ", "\n", "a\nb", "\r", "\x1b[2J", "\u2028", "\udcff", "\udc80abc", "=", "-", "--="),
    *("$(id)", "%s", "%n", "{", "{}", "{rank}", "{host", "{rank:>1000000000}", "{rank.__class__}"),
    *("{nothing}", "/", ".", "..", "/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem"),
    *("/nowhere/at/all", "x" * 100000, "a b" * 1000, "None", "::1", "a:b:c", "https://[x/"),
]
_CHARACTERS = st.characters(exclude_characters="\0")  # surrogates too


@st.composite
def slips(draw: DrawFn, texts: SearchStrategy[str]) -> str:
    """One of the texts with a character too many, too few, or another."""
    value = draw(texts)
    at = draw(st.integers(0, len(value)))
    new = draw(st.sampled_from(["", *"-,:[]()=0 x/\udcfe"]) | _CHARACTERS)
    return value[:at] + new + value[at + draw(st.integers(0, 1)) :]


_WHOLE = st.one_of(
    *map(st.sampled_from, (PLAIN, PLAIN, NUMBERS, LISTS, ODD)), st.text(_CHARACTERS, max_size=20)
)
TEXTS = _WHOLE | slips(_WHOLE)
