# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
if [[ -o interactive ]]; then
  function llm { LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" command llm "$@"; }
fi
