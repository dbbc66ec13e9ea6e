# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# A function llm of your own stays.
if [[ -o interactive ]] && ! typeset -f llm >/dev/null; then
  function llm { LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" command llm "$@"; }
fi
