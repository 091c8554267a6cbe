"""--completion: what a shell offers is the table of flags, in a real bash, zsh and fish."""

import sys
from pathlib import Path

import pytest

from spawnlaunch.base.errors import UsageError
from spawnlaunch.cli.flags import FLAGS, SPELLINGS
from spawnlaunch.cli.manual import completion
from tests.support.launching import clean_environ, launch, run
from tests.support.required import require_programs

pytest.importorskip("shtab", reason="pip install shtab")
SHELLS = {  # that offer what completes the words behind the script
    "bash": 'eval "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); compopt() { :; }; '
    "_shtab_spawnlaunch; printf '%s\\n' \"${COMPREPLY[@]}\"",
    "fish": 'eval "$argv[1]"; complete -C "$argv[2..-1]" | string split -f1 \\t',
}


@pytest.mark.full
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_offers_flags_words_and_files(shell: str, tmp_path: Path) -> None:
    require_programs(shell, package=shell)
    (tmp_path / "train.py").touch()
    made = launch("--completion", shell)
    assert (made.returncode, made.stderr) == (0, "")
    no_files = {"bash": "--norc", "fish": "--no-config"}[shell]
    for words, offered in {
        ("--max-r",): {"--max-restarts"},
        ("--bind", "no"): {"node", "none"},
        ("--nproc", "2", "tr"): {"train.py"},
        ("--",): {name for name in SPELLINGS if name.startswith("--")},
    }.items():
        ends = ("bash",) if shell == "bash" else ()
        line = (shell, no_files, "-c", SHELLS[shell], *ends, made.stdout, "spawnlaunch", *words)
        done = run(*line, cwd=tmp_path, environ=clean_environ(HOME=str(tmp_path)))
        assert {*done.stdout.split()} == offered, done.stderr


@pytest.mark.full
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    require_programs("zsh", package="zsh")
    begin = 'autoload -U compinit; compinit -u -D; eval "$1"; print -r -- $_comps[spawnlaunch]'
    made = launch("--completion", "zsh").stdout
    done = run("zsh", "-f", "-c", begin, "zsh", made, environ=clean_environ(HOME=str(tmp_path)))
    assert (done.stdout, done.stderr) == ("_shtab_spawnlaunch\n", "")
    assert all(flag.name in made for flag in FLAGS)


def test_without_shtab_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(UsageError, match=r"run pip install 'spawnlaunch\[completion\]'$"):
        completion("zsh")
