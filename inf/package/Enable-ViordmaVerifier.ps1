# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Turns Driver Verifier with NDIS verification on for viordma, or off. Takes effect at the next start of the system.
.DESCRIPTION
A violation stops the system with a bug check. Use it on a test system with a kernel debugger or with crash dumps enabled.
No Windows system has run it yet.
.PARAMETER Off
Turns Driver Verifier off for all drivers.
#>
[CmdletBinding(SupportsShouldProcess, ConfirmImpact = 'High')]
param([switch]$Off)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

if ($Off) {
    if ($PSCmdlet.ShouldProcess('Driver Verifier', 'Turn off for all drivers')) { verifier.exe /reset }
}
elseif ($PSCmdlet.ShouldProcess('viordma.sys', 'Verify with the standard flags and those of NDIS')) {
    # 0x209BB: the standard flags; 0x200000: NDIS and WIFI verification.
    verifier.exe /flags 0x2209BB /driver viordma.sys
    if ($LASTEXITCODE -notin 0, 2) { throw "verifier could not be set: code $LASTEXITCODE." }
    Write-Output 'Restart the system. verifier /querysettings then shows viordma.sys; this script with -Off ends it.'
}
