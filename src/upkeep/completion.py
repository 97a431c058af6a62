"""Completion of the command line in bash and zsh, made from the parser itself."""

from __future__ import annotations

import argparse
import shlex

SUITES = (
    'ls -d "$root"/config/suites/*.yaml "$root"/papers/*/suite.yaml 2>/dev/null '
    '| sed "s:/suite.yaml$::; s:.*/::; s:.yaml$::"'
)
NAMES = {
    **dict.fromkeys(("suite", "--suite"), SUITES),
    "--model": 'ls "$root"/models',
    "--judge": 'ls "$root"/models',
    "--method": 'ls "$root"/methods',
    "cell": 'cd "$root"/results/cells && printf "%s\\n" */*/*/*',
}
"""Argument -> a command that lists what may stand there, of the clone at $root."""

_SCRIPT = """# Completion of ./upkeep: eval "$(./upkeep completion bash)"; zsh: bashcompinit first
_upkeep() {{
    local root words='' now=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    root=$(dirname -- "${{COMP_WORDS[0]}}")
    if [ "$COMP_CWORD" -eq 1 ]; then
        words={commands}
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        *) case "${{COMP_WORDS[1]}}" in
{options}
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$now"))
}}
complete -o default -F _upkeep ./upkeep upkeep
"""


def script(parser: argparse.ArgumentParser) -> str:
    """The script for the shell: commands; of each its options and words; names of suites, models, methods and cells."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    values: list[str] = []
    options: list[str] = []
    for name, sub in commands.choices.items():
        offered: list[str] = []
        listed = ""
        for action in sub._actions:
            offered += action.option_strings or [str(choice) for choice in action.choices or ()]
            for option in action.option_strings:
                if action.choices:
                    words = shlex.quote(" ".join(map(str, action.choices)))
                    values.append(f'        "{name} {option}") words={words} ;;')
                elif option in NAMES:
                    values.append(f'        "{name} {option}") words=$({NAMES[option]} 2>/dev/null) ;;')
            if not action.option_strings and action.dest in NAMES:
                listed = f" $({NAMES[action.dest]} 2>/dev/null)"
        options.append(f'            {name}) words="{" ".join(offered)}{listed}" ;;')
    return _SCRIPT.format(
        commands=shlex.quote(" ".join(commands.choices)), values="\n".join(values), options="\n".join(options)
    )
