# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
if [ -n "${BASH_VERSION-}" ]; then
  case $- in *i*)
    # In a string, so that no other shell parses it; with `function`, so that an
    # alias named llm is not expanded here. If you have an llm function of your own,
    # it is left alone. Not exported, as `set -a` would have it: scripts get the
    # plain llm. The line is passed on as typed, so that text the shell fills in is
    # not taken for yours.
    eval 'declare -F llm >/dev/null || {
      function llm {
        local LLM_MEMORY_LINE= lines entries
        # In what a key runs (bind -x), the history ends with the line before; only there is READLINE_LINE set.
        if [[ -o history && ${HISTSIZE-} != 0 && ! ${READLINE_LINE+set} ]]; then LLM_MEMORY_LINE=" $(builtin history 1)"; fi
        # A line that is kept out of the history leaves the one before it there. To tell, put one into a copy of the
        # history: it takes the number of this line. Turned on, because eval and source turn it off. What ignoreboth
        # keeps out may be hidden or the same once more.
        if [[ $LLM_MEMORY_LINE && ${HISTCONTROL-}${HISTIGNORE:+ignores} == *ignore[sb]* ]] && ! (
          set -o history
          lines=$(builtin history 1)
          builtin history -s ": memory"
          [[ $lines =~ ^\ *[0-9]+ && $(builtin history 1) == "$BASH_REMATCH"[*\ ]* ]]
        ); then
          LLM_MEMORY_LINE=" "
        # Without cmdhist, each line of a loop is an entry: go back until bash can parse them.
        elif [[ $LLM_MEMORY_LINE ]] && ! shopt -q cmdhist; then
          for entries in {1..50}; do
            lines=$(HISTTIMEFORMAT= builtin history "$entries" | command sed "s/^ *[0-9]*[* ] //")
            if "$BASH" -n 2>/dev/null <<<"$lines"; then LLM_MEMORY_LINE=" $lines"; break; fi
          done
        fi
        # With eval, or `jobs` would show these settings; with command, or they would stay behind in POSIX mode.
        LLM_MEMORY_AUTO="${LLM_MEMORY_AUTO:-1}" LLM_MEMORY_LINE="${LLM_MEMORY_LINE:0:30000}" \
          command eval "command llm \"\$@\""
      }
      export -nf llm
    }' ;;
  esac
fi
