"""Ways to come to a line that calls llm, shell by shell.

`{call}` is llm with options and words in quotes, `{llm}` llm with options, `{words}` the words, which also stand in the
file `words`, in `script`, which calls llm with them, in a Makefile, and as a name in the folder `names`. `{chat}` and the
file `chat` call `llm chat`, `page` is a text of others. `↵` is Enter within a line, `¶` begins another one.
"""

from __future__ import annotations

import re


def forms(text: str) -> list[str]:
    """Return what stands in lines with four blanks between."""
    keys = {"↵": "\n", "¶": "\f", "^P": "\x10", "^X": "\x18", "^A": "\x01", "^[": "\x1b"}
    for sign, key in keys.items():
        text = text.replace(sign, key)
    return re.split(r" {4,}|\n {4,}", text.strip())


SHELLS = ["bash", "zsh", "fish", "nushell"]
POSIX_SETUP = """ask() { llm "$@"; }; alias q=llm\n"""
SETUP = {
    "bash": POSIX_SETUP + """bind -x '"\\C-xl": . ./script'\n""",
    "zsh": POSIX_SETUP + "run() { . ./script; }; zle -N run; bindkey '^Xl' run\n",
    "fish": "function ask; llm $argv; end; alias q=llm; abbr -a lx llm; bind \\cxl '. ./script; ended'\n",
    "nushell": "",
}
# All of them hide lines that begin with a blank.
SETTINGS = {
    "bash": [
        *("HISTCONTROL=ignorespace", "HISTCONTROL=ignoreboth", "HISTCONTROL=ignoreboth; HISTTIMEFORMAT='%F %T '"),
        *("HISTCONTROL=ignorespace:erasedups", "HISTCONTROL=; HISTIGNORE=' *'", "HISTCONTROL=ignoreboth; HISTSIZE=5"),
    ],
    "zsh": ["", "setopt hist_ignore_dups share_history", "setopt hist_ignore_all_dups inc_append_history", "set -u"],
    "fish": [""],
    "nushell": ["", "$env.config.history.file_format = 'plaintext'"],
}

OPTIONS = ["", "", "", " -m scripted", " -o temperature 0.5", " prompt", " -c", " --cid {cid}", " -t ask", " -t brief"]
OPTIONS += [" -s 'be brief'", " -f page", " -T UserMemory", " --sf memory:auto", " -f memory:auto", " --no-stream"]
PLAIN = "I like {} a lot"
SENTENCES = [PLAIN, "I like {}: ж ß 漢 😀", 'I like {}! Really # * ? [x] ~ $HOME `date` "so"', "I like {}\nand maps"]
SENTENCES += ["I like {}. " + "Tea is good. " * 50]

# -- typed -------------------------------------------------------------------


def quoted(words: str, shell: str) -> list[str]:
    """Return the words as somebody may type them."""
    if not re.fullmatch("[a-z0-9 ]+", words, re.IGNORECASE):
        return [f"'{words}'"]
    middle = len(words) // 2
    ways = [f"'{words}'", f'"{words}"']
    if shell == "nushell":
        return [*ways, f"r#'{words}'#", f"$'{words}'", f"`{words}`"]
    ways += [words.replace(" ", "\\ "), f"'{words[:middle]}'\"{words[middle:]}\"", words.replace(" ", "' '")]
    return ways if shell == "fish" else [*ways, "$'" + words.replace(" ", "\\x20") + "'"]


SIMPLE = forms(r"""
    {call}    {call}    {call}    {call}    {call}    true; {call}    cd .; {call}    {call} -m scripted
    {llm} -- '{words}'    q '{words}'    echo '{words}'¶^P^A^[dllm
""")
NO_NU = forms(r"""
    true && {call}    false || {call}    X=1 {call}    LLM_MEMORY_AUTO=1 {call}    {call} | cat    {call} >out
    {call} 2>&1 | tee out    time {call}    cat page | {call}    {call} <page    {call} &¶wait    ask '{words}'
    true \↵&& {call}    true &&↵{call}    {llm} -s "$(cat page)" '{words}'    eval "{llm} '{words}'"
""")
POSIX_TYPED = forms(r"""
    if true; then {call}; fi    for i in 1; do {call}; done    for i in 1↵do↵{call}↵done    { {call}; }    ({call})
    ! {call}    it=$({call})    echo "$({call})"    echo `{llm} '{words}'`    cat <({call})    f() { {call}; }; f
    for it in '{words}'; do {llm} "$it"; done    {llm} '{words}' <<<x    ({call}) & wait
    {llm} '{words}' <<'END'↵x↵END    (eval "{llm} '{words}'")    while true↵do {call}↵break; done
""")
FISH_TYPED = forms(r"""
    true; and {call}    false; or {call}    not {call}    begin; {call}; end    if true; {call}; end    echo ({call})
    if true↵{call}↵end    for i in 1; {call}; end    set it ({call})    cat ({call} | psub)    lx '{words}'
    function f; {call}; end; f    for it in '{words}'; {llm} $it; end
""")
NU_TYPED = forms(r"""
    if true { {call} }    for i in [1] { {call} }    do { {call} }    try { {call} }    ({call})    echo ({call})
    let it = ({call})    {call} | str upcase    {call} out> out    {call} o+e> out    open page | {call}    'x' | {call}
    timeit { {call} }    {call} | complete    with-env {X: 1} { {call} }    X=1 {call}    [1] | each { {call} }
    def f [] { {call} }; f    if true {↵{call}↵}    (↵{call}↵)    {call} | save -f out
    for it in ['{words}'] { {llm} $it }    {llm} ...['{words}']    ls; {call}    {llm} ('{words}')
""")
TYPED = {
    "bash": SIMPLE + NO_NU + POSIX_TYPED,
    "zsh": SIMPLE + NO_NU + POSIX_TYPED,
    "fish": SIMPLE + NO_NU + FISH_TYPED,
    "nushell": SIMPLE + NU_TYPED,
}

# -- chats, which are typed into ----------------------------------------------

SIMPLE_CHATS = forms(r"""
    {chat}    {chat}    true; {chat}    cd .; {chat}    q chat    {chat} -m scripted
""")
NO_NU_CHATS = forms(r"""
    eval '{chat}'    . ./chat    source ./chat    X=1 {chat}    ask chat    true && {chat}
""")
POSIX_CHATS = forms(r"""
    ({chat})    (eval '{chat}')    (. ./chat)    if true↵then {chat}↵fi
""")
FISH_CHATS = forms(r"""
    begin; {chat}; end    if true↵{chat}↵end
""")
NU_CHATS = forms(r"""
    do { {chat} }    if true { {chat} }    source ./chat
""")
CHATS = {
    "bash": SIMPLE_CHATS + NO_NU_CHATS + POSIX_CHATS,
    "zsh": SIMPLE_CHATS + NO_NU_CHATS + POSIX_CHATS,
    "fish": SIMPLE_CHATS + NO_NU_CHATS + FISH_CHATS,
    "nushell": SIMPLE_CHATS + NU_CHATS,
}

# -- not typed ---------------------------------------------------------------

# By other programs, by a shell but nushell, by a kind of shell.
OTHERS = forms(r"""
    sh ./script    bash ./script    env {llm} '{words}'    nohup sh -c 'sh ./script </dev/null'
    timeout 50 {llm} '{words}'    xargs -a words -I@ {llm} @    xargs -a words -P2 -d '\n' {llm}    make -s
    setsid -w sh ./script    env find words -exec {llm} '{words}' ';'    env find names -type f -exec {llm} '{}' ';'
    su -c 'sh ./script'    script -qec 'sh ./script' out    script -qec "{llm} '{words}'" out
    timeout --foreground 4 watch -n60 sh ./script    vim -es -c '!sh ./script' -c 'q!'
    git -c 'alias.ask=!sh ./script' ask    flock out sh ./script    nice sh script    env -i {env} sh ./script
    python3 -c "import os; os.system('sh ./script')"    perl -e 'system("sh ./script")'    sh -c "{llm} '{words}'"
    bash -c "{llm} '{words}'"    zsh -c "{llm} '{words}'"    fish -c "{llm} '{words}'"    LLM_MEMORY_AUTO=1 sh ./script
    LLM_MEMORY_AUTO=1 xargs -a words -I@ {llm} @    LLM_MEMORY_AUTO=1 make -s    cat words | {llm}    cat words | {chat}
    bash -ic '. ./script'    zsh -ic '. ./script'
""")
FILLED = forms(r"""
    {llm} "$(cat words)"    {llm} "So: $(cat words)"    command {llm} '{words}'    {llm} <words    {chat} <words
    . ./script    source ./script    eval "$(cat script)"    {llm} names/*    ask "$(cat words)"    ^Xl
    LLM_MEMORY_AUTO=1 {llm} "$(cat words)"    q "$(cat words)"    time {llm} "$(cat words)"
    LLM_MEMORY_AUTO=1 command {llm} '{words}'    export LLM_MEMORY_AUTO=1¶sh ./script
    {llm} "$(cat words)" &¶wait
""")
POSIX_FILLED = forms(r"""
    {llm} "`cat words`"    {llm} "$(<words)"    it=$(cat words); {llm} "$it"    read -r it <words; {llm} "$it"
    while read -r it; do {llm} "$it" </dev/null; done <words    for it in "$(cat words)"; do {llm} "$it"; done
    for it in names/*; do {llm} "${it#names/}"; done    {llm} <<<"$(cat words)"    {llm} <<<'{words}'    (. ./script)
    {llm} <<END↵$(cat words)↵END    {llm} <<'END'↵{words}↵END    set -- "$(cat words)"; {llm} "$1"
    printf -v it "$(<words)"; {llm} "$it"    : "$(cat words)"; {llm} "$_"    ({llm} "$(cat words)")    . <(cat script)
    trap '. ./script' USR1; kill -USR1 $$; trap - USR1    f() { {llm} "$1"; }; f "$(<words)"
    eval "eval \"$(<script)\""    cat words | while read -r it; do {llm} "$it" </dev/null; done
    it=$({llm} "$(cat words)")    bash <script
""")
BASH_FILLED = forms(r"""
    mapfile -t all <words; {llm} "${all[0]}"    coproc { {llm} "$(cat words)" </dev/null; }; wait
    read -ra all <words; {llm} "${all[*]}"    trap '. ./script; trap - DEBUG' DEBUG; true
    it=words; {llm} "$(<"$it")"    alias filled="$(cat script)"¶filled
    PROMPT_COMMAND="$PROMPT_COMMAND; PROMPT_COMMAND='$PROMPT_COMMAND'; . ./script"
""")
ZSH_FILLED = forms(r"""
    all=("${(@f)$(<words)}"); {llm} "$all[1]"    coproc { {llm} "$(cat words)" </dev/null; }; wait
    alias filled="$(cat script)"¶filled    once() { precmd_functions=(); . ./script; }; precmd_functions=(once)
    {llm} "${$(<words):0}"    autoload -Uz f; f() { . ./script }; f
""")
FISH_FILLED = forms(r"""
    {llm} (cat words)    set it (cat words); {llm} "$it"    read -l it <words; {llm} $it
    eval (cat script | string collect)    while read -l it; {llm} $it; end <words
    for it in (cat words); {llm} $it; end    cat words | read -l it; {llm} $it
    for it in names/*; {llm} (basename $it); end    begin; {llm} (cat words); end
    function f; {llm} $argv; end; f (cat words)
    function once --on-event fish_prompt; functions -e once; . ./script; end    {llm} (cat words) &¶wait
    source (cat script | psub)    set -x it (cat words); {llm} $it    not {llm} (cat words)
    set it ({llm} (cat words))    if true↵{llm} (cat words)↵end
""")
NU_FILLED = forms(r"""
    {llm} (open words)    {llm} $"So: (open words)"    let it = (open words); {llm} $it    open words | {llm}
    ^{llm} '{words}'    open words | lines | each {|it| {llm} $it }    for it in (open words | lines) { {llm} $it }
    do { {llm} (open words) }    source ./script    nu ./script    nu -c "{llm} '{words}'"    run-external llm '{words}'
    {llm} ...[(open words)]    $env.it = (open words); {llm} $env.it    def f [it] { {llm} $it }; f (open words)
    try { {llm} (open words) }    q (open words)    {llm} (ls names | get name.0)    LLM_MEMORY_AUTO=1 ^{llm} '{words}'
    open words | {chat}    (open words) | {llm}
    {llm} ('So: ' + (open words))    let it = ({llm} (open words))    if true { {llm} (open words) }
    timeit { {llm} (open words) }
""")
NOT_TYPED = {
    "bash": OTHERS + FILLED + POSIX_FILLED + BASH_FILLED,
    "zsh": OTHERS + FILLED + POSIX_FILLED + ZSH_FILLED,
    "fish": OTHERS + FILLED + FISH_FILLED,
    "nushell": OTHERS + NU_FILLED,
}

# -- hidden by a blank before them -------------------------------------------

HIDDEN = forms(r"""
    {llm} '{words}'    true; {llm} '{words}'    q '{words}'    {llm} -m scripted '{words}'
""")
HIDDEN_NO_NU = forms(r"""
    eval "{llm} '{words}'"    . ./script    ask '{words}'    {llm} '{words}' | cat    X=1 {llm} '{words}'
""")
HIDDEN_LINES = {shell: [*HIDDEN, *HIDDEN_NO_NU, "({llm} '{words}')", "{llm} '{words}' & wait"] for shell in SHELLS}
HIDDEN_LINES["fish"] = [*HIDDEN, *HIDDEN_NO_NU, "if true\n{llm} '{words}'\nend"]
HIDDEN_LINES["nushell"] = [*HIDDEN, "do { {llm} '{words}' }"]
