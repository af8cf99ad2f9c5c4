// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs and WRITEs of SMB2: the memory that the client describes is the memory that the server accesses.

use smb_direct::wire::DataTransfer;
use smb_direct::{Channel, Descriptors};

use crate::capture::{CONNECTIONS, Captured, Request, requests};

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The channel and the channel information of an SMB2 READ or WRITE request.
fn channel(message: &[u8]) -> Option<(Channel, &[u8])> {
    let is_response = u32_at(message, 16) & 1 != 0;
    let (channel, offset) = match u16_at(message, 12) {
        8 if !is_response => (64 + 36, 64 + 44),
        9 if !is_response => (64 + 32, 64 + 40),
        _ => return None,
    };
    let start = u16_at(message, offset);
    let info = &message[start..start + u16_at(message, offset + 2)];
    Some((Channel::from_value(u32_at(message, channel)).unwrap(), info))
}

//= R-SMBD-75, R-SMBD-76, R-SMBD-77, R-SMBD-80
#[test]
fn servers_access_the_memory_that_clients_describe() {
    let (mut accesses, mut invalidations) = (0, 0);
    for files in CONNECTIONS {
        // Descriptors of requests that are under way, with the bytes that were accessed and the token to invalidate.
        let mut offered: Vec<(Vec<u8>, u32, Option<u32>)> = Vec::new();
        for Captured { is_client, request } in requests(files) {
            match request {
                Request::Message(bytes, _) if is_client => {
                    let Ok((header, payload)) = DataTransfer::parse(&bytes) else { continue };
                    if header.data_length < 120 || !payload.starts_with(b"\xFESMB") {
                        continue;
                    }
                    if let Some((channel, info)) = channel(payload)
                        && channel != Channel::None
                    {
                        let descriptors = Descriptors::parse(info, 1).unwrap();
                        offered.push((info.to_vec(), 0, channel.invalidated_token(&descriptors)));
                    }
                }
                Request::Message(_, Some(token)) => {
                    let at = offered.iter().position(|(.., expected)| *expected == Some(token)).unwrap();
                    offered.remove(at);
                    invalidations += 1;
                }
                Request::Message(..) => {}
                Request::Rdma(address, token, length) => {
                    assert!(!is_client);
                    let found = offered.iter_mut().any(|(info, done, _)| {
                        let descriptors = Descriptors::parse(info, 1).unwrap();
                        let Ok(mut segments) = descriptors.segments(*done, length) else { return false };
                        let Some(segment) = segments.next() else { return false };
                        if (segment.offset, segment.token, segment.length) != (address, token, length) {
                            return false;
                        }
                        *done += length;
                        true
                    });
                    assert!(found, "{address:x} {token:x} {length} is described by no request");
                    accesses += 1;
                }
            }
        }
    }
    assert_eq!((accesses, invalidations), (14, 8));
}
