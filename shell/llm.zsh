# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# If you have an llm function of your own, it is left alone.
if [[ -o interactive ]] && ! typeset -f llm >/dev/null; then
  function llm {
    # Pass on the line as typed, so that text the shell fills in is not taken for yours.
    local event=$HISTCMD
    local LLM_MEMORY_LINE=${history[$event]-}
    # A line that a leading space or a hook keeps out of the history gives way to the next one.
    if [[ $LLM_MEMORY_LINE == ' '* || -n ${functions[zshaddhistory]-}${zshaddhistory_functions-} ]] &&
      (print -s -- :; [[ ${history[$event]-} == : ]]); then LLM_MEMORY_LINE=; fi
    LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" LLM_MEMORY_LINE=" ${LLM_MEMORY_LINE:0:30000}" command llm "$@"
  }
fi
