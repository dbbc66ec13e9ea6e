# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# A function llm of your own stays.
if [[ -o interactive ]] && ! typeset -f llm >/dev/null; then
  function llm {
    # The line as you typed it tells your words from what the shell put in.
    local LLM_MEMORY_LINE=${history[$HISTCMD]-}
    if [[ -o histignorespace && $LLM_MEMORY_LINE == ' '* ]]; then LLM_MEMORY_LINE=; fi
    LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" LLM_MEMORY_LINE=" ${LLM_MEMORY_LINE:0:30000}" command llm "$@"
  }
fi
