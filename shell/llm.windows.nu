# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# A command, not an alias as elsewhere, because Windows has no `env`.
def --wrapped llm [...args: string] {
  with-env {LLM_MEMORY_AUTO: (if ($env.LLM_MEMORY_AUTO? | is-empty) { "1" } else { $env.LLM_MEMORY_AUTO })} { ^llm ...$args }
}
