# SPDX-License-Identifier: MIT OR Apache-2.0
#Requires -Version 5.1
#Requires -RunAsAdministrator
<#
.SYNOPSIS
Saves the IP configuration of adapters before their driver changes, and sets it on the connections that come after.
.DESCRIPTION
Install-Viordma.ps1 and Uninstall-Viordma.ps1 call it. Each device has an entry of its own: whether IPv4 has DHCP, and the addresses, routes and
DNS servers that were set by hand, of IPv4 and IPv6. An entry is pending until it has been set. A pending one that an interrupted run left is set
by the next run; one that has been set is never set again. No Windows system has run it yet.
.PARAMETER Save
Saves the configuration of the adapters of these devices.
.PARAMETER Restore
Sets pending entries, and removes what else the connections have by hand.
.PARAMETER Device
The devices, by PnPDeviceID in Get-NetAdapter. With -Restore, all devices that have pending entries unless some are named.
.PARAMETER Installed
Waits until this driver runs the device, such as viordma.sys.
.PARAMETER Removed
Waits until another driver than this one runs the device.
.PARAMETER SavedConfiguration
The file with the entries. Only administrators can write to the folder of Windows.
#>
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory, ParameterSetName = 'Save')][switch]$Save,
    [Parameter(Mandatory, ParameterSetName = 'Restore')][switch]$Restore,
    [Parameter(Mandatory, ParameterSetName = 'Save')][Parameter(ParameterSetName = 'Restore')][string[]]$Device = @(),
    [Parameter(ParameterSetName = 'Restore')][string]$Installed,
    [Parameter(ParameterSetName = 'Restore')][string]$Removed,
    [string]$SavedConfiguration = (Join-Path $env:SystemRoot 'viordma-addresses.json')
)
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'

# What -Save does, by three words: the state of the device's entry; whether the connection is the one that was saved, or another; whether all that
# it has by hand is in the entry (nothing is, too), or it has something new. The first row that fits counts.
$decisions = @(
    @('none *', 'save'),
    @('restored *', 'save'),
    @('pending same *', 'save'),
    @('pending other new', 'save'),
    @('pending other known', 'keep')
)

# The entries of the file.
function Read-Entry {
    if (-not (Test-Path -LiteralPath $SavedConfiguration)) { return }
    $read = Get-Content -LiteralPath $SavedConfiguration -Raw | ConvertFrom-Json
    @($read.Entries)
}

# Puts an entry in the place of the one that its device has. An interruption leaves the file as it was.
function Write-Entry {
    param($Entry)
    $entries = @(Read-Entry | Where-Object { $_.Device -ne $Entry.Device }) + $Entry
    $new = "$SavedConfiguration.new"
    @{ Entries = $entries } | ConvertTo-Json -Depth 6 | Out-File -FilePath $new -Encoding utf8
    Move-Item -LiteralPath $new -Destination $SavedConfiguration -Force
}

# The adapter of a device. While its driver changes, there may be none.
function Get-DeviceAdapter {
    param([string]$Device)
    Get-NetAdapter -ErrorAction SilentlyContinue | Where-Object { $_.PnPDeviceID -eq $Device } | Select-Object -First 1
}

# An entry with what a connection has by hand.
function Get-Configuration {
    param($Adapter)
    $index = $Adapter.ifIndex
    $ip4 = Get-NetIPInterface -InterfaceIndex $index -AddressFamily IPv4 -ErrorAction SilentlyContinue
    # The number behind % is that of this connection.
    $addresses = @(Get-NetIPAddress -InterfaceIndex $index -PrefixOrigin Manual -ErrorAction SilentlyContinue |
            ForEach-Object { @{ IPAddress = $_.IPAddress -replace '%.*$', ''; PrefixLength = $_.PrefixLength } })
    $routes = @(Get-NetRoute -InterfaceIndex $index -PolicyStore PersistentStore -ErrorAction SilentlyContinue |
            ForEach-Object { @{ DestinationPrefix = $_.DestinationPrefix; NextHop = $_.NextHop; RouteMetric = $_.RouteMetric } })
    # Get-DnsClientServerAddress has servers of DHCP, too.
    $servers = @(foreach ($service in 'Tcpip', 'Tcpip6') {
            $key = "HKLM:\SYSTEM\CurrentControlSet\Services\$service\Parameters\Interfaces\$($Adapter.InterfaceGuid)"
            $value = Get-ItemProperty -LiteralPath $key -Name NameServer -ErrorAction SilentlyContinue
            if ($value) { $value.NameServer -split '[, ]' | Where-Object { $_ } }
        })
    [PSCustomObject]@{
        Device = $Adapter.PnPDeviceID
        Name = $Adapter.Name
        Connection = $Adapter.InterfaceGuid
        State = 'pending'
        Saved = [DateTime]::Now.ToString('o')
        Dhcp = if ($ip4) { [string]$ip4.Dhcp } else { '' }
        Addresses = $addresses
        Routes = $routes
        Servers = $servers
    }
}

# The addresses, routes and DNS servers of an entry, each as a text.
function Get-Part {
    param($Entry)
    $Entry.Addresses | ForEach-Object { "$($_.IPAddress)/$($_.PrefixLength)" }
    $Entry.Routes | ForEach-Object { "$($_.DestinationPrefix) by $($_.NextHop)" }
    $Entry.Servers
}

# The row of $decisions for a device: its entry, and the configuration of its connection.
function Get-Decision {
    param($Entry, $Present)
    $words = 'none other new'
    if ($Entry) {
        $parts = @(Get-Part $Entry)
        $connection = if ($Entry.Connection -eq $Present.Connection) { 'same' } else { 'other' }
        $new = @(Get-Part $Present | Where-Object { $_ -notin $parts })
        $words = "$($Entry.State) $connection $(if ($new.Count -gt 0) { 'new' } else { 'known' })"
    }
    foreach ($row in $decisions) {
        if ($words -like $row[0]) { return $row[1] }
    }
    throw "The entry of $($Present.Device) in $SavedConfiguration is damaged: $words."
}

# Gives a connection the configuration of an entry. Each step does nothing where a run before has done it.
function Set-Configuration {
    param($Entry, $Present, [uint32]$Index)
    $parts = @(Get-Part $Entry)
    $own = @(Get-Part $Present)
    foreach ($address in $Present.Addresses) {
        if ("$($address.IPAddress)/$($address.PrefixLength)" -in $parts) { continue }
        Remove-NetIPAddress -InterfaceIndex $Index -IPAddress $address.IPAddress -Confirm:$false
    }
    foreach ($route in $Present.Routes) {
        if ("$($route.DestinationPrefix) by $($route.NextHop)" -in $parts) { continue }
        Remove-NetRoute -InterfaceIndex $Index -DestinationPrefix $route.DestinationPrefix -NextHop $route.NextHop -Confirm:$false
    }
    if ($Entry.Dhcp -and $Present.Dhcp -and $Entry.Dhcp -ne $Present.Dhcp) {
        Set-NetIPInterface -InterfaceIndex $Index -AddressFamily IPv4 -Dhcp $Entry.Dhcp
    }
    foreach ($address in $Entry.Addresses) {
        if ("$($address.IPAddress)/$($address.PrefixLength)" -in $own) { continue }
        New-NetIPAddress -InterfaceIndex $Index -IPAddress $address.IPAddress -PrefixLength $address.PrefixLength | Out-Null
    }
    foreach ($route in $Entry.Routes) {
        if ("$($route.DestinationPrefix) by $($route.NextHop)" -in $own) { continue }
        New-NetRoute -InterfaceIndex $Index -DestinationPrefix $route.DestinationPrefix -NextHop $route.NextHop -RouteMetric $route.RouteMetric | Out-Null
    }
    if ($Entry.Servers.Count -gt 0) { Set-DnsClientServerAddress -InterfaceIndex $Index -ServerAddresses $Entry.Servers }
    elseif ($Present.Servers.Count -gt 0) { Set-DnsClientServerAddress -InterfaceIndex $Index -ResetServerAddresses }
}

if ($Save) {
    foreach ($one in $Device) {
        $adapter = Get-DeviceAdapter $one
        if (-not $adapter) { throw "The device $one has no adapter." }
        $present = Get-Configuration $adapter
        $entry = Read-Entry | Where-Object { $_.Device -eq $one }
        if ((Get-Decision $entry $present) -eq 'keep') {
            Write-Warning "'$($adapter.Name)' gets the configuration of '$($entry.Name)' that was saved at $($entry.Saved): a run was interrupted since. To keep what it has instead, delete $SavedConfiguration."
        }
        elseif ($PSCmdlet.ShouldProcess($adapter.Name, "Save DHCP, addresses, routes and DNS servers to $SavedConfiguration")) { Write-Entry $present }
    }
    return
}
$pending = @(Read-Entry | Where-Object { $_.State -eq 'pending' -and ($Device.Count -eq 0 -or $_.Device -in $Device) })
foreach ($entry in $pending) {
    if (-not $PSCmdlet.ShouldProcess($entry.Device, "Set the configuration that '$($entry.Name)' had")) { continue }
    $adapter = $null
    foreach ($attempt in 1..30) {
        $adapter = Get-DeviceAdapter $entry.Device
        if ($adapter -and (-not $Installed -or $adapter.DriverFileName -eq $Installed) -and $adapter.DriverFileName -ne $Removed) { break }
        $adapter = $null
        Start-Sleep -Seconds 1
    }
    if (-not $adapter) {
        Write-Warning "The device $($entry.Device) has not got the other driver: the configuration of '$($entry.Name)' stays saved, and the next run sets it."
        continue
    }
    Set-Configuration $entry (Get-Configuration $adapter) $adapter.ifIndex
    $entry.State = 'restored'
    Write-Entry $entry
    Write-Output "'$($adapter.Name)' has the configuration of '$($entry.Name)'."
}
