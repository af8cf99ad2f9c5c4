# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Says whether SMB Direct can use an adapter of viordma and, if not, the first reason with its remedy.
.DESCRIPTION
Reads facts of the system, and compares them with the steps in Test-Viordma.json, in order. The manual prints the same steps.
Changes nothing. No Windows system has run it yet.
.PARAMETER Name
The adapter, by its name in Get-NetAdapter.
.PARAMETER Peer
Address of the other host on the adapter's network. Without it, only this system is tested.
.PARAMETER Facts
A file with facts that another system wrote with -Save. Nothing of this system is read.
.PARAMETER Save
Writes the facts to this file, to pass on.
#>
[CmdletBinding()]
param(
    [string]$Name,
    [string]$Peer,
    [string]$Facts,
    [string]$Save
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

$steps = Get-Content -LiteralPath (Join-Path $PSScriptRoot 'Test-Viordma.json') -Raw | ConvertFrom-Json
$known = @{}

# Runs a query; a fact that cannot be read stays unknown, and its step is not judged.
function Add-Fact {
    param([string]$Fact, [scriptblock]$Query)
    try {
        $value = & $Query
        if ($null -ne $value) { $known[$Fact] = [string]$value }
    }
    catch { Write-Verbose "$Fact is unknown: $($_.Exception.Message)" }
}

# Number of events of a log since the system started.
function Measure-Event {
    param([string]$Log, [string]$Source, [int]$Number)
    $start = (Get-CimInstance -ClassName Win32_OperatingSystem).LastBootUpTime
    $filter = @{ LogName = $Log; Id = $Number; StartTime = $start }
    if ($Source) { $filter.ProviderName = $Source }
    @(Get-WinEvent -FilterHashtable $filter -ErrorAction SilentlyContinue).Count
}

if ($Facts) {
    $read = Get-Content -LiteralPath $Facts -Raw | ConvertFrom-Json
    foreach ($property in $read.PSObject.Properties) { $known[$property.Name] = [string]$property.Value }
}
else {
    if (-not $Name) { throw 'Name an adapter: -Name, as Get-NetAdapter shows it.' }
    Add-Fact 'os.build' { [Environment]::OSVersion.Version.Build }
    Add-Fact 'os.smbdirect' {
        $sku = (Get-CimInstance -ClassName Win32_OperatingSystem)
        # 4, 27, 125, 126: Enterprise; 161, 162: Pro for Workstations.
        $sku.ProductType -ne 1 -or $sku.OperatingSystemSKU -in 4, 27, 125, 126, 161, 162
    }
    $adapter = Get-NetAdapter -Name $Name -ErrorAction SilentlyContinue
    $known['adapter.present'] = [string][bool]$adapter
    if ($adapter) {
        $index = $adapter.ifIndex
        $device = $adapter.PnPDeviceID
        Add-Fact 'device.virtio' { $device -match 'VEN_1AF4&DEV_(1041|1000)' }
        Add-Fact 'device.driver' { $adapter.DriverFileName }
        Add-Fact 'device.problem' { [int](Get-PnpDevice -InstanceId $device).Problem }
        foreach ($number in 11, 24, 26, 31, 40, 43) {
            Add-Fact "event.viordma.$number" { Measure-Event 'System' 'viordma' $number }
        }
        Add-Fact 'adapter.status' { $adapter.Status }
        Add-Fact 'adapter.mtu' { (Get-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4).NlMtu }
        Add-Fact 'adapter.addresses' { @(Get-NetIPAddress -InterfaceIndex $index -AddressState Preferred).Count }
        Add-Fact 'rdma.global' { (Get-NetOffloadGlobalSetting).NetworkDirect }
        Add-Fact 'rdma.adapter' { (Get-NetAdapterRdma -Name $Name).Enabled }
        Add-Fact 'binding.client' { (Get-NetAdapterBinding -Name $Name -ComponentID ms_msclient).Enabled }
        Add-Fact 'binding.server' { (Get-NetAdapterBinding -Name $Name -ComponentID ms_server).Enabled }
        Add-Fact 'smb.client.multichannel' { (Get-SmbClientConfiguration).EnableMultiChannel }
        Add-Fact 'smb.server.multichannel' { (Get-SmbServerConfiguration).EnableMultiChannel }
        Add-Fact 'smb.client.rdma' {
            [bool](Get-SmbClientNetworkInterface | Where-Object { $_.InterfaceIndex -eq $index -and $_.RdmaCapable })
        }
        Add-Fact 'smb.server.rdma' {
            [bool](Get-SmbServerNetworkInterface | Where-Object { $_.InterfaceIndex -eq $index -and $_.RdmaCapable })
        }
        Add-Fact 'firewall.smb' {
            [bool](Get-NetFirewallRule -Name 'FPS-SMB-In-TCP*' | Where-Object { $_.Enabled -eq 'True' -and $_.Action -eq 'Allow' })
        }
        foreach ($number in 1, 2, 3, 6, 10) {
            Add-Fact "event.smbdirect.$number" { Measure-Event 'Microsoft-Windows-SMBDirect/Admin' '' $number }
        }
        foreach ($number in 300, 301, 302, 303, 304) {
            Add-Fact "event.smbdirect.$number" { Measure-Event 'Microsoft-Windows-SMBDirect/Operational' '' $number }
        }
    }
    if ($adapter -and $Peer) {
        Add-Fact 'peer.reachable' { Test-Connection -ComputerName $Peer -Count 2 -Quiet }
        Add-Fact 'peer.mtu' {
            # ICMP and IPv4 headers have 28 bytes; the reply arrives only if no link of the path is smaller.
            $size = [int]$known['adapter.mtu'] - 28
            [bool](ping.exe -n 2 -f -l $size $Peer | Select-String -SimpleMatch 'TTL=')
        }
        Add-Fact 'peer.smb' { (Test-NetConnection -ComputerName $Peer -Port 445).TcpTestSucceeded }
        $connections = @(Get-SmbMultichannelConnection -IncludeNotSelected -ErrorAction SilentlyContinue |
                Where-Object { $_.ServerIpAddress -eq $Peer })
        if ($connections.Count -gt 0) {
            Add-Fact 'peer.rdma' { [bool]($connections | Where-Object { $_.ServerRdmaCapable }) }
            Add-Fact 'connection.failures' { ($connections | Measure-Object -Property FailureCount -Sum).Sum }
            Add-Fact 'connection.rdma' {
                [bool]($connections | Where-Object { $_.ClientRdmaCapable -and $_.ServerRdmaCapable -and $_.CurrentChannels -gt 0 })
            }
        }
    }
}
if ($Save) { $known | ConvertTo-Json | Out-File -FilePath $Save -Encoding utf8 }

foreach ($step in $steps) {
    if (-not $known.ContainsKey($step.fact)) { Write-Verbose "$($step.fact): unknown"; continue }
    $value = $known[$step.fact]
    $holds = if ($step.test -eq 'equals') { $value -eq $step.value } else { [long]$value -ge [long]$step.value }
    if (-not $holds) {
        Write-Output "NOT READY at $($step.fact) = ${value}: $($step.reason)"
        Write-Output "  Remedy: $($step.remedy)"
        exit 1
    }
    Write-Verbose "$($step.fact) = ${value}: ok"
}
if ($known.ContainsKey('connection.rdma')) { Write-Output 'READY: SMB Direct uses the adapter.' }
elseif ($Peer) { Write-Output "READY: open a share of $Peer, and run this again to see its connections." }
else { Write-Output 'READY on this system. Run this with -Peer, and on the other host.' }
