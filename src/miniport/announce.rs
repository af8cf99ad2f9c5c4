// SPDX-License-Identifier: MIT OR Apache-2.0

//! Announcements: after a migration the device asks the driver to send frames from which switches and neighbors learn where the adapter is.
//! The driver announces the addresses that protocols set with `OID_GEN_NETWORK_LAYER_ADDRESSES`. (virtio 5.1.6.5.4; RFC 5227 §3, RFC 4861
//! §7.2.6)

use ndk_abi::ndis::{NDIS_OID_REQUEST_SET, NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_SUCCESS};
use virtio_net::Error;

use super::adapter::Adapter;
use super::network_addresses::{LIST_HEADER, Replacement};
use super::statistics::Cast;
use driver_states::setting::Setting;

/// Lengths of the frames, in bytes.
const ARP_FRAME: usize = 42;
const ADVERTISEMENT_FRAME: usize = 86;

/// `OID_GEN_NETWORK_LAYER_ADDRESSES`: stores the addresses. `PASSIVE_LEVEL`.
pub fn set_addresses(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    let len = request.InformationBufferLength;
    if (len as usize) < LIST_HEADER {
        request.BytesNeeded = LIST_HEADER as u32;
        return NDIS_STATUS_INVALID_LENGTH;
    }
    // SAFETY: NDIS's buffer has `len` bytes, and is the driver's alone until the request is completed.
    let list = unsafe { core::slice::from_raw_parts(request.InformationBuffer.cast::<u8>(), len as usize) };
    match Replacement::read(list) {
        Ok(replacement) => adapter.network_addresses.lock().replace(replacement),
        Err(status) => return status,
    }
    request.BytesRead = len;
    NDIS_STATUS_SUCCESS
}

/// Announces the adapter's addresses, then has the request acknowledged. Does nothing if the device does not run. `PASSIVE_LEVEL`.
pub fn run(adapter: &Adapter) {
    let addresses = *adapter.network_addresses.lock();
    let mac = adapter.addresses.current;
    for &address in addresses.ipv4.iter() {
        send(adapter, &arp(mac, address));
    }
    for &address in addresses.ipv6.iter() {
        send(adapter, &advertisement(mac, address));
    }
    if adapter.port().has_commands() {
        adapter.settings.want(Setting::Announcement);
    }
}

/// Acknowledges the device's request for an announcement. Waits for its answer. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed, or was stopped.
pub fn acknowledge(adapter: &Adapter) -> Result<(), Error> {
    adapter.port().with_commands(|commands| {
        commands.acknowledge_announcement(|waited| adapter.settings.go_on(adapter.port(), waited)).map(drop)
    })
}

fn send(adapter: &Adapter, frame: &[u8]) {
    if adapter.port().pairs().first().is_some_and(|first| first.send(frame)) {
        adapter.statistics().sent(Cast::of(frame), frame.len());
    }
}

/// Returns an ARP request of the adapter for its own address.
fn arp(mac: [u8; 6], address: [u8; 4]) -> [u8; ARP_FRAME] {
    // ARP for Ethernet and IPv4, addresses of 6 and 4 bytes, a request.
    const KIND: [u8; 10] = [0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1];
    let mut frame = [0; ARP_FRAME];
    fill(&mut frame, &[&[0xFF; 6], &mac, &KIND, &mac, &address, &[0; 6], &address]);
    frame
}

/// Returns an unsolicited neighbor advertisement of the adapter to all nodes.
fn advertisement(mac: [u8; 6], address: [u8; 16]) -> [u8; ADVERTISEMENT_FRAME] {
    const ALL_NODES: [u8; 16] = [0xFF, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    // The multicast MAC address of all nodes; IPv6 with 32 bytes of ICMPv6, hop limit 255.
    const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
    const IPV6: [u8; 10] = [0x86, 0xDD, 0x60, 0, 0, 0, 0, 32, 58, 255];
    // Type neighbor advertisement, code 0; the checksum follows. The override flag; the option target link-layer address.
    const ADVERTISEMENT: [u8; 2] = [136, 0];
    const OVERRIDE: [u8; 4] = [0x20, 0, 0, 0];
    const OPTION: [u8; 2] = [2, 1];
    let header: [&[u8]; 5] = [&GROUP, &mac, &IPV6, &address, &ALL_NODES];
    let build = |checksum: [u8; 2]| {
        let mut frame = [0; ADVERTISEMENT_FRAME];
        let [group, own, ip, source, target] = header;
        let parts =
            [group, own, ip, source, target, &ADVERTISEMENT, &checksum, &OVERRIDE, &address, &OPTION, &mac];
        fill(&mut frame, &parts);
        frame
    };
    // The checksum covers the pseudo-header (addresses, length, protocol) and the message.
    let covered = build([0; 2]);
    let words = covered.get(22..).unwrap_or_default().as_chunks::<2>().0;
    let sum = words.iter().fold(32 + 58_u32, |sum, &word| sum.wrapping_add(u16::from_be_bytes(word).into()));
    let folded = (sum & 0xFFFF).wrapping_add(sum >> 16);
    let folded = (folded & 0xFFFF).wrapping_add(folded >> 16) as u16;
    build((!folded).to_be_bytes())
}

/// Writes `parts` one after the other.
fn fill(frame: &mut [u8], parts: &[&[u8]]) {
    for (to, from) in frame.iter_mut().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
}
