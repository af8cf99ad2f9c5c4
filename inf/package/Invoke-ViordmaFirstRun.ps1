# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Takes the steps of a first run of viordma on a system, in their order, and stops at the first that fails.
.DESCRIPTION
Each call takes one step, after it has checked that the step before has passed, that Driver Verifier verifies the driver, and
that no system crash and no error of the driver was recorded since. The manual describes the steps. No Windows system has run it yet.
.PARAMETER Step
Prepare, Install, Ethernet, Rdma, Copy, Restart or Remove.
.PARAMETER Name
The one adapter that gets viordma, by its name in Get-NetAdapter. Needed for the step Prepare, which records the device: with another
driver, Windows gives the adapter another name.
.PARAMETER KeepNic
Another adapter, through which you reach this system. It is not changed.
.PARAMETER Peer
Address of the other host. Needed from the step Ethernet on.
.PARAMETER Share
A folder that the peer shares. Needed for the step Copy.
.PARAMETER SnapshotTaken
Confirms that there is a snapshot of this system, without viordma.
#>
[CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
param(
    [Parameter(Mandatory)][ValidateSet('Prepare', 'Install', 'Ethernet', 'Rdma', 'Copy', 'Restart', 'Remove')][string]$Step,
    [string]$Name,
    [string]$KeepNic,
    [string]$Peer,
    [string]$Share,
    [switch]$SnapshotTaken,
    [string]$Record = (Join-Path $env:ProgramData 'viordma-first-run.json')
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$steps = 'Prepare', 'Install', 'Ethernet', 'Rdma', 'Copy', 'Restart', 'Remove'
$here = $steps.IndexOf($Step)

# Ends with the rule of this page: nothing is tried again, a report is made.
function Stop-Run {
    param([string]$Reason)
    throw "STOP at ${Step}: $Reason Do not repeat the step. .\Save-ViordmaReport.ps1 -Name '$Name' makes the report; then restore the snapshot."
}

# Crashes of the system, and errors of the driver, since a time.
function Test-Quiet {
    param([DateTime]$Since)
    $crash = @{ LogName = 'System'; ProviderName = 'Microsoft-Windows-WER-SystemErrorReporting'; Id = 1001; StartTime = $Since }
    if (@(Get-WinEvent -FilterHashtable $crash -ErrorAction SilentlyContinue).Count -gt 0) { Stop-Run 'the system crashed.' }
    $error_events = @{ LogName = 'System'; ProviderName = 'viordma'; Level = 2; StartTime = $Since }
    $errors = @(Get-WinEvent -FilterHashtable $error_events -ErrorAction SilentlyContinue)
    if ($errors.Count -gt 0) { Stop-Run "event $($errors[0].Id) of viordma: $($errors[0].Message)" }
}

# The adapter of the recorded device, whatever its driver is.
function Get-DeviceAdapter {
    Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.PnPDeviceID -eq $state.Device }
}

# The adapter runs, with the driver.
function Test-Adapter {
    $adapter = Get-DeviceAdapter
    if (-not $adapter -or $adapter.DriverFileName -ne 'viordma.sys') { Stop-Run 'the device is not run by viordma.sys.' }
    if ($adapter.Status -ne 'Up') { Stop-Run "'$($adapter.Name)' is $($adapter.Status)." }
}

function Test-Ping {
    if (-not $Peer) { throw 'This step needs -Peer.' }
    if (-not (Test-Connection -ComputerName $Peer -Count 20 -Quiet)) { Stop-Run "$Peer does not answer." }
}

if ($Step -eq 'Prepare') {
    if (-not $SnapshotTaken) { throw 'Take a snapshot of this system, without viordma, and confirm it with -SnapshotTaken.' }
    if (-not $Name -or -not $KeepNic) { throw 'The step Prepare needs -Name and -KeepNic.' }
    $kept = Get-NetAdapter -Name $KeepNic -ErrorAction SilentlyContinue
    if (-not $kept -or $kept.Status -ne 'Up' -or $kept.Name -eq $Name) { throw '-KeepNic names another adapter that is up.' }
    $dump = (Get-ItemProperty -Path 'HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl').CrashDumpEnabled
    if ($dump -eq 0) { throw 'Crash dumps are off: System Properties, Startup and Recovery, kernel memory dump.' }
    if (-not ((bcdedit.exe /enum '{current}') -match 'testsigning\s+Yes')) { throw 'Test signing is off: bcdedit /set testsigning on, restart.' }
    if (-not ((verifier.exe /querysettings) -like '*viordma.sys*')) { throw 'Driver Verifier is off: .\Enable-ViordmaVerifier.ps1, restart.' }
    $adapter = Get-NetAdapter -Name $Name -ErrorAction SilentlyContinue
    if (-not $adapter) { throw '-Name names the adapter that gets viordma.' }
    $state = @{ Device = $adapter.PnPDeviceID; Passed = -1; Since = [DateTime]::Now.ToString('o') }
}
else {
    if (-not (Test-Path -LiteralPath $Record)) { throw 'The step Prepare was not taken.' }
    $read = Get-Content -LiteralPath $Record -Raw | ConvertFrom-Json
    $state = @{ Device = $read.Device; Passed = $read.Passed; Since = $read.Since }
    $adapter = Get-DeviceAdapter
    if (-not $adapter) { Stop-Run "the device $($state.Device) has no adapter." }
    $Name = $adapter.Name
    if ($state.Passed -lt $here - 1) { throw "The next step is $($steps[$state.Passed + 1])." }
    if (-not ((verifier.exe /querysettings) -like '*viordma.sys*')) { Stop-Run 'Driver Verifier is off.' }
    Test-Quiet ([DateTime]$state.Since)
}
if (-not $PSCmdlet.ShouldProcess($Name, "First run: $Step")) { return }

switch ($Step) {
    'Install' {
        & (Join-Path $PSScriptRoot 'Install-Viordma.ps1') -Name $Name -KeepNic $KeepNic -TrustCertificate
        Test-Adapter
    }
    'Ethernet' {
        Test-Adapter
        Test-Ping
        foreach ($round in 1..10) {
            Restart-NetAdapter -Name $Name
            Start-Sleep -Seconds 5
            Test-Adapter
        }
        Test-Ping
    }
    'Rdma' {
        Test-Adapter
        if (-not $Peer) { throw 'This step needs -Peer.' }
        $verdict = @(& (Join-Path $PSScriptRoot 'Test-Viordma.ps1') -Name $Name -Peer $Peer)
        Write-Output $verdict
        if ($verdict -match '^NOT READY') { Stop-Run 'Test-Viordma.ps1 names the reason.' }
    }
    'Copy' {
        if (-not $Share) { throw 'This step needs -Share.' }
        $file = Join-Path $env:TEMP 'viordma-first-run.bin'
        $back = "$file.back"
        $bytes = New-Object byte[] (64MB)
        (New-Object Random 1).NextBytes($bytes)
        [IO.File]::WriteAllBytes($file, $bytes)
        $before = Get-NetAdapterStatistics -Name $Name
        Copy-Item -LiteralPath $file -Destination $Share
        Copy-Item -LiteralPath (Join-Path $Share 'viordma-first-run.bin') -Destination $back
        if ((Get-FileHash -LiteralPath $file).Hash -ne (Get-FileHash -LiteralPath $back).Hash) { Stop-Run 'the file came back changed.' }
        $after = Get-NetAdapterStatistics -Name $Name
        $sent = $after.SentBytes - $before.SentBytes
        if ($sent -lt $bytes.Length) { Stop-Run 'the file went through another adapter.' }
        Remove-Item -LiteralPath $file, $back
        $rdma = @(Get-SmbMultichannelConnection | Where-Object { $_.ClientRdmaCapable -and $_.ServerRdmaCapable })
        if ($rdma.Count -eq 0) { Stop-Run 'no connection of SMB uses RDMA.' }
    }
    'Restart' {
        # While a copy runs in another window, if you can: the connection falls back to TCP, or ends.
        foreach ($round in 1..10) {
            Restart-NetAdapter -Name $Name
            Start-Sleep -Seconds 10
            Test-Adapter
        }
        Test-Ping
    }
    'Remove' {
        & (Join-Path $PSScriptRoot 'Uninstall-Viordma.ps1')
    }
}
Test-Quiet ([DateTime]$state.Since)
$state.Passed = $here
$state | ConvertTo-Json | Out-File -FilePath $Record -Encoding utf8
if ($here + 1 -lt $steps.Count) { Write-Output "PASSED: $Step. Next: $($steps[$here + 1])." }
else { Write-Output 'PASSED: all steps. .\Save-ViordmaReport.ps1 makes the report.' }
