// SPDX-License-Identifier: MIT OR Apache-2.0

//! The addresses that become devices.

use core::net::IpAddr;

use crate::environment::Settings;
use crate::sys;

/// Returns the addresses of the devices, in their order: those that the settings name, or those of the interface that they name, or those of
/// the host, the ones of networks before those of the loopback interface, IPv4 before IPv6. Link-local addresses are left out: a GID does not name the interface.
#[must_use]
pub fn of_devices(settings: &Settings) -> Vec<IpAddr> {
    if !settings.addresses.is_empty() {
        return settings.addresses.clone();
    }
    match &settings.interface {
        Some(interface) => of_interface(interface),
        None => usable(sys::host_addresses().into_iter().map(|address| address.ip).collect()),
    }
}

/// Returns the addresses of an interface that can be those of devices, in their order.
#[must_use]
pub fn of_interface(interface: &str) -> Vec<IpAddr> {
    let all = sys::host_addresses().into_iter().filter(|address| address.interface == interface);
    usable(all.map(|address| address.ip).collect())
}

/// Returns the longest IP packet of the interface that has `address`, in bytes; 1500 if that is not known.
#[must_use]
pub fn interface_mtu(address: IpAddr) -> u32 {
    interface_number(address, "mtu").unwrap_or(1500)
}

/// Returns the index of the interface that has `address`; 0 if that is not known.
#[must_use]
pub fn interface_index(address: IpAddr) -> u32 {
    interface_number(address, "ifindex").unwrap_or(0)
}

fn interface_number(address: IpAddr, file: &str) -> Option<u32> {
    let known = sys::host_addresses().into_iter().find(|known| known.ip == address);
    let interface = match known {
        Some(known) => known.interface,
        // All of 127.0.0.0/8 is local, whatever the interface lists.
        None if address.is_loopback() => "lo".to_owned(),
        None => return None,
    };
    std::fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?.trim().parse().ok()
}

fn usable(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    addresses.retain(|address| match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_unicast_link_local(),
    });
    // Stable: otherwise in the order of the system.
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses.dedup();
    addresses
}

/// Returns the GID of an address: IPv4 addresses are mapped to IPv6 (IBTA Volume 1, annex A17).
#[must_use]
pub const fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Returns the address of a GID.
#[must_use]
pub fn of_gid(gid: [u8; 16]) -> IpAddr {
    IpAddr::from(gid).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_networks_come_before_loopback() {
        let parse = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let host = parse(&["127.0.0.1", "10.1.2.3", "::1", "fe80::1", "fd00::7", "169.254.1.1"]);
        assert_eq!(usable(host), parse(&["10.1.2.3", "fd00::7", "127.0.0.1", "::1"]));
    }

    #[test]
    fn a_gid_names_its_address() {
        for text in ["10.1.2.3", "fd00::7", "::1"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(of_gid(gid(address)), address);
        }
        assert_eq!(gid("1.2.3.4".parse().unwrap())[10..], [0xFF, 0xFF, 1, 2, 3, 4]);
    }
}
