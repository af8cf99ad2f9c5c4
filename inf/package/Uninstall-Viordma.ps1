# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Removes viordma from this system. Its adapters get the driver that Windows has beside it, such as NetKVM.
.DESCRIPTION
The adapters keep the configuration that they have now: static addresses, or DHCP. If a run is interrupted, the next one sets what is saved.
No Windows system has run it yet.
.PARAMETER RemoveCertificate
Removes the certificate of viordma.cer from the stores Root and TrustedPublisher.
#>
[CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
param([switch]$RemoveCertificate)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$addresses = Join-Path $PSScriptRoot 'Move-AdapterAddress.ps1'
$packages = @(Get-WindowsDriver -Online | Where-Object { (Split-Path -Path $_.OriginalFileName -Leaf) -eq 'viordma.inf' })
$changed = @(Get-NetAdapter | Where-Object { $_.DriverFileName -eq 'viordma.sys' } | ForEach-Object { $_.PnPDeviceID })
if ($packages.Count -gt 0 -and $changed.Count -gt 0) { & $addresses -Save -Device $changed }
foreach ($package in $packages) {
    if ($PSCmdlet.ShouldProcess($package.Driver, 'Remove the driver from its devices and from the driver store')) {
        pnputil.exe /delete-driver $package.Driver /uninstall
        if ($LASTEXITCODE -eq 3010) {
            Write-Warning 'Restart the system to complete the removal. Then run this script again: it sets the saved addresses.'
            return
        }
        if ($LASTEXITCODE -ne 0) { throw "pnputil could not remove $($package.Driver): code $LASTEXITCODE." }
    }
}
if ($packages.Count -gt 0 -and $PSCmdlet.ShouldProcess('Plug and Play', 'Scan for devices')) { pnputil.exe /scan-devices }
$restored = @(& $addresses -Restore -Removed 'viordma.sys')
Write-Output $restored
if ($packages.Count -eq 0 -and $restored.Count -eq 0 -and -not $RemoveCertificate) { throw 'viordma is not installed on this system.' }
if ($RemoveCertificate) {
    $thumbprint = (Get-PfxCertificate -FilePath (Join-Path $PSScriptRoot 'viordma.cer')).Thumbprint
    foreach ($store in 'Root', 'TrustedPublisher') {
        $path = "Cert:\LocalMachine\$store\$thumbprint"
        if ((Test-Path -LiteralPath $path) -and $PSCmdlet.ShouldProcess($path, 'Remove the certificate')) {
            Remove-Item -LiteralPath $path
        }
    }
}
