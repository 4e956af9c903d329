"""`yard completion`: what a shell needs to complete `yard` on Tab.

The scripts only ask `yard _complete SHELL PLACE WORDS…` (`completing`), so they stay correct when commands change.
"""

from enum import StrEnum
from typing import Annotated

from gpuyard.cli.line.options import Argument


class Shell(StrEnum):
    """Shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_BASH = """\
# Completion of yard for bash. Put this line into ~/.bashrc:  source <(yard completion bash)
_yard() {
    local IFS=$'\\n' found current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    found=$(command yard _complete bash "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null) || return 0
    if [ "$found" = ":files" ]; then
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -f -- "$current"))
    elif [ -n "$found" ]; then
        COMPREPLY=($found)
    fi
}
complete -F _yard yard
"""

_ZSH = """\
#compdef yard
# Completion of yard for zsh. Put this line into ~/.zshrc, after compinit:  source <(yard completion zsh)
_yard() {
    local found
    local -a lines
    found=$(command yard _complete zsh $((CURRENT - 1)) "${(@)words}" 2>/dev/null) || return 1
    if [[ "$found" == ":files" ]]; then
        _files
    elif [[ -n "$found" ]]; then
        lines=("${(@f)found}")
        _describe -V yard lines
    fi
}
if [[ "${funcstack[1]}" == "_yard" ]]; then
    _yard "$@"
else
    compdef _yard yard
fi
"""

_FISH = """\
# Completion of yard for fish. Put this line into ~/.config/fish/config.fish:  yard completion fish | source
function __yard_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l found (command yard _complete fish (count $before) $before "$current" 2>/dev/null)
    if test "$found" = ":files"
        __fish_complete_path "$current"
    else if test (count $found) -gt 0
        printf '%s\\n' $found
    end
end
complete -c yard -f -k -a '(__yard_complete)'
"""

SCRIPTS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH, Shell.FISH: _FISH}


def completion(
    shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print the script that makes your shell complete commands, options, jobs, nodes and tenants on Tab.

    For this shell only: `source <(yard completion bash)`. To keep it, put that line into ~/.bashrc.
    """
    print(SCRIPTS[shell], end="")
