# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
if [ -n "${BASH_VERSION-}" ]; then
  case $- in *i*)
    # In a string, so that no other shell parses it; with `function`, so that an
    # alias named llm is not expanded here. A function of your own stays. Not
    # exported, as `set -a` would have it: scripts get the plain llm.
    eval 'declare -F llm >/dev/null || {
      function llm { LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" command llm "$@"; }
      export -nf llm
    }' ;;
  esac
fi
