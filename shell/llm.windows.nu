# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# A command, not an alias as elsewhere, because Windows has no `env`.
# The hook keeps the line as typed, so that text that is filled in is not taken for yours. A leading space hides it.
# In a list, which no program inherits.
$env.config.hooks.pre_execution = ($env.config.hooks.pre_execution? | default [] | append {||
  let line = (commandline)
  $env.LLM_MEMORY_TYPED = [(if ($line | str starts-with " ") { "" } else { $line | str substring ..30000 })]
})
def --wrapped llm [...args: string] {
  with-env {LLM_MEMORY_AUTO: (if ($env.LLM_MEMORY_AUTO? | is-empty) { "1" } else { $env.LLM_MEMORY_AUTO }), LLM_MEMORY_LINE: $" ($env.LLM_MEMORY_TYPED?.0? | default '')"} { ^llm ...$args }
}
