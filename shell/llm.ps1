# `llm` in a terminal knows its user. To take this out: llm memory uninstall-shell
& {
    # `pwsh -Command …` and `pwsh script.ps1` read the profile too: they get nothing.
    $given = @([Environment]::GetCommandLineArgs() | Select-Object -Skip 1)
    $runs = @($given -match '^[-/](c|com\w*|cwa|f|fi\w*|e|ec|en\w*|noni\w*)$').Count -or
        ($given.Count -and $given[0] -notmatch '^[-/]')
    $stays = @($given -match '^[-/]noe\w*$').Count
    # If you have an llm function of your own, it is left alone.
    if (($runs -and -not $stays) -or (Test-Path Function:llm)) { return }
    function global:llm {
        $program = Get-Command llm -CommandType Application -TotalCount 1 -ErrorAction Stop
        $before = $env:LLM_MEMORY_AUTO
        # Pass on everything you typed, so that text the shell fills in is not taken for yours.
        $line = try { (Get-PSCallStack)[-1].Position.StartScriptPosition.GetFullScript() } catch { $MyInvocation.Line }
        try {
            if (-not $before) { $env:LLM_MEMORY_AUTO = '1' }
            $env:LLM_MEMORY_LINE = " $line".Substring(0, [Math]::Min(30000, " $line".Length))
            if ($MyInvocation.ExpectingInput) { $input | & $program @args } else { & $program @args }
        } finally {
            $env:LLM_MEMORY_AUTO = $before
            $env:LLM_MEMORY_LINE = $null
        }
    }
}
