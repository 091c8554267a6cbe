"""What a shell needs to complete the launcher's flags, made of their table (docs/start.md).

Flags are completed up to the script, and the values that are words or files. Behind the script
files are, as everywhere. The same follows `python -m spawnlaunch`; whatever else is typed behind
`python` is completed as it was before.
"""

from __future__ import annotations

from shlex import quote

from spawnlaunch import values
from spawnlaunch.flags import FLAGS, PROGRAMS, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Of flags whose readers take more than a few words: those that they take.
WORDS = {
    "--nproc": ("auto", "gpu", "cpu"),
    "--bind": values.NAMES,
    "--rdzv-backend": ("static", "c10d"),
}
LONGEST = 72  # characters of what a flag does, in a list of flags

BASH = """\
_spawnlaunch() {
    local current=$2 flag= word i
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == '=' ]]; then
            continue
        elif [[ -n $flag ]]; then
            flag=
        elif [[ $word != -?* || $word == -- ]]; then
            return
        elif [[ ' VALUED ' == *" ${word//_/-} "* ]]; then
            flag=${word//_/-}
        fi
    done
    [[ $current == '=' ]] && current=
    local IFS=$'\\n' words= files=
    case $flag in
CASES
    '')
        if [[ $current == -* ]]; then
            words='FLAGS'
        else
            words='PROGRAMS' files=yes
        fi
        ;;
    esac
    words=${words// /$'\\n'}
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -n $files ]]; then
        compopt -o filenames
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}
complete -o default -F _spawnlaunch spawnlaunch

_spawnlaunch_python() {
    local i before
    for ((i = 1; i < COMP_CWORD - 1; i++)); do
        case ${COMP_WORDS[i]} in
        -m)
            [[ ${COMP_WORDS[i + 1]} == spawnlaunch ]] || break
            COMP_WORDS=(spawnlaunch "${COMP_WORDS[@]:i + 2}")
            ((COMP_CWORD -= i + 1))
            _spawnlaunch spawnlaunch "$2" "$3"
            return
            ;;
        -[WX]) ((i++)) ;;
        -?*) ;;
        *) break ;;
        esac
    done
    before=_spawnlaunch_before_${1##*/}
    [[ -z ${!before-} ]] || "${!before}" "$@"
}
for _spawnlaunch_name in python python3; do
    declare -F _completion_loader >/dev/null && _completion_loader $_spawnlaunch_name 2>/dev/null
    _spawnlaunch_known=$(complete -p $_spawnlaunch_name 2>/dev/null || :)
    if [[ $_spawnlaunch_known =~ ' -F '([^ ]+) && ${BASH_REMATCH[1]} != _spawnlaunch_python ]]; then
        printf -v _spawnlaunch_before_$_spawnlaunch_name %s "${BASH_REMATCH[1]}"
    fi
    complete -o default -F _spawnlaunch_python $_spawnlaunch_name
done
unset _spawnlaunch_name _spawnlaunch_known
"""
ZSH = """\
#compdef spawnlaunch
_spawnlaunch() {
    _arguments -S -A '-*' \\
SPECS
        '1:script:_spawnlaunch_scripts' '*::argument:_files'
}
_spawnlaunch_scripts() {
    _alternative 'programs:program:(PROGRAMS)' 'files:script:_files'
}
_spawnlaunch_python() {
    local i
    for ((i = 2; i < CURRENT - 1; i++)); do
        case $words[i] in
        (-m)
            [[ $words[i+1] == spawnlaunch ]] || break
            words=(spawnlaunch "${(@)words[i+2,-1]}")
            ((CURRENT -= i))
            _spawnlaunch
            return
            ;;
        (-[WX]) ((i++)) ;;
        (-?*) ;;
        (*) break ;;
        esac
    done
    if (($+functions[_python])); then
        _python "$@"
    else
        _default
    fi
}
if [[ $funcstack[1] == _spawnlaunch ]]; then
    _spawnlaunch "$@"
else
    compdef _spawnlaunch spawnlaunch
    compdef _spawnlaunch_python python python3
fi
"""
FISH = """\
function __spawnlaunch_is_before_script
    set -l valued VALUED
    set -l has_value no
    for word in (commandline -opc)[2..-1]
        set -l name (string replace -a _ - -- $word)
        if test $has_value = yes
            set has_value no
        else if not string match -q -- '-?*' $word; or test $word = --
            return 1
        else if contains -- $name $valued
            set has_value yes
        end
    end
end
complete -c spawnlaunch -n __spawnlaunch_is_before_script -a 'PROGRAMS'
LINES
function __spawnlaunch_is_module
    string match -qr -- '^\\S+ (-[WX] \\S+ |-[^m]\\S* )*-m spawnlaunch ' (commandline -cp)
end
function __spawnlaunch_behind_module
    set -l words (commandline -cp | string replace -r -- '^.*? -m spawnlaunch ' 'spawnlaunch ')
    complete -C $words
end
complete -c python -c python3 -n __spawnlaunch_is_module -f -a '(__spawnlaunch_behind_module)'
"""


def script(shell: str) -> str:
    """The script for bash, zsh or fish, to be evaluated there."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]().rstrip("\n")


def _names(flag: Flag) -> tuple[str, ...]:
    return (flag.name, *flag.also)


def _values(flag: Flag) -> tuple[str, ...]:
    """The words that a flag's value may be, as far as there are some."""
    return WORDS.get(flag.name) or (() if callable(flag.read) else tuple(flag.read))


def _valued() -> str:
    """The flags whose value is the next word, unless = stands between."""
    return " ".join(name for flag in FLAGS if flag.alone is None for name in _names(flag))


def _does(flag: Flag) -> str:
    """What a flag does, in a few words."""
    said = flag.help
    return said if len(said) <= LONGEST else said[:LONGEST].rpartition(" ")[0] + " ..."


def _bash() -> str:
    def cases() -> Iterator[str]:
        for flag in FLAGS:
            names = "|".join(_names(flag))
            if flag.alone is None and _values(flag):
                yield f"    {names}) words={quote(' '.join(_values(flag)))} ;;"
        others = (flag for flag in FLAGS if flag.alone is None and not _values(flag))
        yield f"    {'|'.join(name for flag in others for name in _names(flag))}) return ;;"

    flags = " ".join(name for flag in FLAGS for name in _names(flag))
    return _filled(BASH, CASES="\n".join(cases()), FLAGS=flags)


def _zsh() -> str:
    def specs() -> Iterator[str]:
        for flag in FLAGS:
            said = _does(flag).replace("]", "\\]").replace("[", "\\[").replace(":", "\\:")
            words = " ".join(_values(flag)).replace("-", "\\-")
            for name in _names(flag):
                equals = "=" if name.startswith("--") else "+"
                if not flag.read:
                    yield f"{name}[{said}]"
                elif flag.alone is not None:
                    yield f"{name}{equals}-[{said}]::{flag.name[2:]}:({words})"
                else:
                    action = f"({words})" if words else _of_files(flag, "_files -/", "_files", " ")
                    yield f"{name}{equals}[{said}]:{flag.shown or flag.name[2:]}:{action}"

    return _filled(ZSH, SPECS="\n".join(f"        {quote(spec)} \\" for spec in specs()))


def _fish() -> str:
    def lines() -> Iterator[str]:
        for flag in FLAGS:
            names = " ".join(
                f"-s {name[1:]}" if len(name) == 2 else f"-l {name[2:]}" for name in _names(flag)
            )
            how = ""
            if flag.read and flag.alone is None:
                words = " ".join(_values(flag))
                takes = "-x" if words else _of_files(flag, "-x -a '(__fish_complete_directories)'",
                                                     "-r", "-x")  # fmt: skip
                how = f" {takes}" + (f" -a {quote(words)}" if words else "")
            said = f" -d {quote(_does(flag))}"
            yield f"complete -c spawnlaunch -n __spawnlaunch_is_before_script {names}{how}{said}"

    return _filled(FISH, LINES="\n".join(lines()))


def _of_files(flag: Flag, directory: str, file: str, other: str) -> str:
    return {"DIR": directory, "FILE": file}.get(flag.shown, other)


def _filled(template: str, **parts: str) -> str:
    parts |= {"VALUED": _valued(), "PROGRAMS": " ".join(PROGRAMS)}
    for name, text in parts.items():
        template = template.replace(name, text)
    return template
