# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Installs viordma on one virtio-net adapter, and keeps its IPv4 and IPv6 configuration.
.DESCRIPTION
Windows treats an adapter with a new driver as a new connection: static addresses, gateways and DNS servers of the old one are lost.
This script saves them, installs the driver, sets them again, and has WMI compile the class of the driver's counters. Where viordma runs the adapter
already, it installs the driver of this package, and sets addresses only if the adapter has no static one. No Windows system has run it yet.
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
    [switch]$TrustCertificate,
    [string]$SavedConfiguration = (Join-Path $env:ProgramData 'viordma-addresses.json')
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
    Write-Warning 'Test signing is off: Windows will not load a driver with a test signature (bcdedit /set testsigning on, restart).'
}

$addresses = @(Get-NetIPAddress -InterfaceIndex $adapter.ifIndex -PrefixOrigin Manual -ErrorAction SilentlyContinue |
        Select-Object -Property IPAddress, PrefixLength)
if ($adapter.DriverFileName -ne 'viordma.sys' -or $addresses.Count -gt 0) {
    $routes = @(Get-NetRoute -InterfaceIndex $adapter.ifIndex -PolicyStore PersistentStore -ErrorAction SilentlyContinue |
            Select-Object -Property DestinationPrefix, NextHop, RouteMetric)
    $servers = @(Get-DnsClientServerAddress -InterfaceIndex $adapter.ifIndex | ForEach-Object { $_.ServerAddresses })
    $saved = @{ Device = $device; Addresses = $addresses; Routes = $routes; Servers = $servers; Static = $addresses.Count -gt 0 }
    if ($PSCmdlet.ShouldProcess($SavedConfiguration, 'Save addresses, routes and DNS servers')) {
        $saved | ConvertTo-Json -Depth 4 | Out-File -FilePath $SavedConfiguration -Encoding utf8
    }
}
if ($TrustCertificate) {
    $certificate = Join-Path $PSScriptRoot 'viordma.cer'
    foreach ($store in 'Root', 'TrustedPublisher') {
        if ($PSCmdlet.ShouldProcess("Cert:\LocalMachine\$store", "Trust $certificate")) {
            Import-Certificate -FilePath $certificate -CertStoreLocation "Cert:\LocalMachine\$store" | Out-Null
        }
    }
}
if (-not $PSCmdlet.ShouldProcess($Name, 'Replace the driver by viordma of this package')) { return }
pnputil.exe /add-driver $inf /install
if ($LASTEXITCODE -notin 0, 259, 3010) { throw "pnputil could not add the driver: code $LASTEXITCODE." }
if ($LASTEXITCODE -eq 3010) { Write-Warning 'Restart the system to complete the installation.' }
foreach ($attempt in 1..30) {
    $adapter = Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.PnPDeviceID -eq $device }
    if ($adapter -and $adapter.DriverFileName -eq 'viordma.sys') { break }
    Start-Sleep -Seconds 1
}
if (-not $adapter -or $adapter.DriverFileName -ne 'viordma.sys') {
    throw ("Windows prefers the driver that '$Name' has, since Microsoft signed it. In Device Manager choose for this device: " +
        'Update driver, Browse my computer, Let me pick, viordma. Then run this script again: it sets the saved addresses.')
}
$class = Join-Path $PSScriptRoot 'Viordma.mof'
if ($PSCmdlet.ShouldProcess($class, 'Compile the class of the counters')) {
    mofcomp.exe $class
    if ($LASTEXITCODE -ne 0) { Write-Warning "WMI refused the class of the counters: code $LASTEXITCODE. The driver works without it." }
}
if ((Test-Path -LiteralPath $SavedConfiguration) -and $PSCmdlet.ShouldProcess($adapter.Name, 'Set the saved addresses')) {
    & (Join-Path $PSScriptRoot 'Set-SavedAddress.ps1') -SavedConfiguration $SavedConfiguration -InterfaceIndex $adapter.ifIndex -Device $device
    Write-Output "viordma runs '$($adapter.Name)'. Next: .\Test-Viordma.ps1 -Name '$($adapter.Name)'"
}
