# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Removes viordma from this system. Its adapters get the driver that Windows has beside it, such as NetKVM.
.DESCRIPTION
Sets static addresses again that Install-Viordma.ps1 saved. No Windows system has run it yet.
.PARAMETER RemoveCertificate
Removes the certificate of viordma.cer from the stores Root and TrustedPublisher.
#>
[CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
param(
    [switch]$RemoveCertificate,
    [string]$SavedConfiguration = (Join-Path $env:ProgramData 'viordma-addresses.json')
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$packages = @(Get-WindowsDriver -Online | Where-Object { (Split-Path -Path $_.OriginalFileName -Leaf) -eq 'viordma.inf' })
if ($packages.Count -eq 0) { throw 'viordma is not installed on this system.' }
foreach ($package in $packages) {
    if ($PSCmdlet.ShouldProcess($package.Driver, 'Remove the driver from its devices and from the driver store')) {
        pnputil.exe /delete-driver $package.Driver /uninstall
        if ($LASTEXITCODE -notin 0, 3010) { throw "pnputil could not remove $($package.Driver): code $LASTEXITCODE." }
        if ($LASTEXITCODE -eq 3010) { Write-Warning 'Restart the system to complete the removal.' }
    }
}
if ($PSCmdlet.ShouldProcess('Plug and Play', 'Scan for devices')) { pnputil.exe /scan-devices }
if ((Test-Path -LiteralPath $SavedConfiguration) -and $PSCmdlet.ShouldProcess($SavedConfiguration, 'Set these addresses again')) {
    $saved = Get-Content -LiteralPath $SavedConfiguration -Raw | ConvertFrom-Json
    $found = $null
    foreach ($attempt in 1..30) {
        $found = Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.PnPDeviceID -eq $saved.Device }
        if ($found) { break }
        Start-Sleep -Seconds 1
    }
    if (-not $found) { Write-Warning "The device $($saved.Device) has no driver: install NetKVM (virtio-win)." }
    else {
        & (Join-Path $PSScriptRoot 'Set-SavedAddress.ps1') -SavedConfiguration $SavedConfiguration -InterfaceIndex $found.ifIndex -Device $saved.Device
    }
}
if ($RemoveCertificate) {
    $thumbprint = (Get-PfxCertificate -FilePath (Join-Path $PSScriptRoot 'viordma.cer')).Thumbprint
    foreach ($store in 'Root', 'TrustedPublisher') {
        $path = "Cert:\LocalMachine\$store\$thumbprint"
        if ((Test-Path -LiteralPath $path) -and $PSCmdlet.ShouldProcess($path, 'Remove the certificate')) {
            Remove-Item -LiteralPath $path
        }
    }
}
