# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# An alias, not a command: it leaves the arguments to nushell's own rules for programs.
# An alias llm of your own goes into a file of this folder that sorts behind this one.
alias llm = ^env $"LLM_MEMORY_AUTO=(if ($env.LLM_MEMORY_AUTO? | is-empty) { 1 } else { $env.LLM_MEMORY_AUTO })" llm
