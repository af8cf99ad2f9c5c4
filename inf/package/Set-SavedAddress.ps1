# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Sets the static addresses, routes and DNS servers that Install-Viordma.ps1 saved.
.DESCRIPTION
Install-Viordma.ps1 and Uninstall-Viordma.ps1 call it. Changes nothing on an adapter of another device, or if that device had no static
address, and leaves addresses and routes that the adapter has. No Windows system has run it yet.
.PARAMETER SavedConfiguration
The file with the saved configuration.
.PARAMETER InterfaceIndex
The adapter, by its ifIndex in Get-NetAdapter.
.PARAMETER Device
The adapter's device, by its PnPDeviceID in Get-NetAdapter.
#>
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)][string]$SavedConfiguration,
    [Parameter(Mandatory)][uint32]$InterfaceIndex,
    [Parameter(Mandatory)][string]$Device
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$saved = Get-Content -LiteralPath $SavedConfiguration -Raw | ConvertFrom-Json
if ($saved.Device -ne $Device -or -not $saved.Static) { return }
if (-not $PSCmdlet.ShouldProcess($Device, 'Set the saved addresses')) { return }
Set-NetIPInterface -InterfaceIndex $InterfaceIndex -Dhcp Disabled
foreach ($address in @($saved.Addresses)) {
    if (Get-NetIPAddress -InterfaceIndex $InterfaceIndex -IPAddress $address.IPAddress -ErrorAction SilentlyContinue) { continue }
    New-NetIPAddress -InterfaceIndex $InterfaceIndex -IPAddress $address.IPAddress -PrefixLength $address.PrefixLength | Out-Null
}
foreach ($route in @($saved.Routes)) {
    $known = Get-NetRoute -InterfaceIndex $InterfaceIndex -DestinationPrefix $route.DestinationPrefix -NextHop $route.NextHop -ErrorAction SilentlyContinue
    if ($known) { continue }
    New-NetRoute -InterfaceIndex $InterfaceIndex -DestinationPrefix $route.DestinationPrefix -NextHop $route.NextHop -RouteMetric $route.RouteMetric | Out-Null
}
if (@($saved.Servers).Count -gt 0) {
    Set-DnsClientServerAddress -InterfaceIndex $InterfaceIndex -ServerAddresses @($saved.Servers)
}
