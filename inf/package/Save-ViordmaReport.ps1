# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Saves what a report about viordma needs into one archive: configuration, events, counters, a trace, and the facts of Test-Viordma.ps1.
.DESCRIPTION
Names of the computer and of the user, and addresses, are replaced by words, in the trace, too, which is saved as text. Sequence
numbers of connections are not recorded. Nothing else of the system is read. Dumps are listed, not added: they hold memory of the
system. No Windows system has run it yet.
.PARAMETER Name
The adapter, by its name in Get-NetAdapter.
.PARAMETER Peer
Address of the other host, for the facts of connections.
.PARAMETER Folder
Where the archive is written.
.PARAMETER TraceSeconds
How long the driver's trace is recorded: let happen what the report is about meanwhile. 0 for no trace.
.PARAMETER KeepAddresses
Leaves addresses as they are, and adds the trace as recorded.
#>
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)][string]$Name,
    [string]$Peer,
    [string]$Folder = $env:TEMP,
    [ValidateRange(0, 3600)][int]$TraceSeconds = 30,
    [switch]$KeepAddresses
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$stamp = [DateTime]::Now.ToString('yyyyMMdd-HHmmss')
$report = Join-Path $Folder "viordma-report-$stamp"
if (-not $PSCmdlet.ShouldProcess("$report.zip", 'Save a report')) { return }
New-Item -ItemType Directory -Path $report | Out-Null

# Replaces what names the system or a place in its network.
function Hide-Name {
    param([string]$Text)
    foreach ($word in $env:COMPUTERNAME, $env:USERNAME, $env:USERDOMAIN) {
        if ($word) { $Text = $Text -replace [regex]::Escape($word), 'NAME' }
    }
    if (-not $KeepAddresses) {
        # One that begins with 0 is the version of a driver.
        $Text = $Text -replace '\b(?!0\.)(?:\d{1,3}\.){3}\d{1,3}\b', 'IPV4'
        $Text = $Text -replace '\b(?:[0-9A-Fa-f]{2}[-:]){5}[0-9A-Fa-f]{2}\b', 'MAC'
        $Text = $Text -replace '(?i)\b(?:fe80|fd[0-9a-f]{2}|2[0-9a-f]{3}):[0-9a-f:]+(?:%\d+)?', 'IPV6'
    }
    $Text
}

# Writes the output of a query to a file. One that fails leaves its reason there.
function Save-Part {
    param([string]$File, [scriptblock]$Query)
    try { $text = & $Query | Out-String -Width 400 }
    catch { $text = "cannot be read: $($_.Exception.Message)" }
    Hide-Name $text | Out-File -FilePath (Join-Path $report $File) -Encoding utf8
}

# Records the driver's trace with the profile of the package that leaves out sequence numbers.
if ($TraceSeconds -gt 0) {
    $recorded = Join-Path $report 'viordma.etl'
    $readable = Join-Path $report 'viordma.xml'
    Save-Part 'trace.txt' {
        wpr.exe -start "$(Join-Path $PSScriptRoot 'Viordma.wprp')!Viordma" -filemode
        if ($LASTEXITCODE -ne 0) { throw "wpr -start returned $LASTEXITCODE. Another recording may run: wpr -status" }
        try {
            Write-Warning "The trace is recorded for $TraceSeconds seconds: let it happen now."
            Start-Sleep -Seconds $TraceSeconds
        }
        finally { wpr.exe -stop $recorded }
        tracerpt.exe $recorded -o $readable -of XML -y
    }
    if (Test-Path -LiteralPath $readable) {
        Save-Part 'trace.xml' { Get-Content -LiteralPath $readable -Raw }
        Remove-Item -LiteralPath $readable
    }
    if (-not $KeepAddresses -and (Test-Path -LiteralPath $recorded)) { Remove-Item -LiteralPath $recorded }
}
Save-Part 'system.txt' {
    Get-CimInstance -ClassName Win32_OperatingSystem | Select-Object -Property Caption, Version, OSArchitecture, LastBootUpTime, TotalVisibleMemorySize
    Get-CimInstance -ClassName Win32_ComputerSystem | Select-Object -Property Manufacturer, Model, NumberOfLogicalProcessors
    (bcdedit.exe /enum '{current}') -match 'testsigning|hypervisorlaunchtype|debug'
}
Save-Part 'adapter.txt' {
    Get-NetAdapter -Name $Name | Select-Object -Property *
    Get-NetAdapterAdvancedProperty -Name $Name -AllProperties | Select-Object -Property RegistryKeyword, RegistryValue
    Get-NetAdapterRdma -Name $Name | Select-Object -Property *
    Get-NetAdapterRss -Name $Name | Select-Object -Property *
    Get-NetAdapterStatistics -Name $Name | Select-Object -Property *
}
Save-Part 'driver.txt' {
    Get-WindowsDriver -Online | Where-Object { $_.OriginalFileName -match 'viordma|netkvm' } | Select-Object -Property Driver, OriginalFileName, Version, Date
    Get-AuthenticodeSignature -FilePath (Join-Path $PSScriptRoot 'viordma.sys') | Select-Object -Property Status, StatusMessage
}
Save-Part 'verifier.txt' { verifier.exe /querysettings; verifier.exe /query }
Save-Part 'counters.txt' { (Get-Counter -Counter '\RDMA Activity(*)\*').CounterSamples | Select-Object -Property Path, CookedValue }
Save-Part 'driver-counters.txt' { Get-CimInstance -Namespace root/wmi -ClassName ViordmaCounters }
Save-Part 'smb.txt' {
    Get-SmbClientNetworkInterface | Select-Object -Property *
    Get-SmbMultichannelConnection -IncludeNotSelected | Select-Object -Property *
}
foreach ($log in 'System', 'Microsoft-Windows-SMBDirect/Admin', 'Microsoft-Windows-SMBDirect/Operational') {
    Save-Part "events-$(($log -split '[-/]')[-1]).txt" {
        $filter = @{ LogName = $log }
        if ($log -eq 'System') { $filter.ProviderName = 'viordma', 'Microsoft-Windows-NDIS', 'Microsoft-Windows-WER-SystemErrorReporting' }
        Get-WinEvent -FilterHashtable $filter -MaxEvents 500 | ForEach-Object {
            "$($_.TimeCreated.ToString('o')) $($_.ProviderName) $($_.Id) $($_.Message)"
            # The numbers of an event of the driver are its data.
            if ($_.ProviderName -eq 'viordma') { '  data: ' + (($_.Properties | ForEach-Object { $_.Value }) -join ' ') }
        }
    }
}
Save-Part 'dumps.txt' {
    Get-ChildItem -Path "$env:SystemRoot\Minidump", "$env:SystemRoot\MEMORY.DMP" -ErrorAction SilentlyContinue |
        Select-Object -Property FullName, Length, LastWriteTime
}
$facts = Join-Path $report 'facts.json'
$verdict = & (Join-Path $PSScriptRoot 'Test-Viordma.ps1') -Name $Name -Peer $Peer -Save $facts
Save-Part 'verdict.txt' { $verdict }
if (Test-Path -LiteralPath $facts) { Save-Part 'facts.json' { Get-Content -LiteralPath $facts -Raw } }

Compress-Archive -Path (Join-Path $report '*') -DestinationPath "$report.zip"
Write-Output "$report.zip: look through it before you send it."
