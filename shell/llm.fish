# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
# If you have an llm function of your own, it is left alone, also one in functions/llm.fish.
if status is-interactive; and not functions -q llm
    function llm
        set -lx LLM_MEMORY_AUTO $LLM_MEMORY_AUTO
        test -n "$LLM_MEMORY_AUTO"; or set LLM_MEMORY_AUTO 1
        # Pass on the line as typed, so that text the shell fills in is not taken for yours. With
        # a leading space, in private mode, or kept out of the history by a hook of fish 4, it is
        # hidden, and nothing is learned from it.
        set -lx LLM_MEMORY_LINE
        set -l line (status current-commandline 2>/dev/null)
        and set LLM_MEMORY_LINE " "(string sub -l 30000 -- "$line")
        if set -q fish_private_mode; or string match -q " *" -- "$line"
            or begin; functions -q fish_should_add_to_history; and not fish_should_add_to_history "$line"; end
            set LLM_MEMORY_LINE " "
        end
        # fish never puts a function into the background. What was typed as
        # nothing but `llm … &`, once or more, is sent there from in here.
        set -l part '[^&;|()\'"\\\\]|\\\\.|\'[^\']*\'|"[^"]*"'
        if string match -qr "^(\s*(\w+=\S*\s+)*llm\s($part)*&(\s*;)?)+\s*\$" -- "$line"
            command llm $argv &
        else
            set -l jobs (jobs -p)
            true # what Ctrl-Z leaves as the status
            command llm $argv
            set -l result $status
            # fish does not tell of a job that is stopped in a function.
            if test (jobs -p | count) -gt (count $jobs)
                jobs --last | string replace -rf '^(\d+)\s.*' "fish: Job \$1, 'llm', has stopped" >&2
            end
            return $result
        end
    end
end
