# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Installs viordma on one virtio-net adapter, and keeps its IPv4 and IPv6 configuration.
.DESCRIPTION
Windows treats an adapter with a new driver as a new connection: static addresses, gateways and DNS servers of the old one are lost.
This script saves what the adapter has now, installs the driver, sets it again, and has WMI compile the class of the driver's counters. Where viordma
runs adapters already, they get the driver of this package, and keep their configuration in the same way. If a run is interrupted, the next one
sets what is saved. No Windows system has run it yet.
.PARAMETER Name
The adapter to change, by its name in Get-NetAdapter.
.PARAMETER KeepNic
Another adapter, through which you reach this system. It must be up, and is not changed.
.PARAMETER TrustCertificate
Puts viordma.cer into the stores Root and TrustedPublisher. A certificate in Root is trusted by the whole system.
#>
[CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
param(
    [Parameter(Mandatory)][string]$Name,
    [string]$KeepNic,
    [switch]$TrustCertificate
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$build = [Environment]::OSVersion.Version.Build
if ($build -lt 20348) { throw "viordma needs Windows Server 2022 (build 20348) or later; this is build $build." }
$inf = Join-Path $PSScriptRoot 'viordma.inf'
if (-not (Test-Path -LiteralPath $inf)) { throw "There is no viordma.inf beside this script." }
$adapter = Get-NetAdapter -Name $Name -ErrorAction SilentlyContinue
if (-not $adapter) { throw "There is no adapter named '$Name': see Get-NetAdapter." }
$device = $adapter.PnPDeviceID
if ($device -notmatch 'VEN_1AF4&DEV_(1041|1000)') { throw "'$Name' is no virtio-net device: $device." }
if ($KeepNic) {
    $kept = Get-NetAdapter -Name $KeepNic -ErrorAction SilentlyContinue
    if (-not $kept -or $kept.Status -ne 'Up' -or $kept.Name -eq $adapter.Name) {
        throw "'$KeepNic' is no other adapter that is up."
    }
}
else {
    Write-Warning 'No -KeepNic: if this system is reached through the adapter alone, keep its console at hand.'
}
$signature = Get-AuthenticodeSignature -FilePath (Join-Path $PSScriptRoot 'viordma.sys')
if ($signature.Status -ne 'Valid' -and -not $TrustCertificate) {
    throw "The signature of viordma.sys is not trusted ($($signature.Status)): see README.md, or use -TrustCertificate."
}
$testMode = (bcdedit.exe /enum '{current}') -match 'testsigning\s+Yes'
if (-not $testMode) {
    $reason = 'Test signing is off: Windows does not load a driver with a test signature (bcdedit /set testsigning on, restart).'
    if ($TrustCertificate) { throw $reason }
    Write-Warning $reason
}
if ($TrustCertificate) {
    $certificate = Join-Path $PSScriptRoot 'viordma.cer'
    foreach ($store in 'Root', 'TrustedPublisher') {
        if ($PSCmdlet.ShouldProcess("Cert:\LocalMachine\$store", "Trust $certificate")) {
            Import-Certificate -FilePath $certificate -CertStoreLocation "Cert:\LocalMachine\$store" | Out-Null
        }
    }
}
$isAgreed = $PSCmdlet.ShouldProcess($Name, 'Replace the driver by viordma of this package')
if (-not $isAgreed -and -not $WhatIfPreference) { return }
# The named adapter; and those that viordma runs, which get the driver of this package, too.
$changed = @(Get-NetAdapter | Where-Object { $_.PnPDeviceID -eq $device -or $_.DriverFileName -eq 'viordma.sys' } | ForEach-Object { $_.PnPDeviceID })
$addresses = Join-Path $PSScriptRoot 'Move-AdapterAddress.ps1'
& $addresses -Save -Device $changed
if (-not $isAgreed) { return }
pnputil.exe /add-driver $inf /install
if ($LASTEXITCODE -eq 3010) {
    Write-Warning 'Restart the system to complete the installation. Then run this script again: it sets the saved addresses.'
    return
}
if ($LASTEXITCODE -notin 0, 259) { throw "pnputil could not add the driver: code $LASTEXITCODE." }
& $addresses -Restore -Device $changed -Installed 'viordma.sys'
$adapter = Get-NetAdapter | Where-Object { $_.PnPDeviceID -eq $device }
if (-not $adapter -or $adapter.DriverFileName -ne 'viordma.sys') {
    throw ("Windows prefers the driver that '$Name' has, since Microsoft signed it. In Device Manager choose for this device: " +
        'Update driver, Browse my computer, Let me pick, viordma. Then run this script again: it sets the saved addresses.')
}
$class = Join-Path $PSScriptRoot 'Viordma.mof'
mofcomp.exe $class
if ($LASTEXITCODE -ne 0) { Write-Warning "WMI refused the class of the counters: code $LASTEXITCODE. The driver works without it." }
Write-Output "viordma runs '$($adapter.Name)'. Next: .\Test-Viordma.ps1 -Name '$($adapter.Name)'"
