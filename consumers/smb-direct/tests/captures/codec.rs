// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every message decodes and encodes to the same bytes.

use std::fmt::Write as _;

use smb_direct::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};

use crate::capture::{CONNECTIONS, messages};

/// Encodes a Data Transfer message from its decoded fields.
fn encode(bytes: &[u8]) -> Vec<u8> {
    let (header, payload) = DataTransfer::parse(bytes).unwrap();
    let mut encoded = [0; DataTransfer::LEN];
    header.emit(&mut encoded);
    let mut encoded = encoded.to_vec();
    encoded.resize((header.data_offset as usize).max(DataTransfer::LEN), 0);
    encoded.extend_from_slice(payload);
    encoded
}

//= R-SMBD-1, R-SMBD-2, R-SMBD-3, R-SMBD-5, R-SMBD-6
#[test]
fn captured_messages_encode_to_the_same_bytes() {
    let mut summary = String::new();
    for files in CONNECTIONS {
        let (mut data, mut empty, mut invalidating) = ([0, 0], 0, 0);
        for (at, (is_client, bytes, token)) in messages(files).into_iter().enumerate() {
            match at {
                0 => {
                    assert!(is_client);
                    let mut encoded = [0; NegotiateRequest::LEN];
                    NegotiateRequest::parse(&bytes).unwrap().emit(&mut encoded);
                    assert_eq!(bytes, encoded);
                    continue;
                }
                1 => {
                    assert!(!is_client);
                    let mut encoded = [0; NegotiateResponse::LEN];
                    NegotiateResponse::parse(&bytes).unwrap().emit(&mut encoded);
                    assert_eq!(bytes, encoded);
                    continue;
                }
                _ => {}
            }
            assert_eq!(bytes, encode(&bytes), "message {at} of {}", files[0]);
            data[usize::from(!is_client)] += 1;
            empty += usize::from(bytes.len() == DataTransfer::LEN);
            invalidating += usize::from(token.is_some());
        }
        let [client, server] = data;
        writeln!(
            summary,
            "{}: {client} of the client, {server} of the server, {empty} without payload, {invalidating} invalidate",
            files[0]
        )
        .unwrap();
    }
    insta::assert_snapshot!(summary, @r"
    00-mount: 95 of the client, 61 of the server, 1 without payload, 3 invalidate
    whole-credits: 67 of the client, 101 of the server, 39 without payload, 0 invalidate
    whole-keepalive: 33 of the client, 24 of the server, 5 without payload, 1 invalidate
    whole-mtu1500: 60 of the client, 47 of the server, 1 without payload, 4 invalidate
    whole-server-ends: 21 of the client, 18 of the server, 1 without payload, 0 invalidate
    ");
}
