// SPDX-License-Identifier: MIT OR Apache-2.0

//! The flow that a NET_BUFFER_LIST belongs to: the stack's hash, or a hash of addresses and ports.

use ndk_abi::ndis::{NDIS_NET_BUFFER_LIST_INFO, NET_BUFFER_LIST, NdisGetDataBuffer};

use crate::config::ETHERNET_HEADER;
use crate::nbl::{has_data, info};

/// Bytes of a frame that [`of_headers`] reads: Ethernet header, the longest IPv4 header, and ports.
const HEADERS: usize = 78;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Mask of the flag "more fragments" and the fragment offset of an IPv4 packet.
const FRAGMENT: u16 = 0x3fff;

/// Returns a hash that is the same for all NBLs of a flow: `NetBufferListHashValue` if the stack has set it.
pub fn hash(nbl: &NET_BUFFER_LIST) -> u32 {
    match info(nbl, NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue).addr() as u32 {
        0 => of_first_frame(nbl),
        hash => hash,
    }
}

/// Returns the hash of the headers of the NBL's first frame; 0 if there are no headers that can be read.
fn of_first_frame(nbl: &NET_BUFFER_LIST) -> u32 {
    // SAFETY: null, or a frame of a list that is the driver's own.
    let Some(net_buffer) = (unsafe { nbl.FirstNetBuffer.as_mut() }) else { return 0 };
    // SAFETY: both views of the length are the same number.
    let len = unsafe { net_buffer.Anonymous.DataLength }.min(HEADERS as u32);
    let mut storage = [0_u8; HEADERS];
    if len < ETHERNET_HEADER || !has_data(net_buffer, len) {
        return 0;
    }
    // SAFETY: the storage has the length asked for, or more.
    let data = unsafe { NdisGetDataBuffer(net_buffer, len, storage.as_mut_ptr().cast(), 1, 0) };
    if data.is_null() {
        return 0;
    }
    // SAFETY: on success `len` bytes are at `data`. They are read once, by bytes: the stack does not change a frame that it
    // has given to the driver.
    let headers = unsafe { core::slice::from_raw_parts(data.cast::<u8>(), len as usize) };
    of_headers(headers).unwrap_or(0)
}

/// Returns the hash of addresses, protocol and ports of a frame; `None` if it is not an IP packet. Ports of fragments
/// are not hashed.
fn of_headers(frame: &[u8]) -> Option<u32> {
    let (header, packet) = frame.split_at_checked(ETHERNET_HEADER as usize)?;
    let (addresses, ports) = match header.get(12..)? {
        [0x08, 0x00] => {
            let fixed = packet.first_chunk::<20>()?;
            let [version, _, _, _, _, _, flags, offset, _, protocol, ..] = *fixed;
            let fragment = u16::from_be_bytes([flags, offset]) & FRAGMENT != 0;
            let behind = packet.get(usize::from(version & 0xf).saturating_mul(4)..);
            (fixed.get(12..)?, behind.filter(|_| !fragment && matches!(protocol, TCP | UDP)))
        }
        [0x86, 0xdd] => {
            let fixed = packet.first_chunk::<40>()?;
            let protocol = *fixed.get(6)?;
            (fixed.get(8..)?, packet.get(40..).filter(|_| matches!(protocol, TCP | UDP)))
        }
        _ => return None,
    };
    let ports = ports.and_then(|ports| ports.first_chunk::<4>()).unwrap_or(&[0; 4]);
    // FNV-1a.
    let hash = addresses
        .iter()
        .chain(ports)
        .fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Some(hash ^ hash >> 16)
}
