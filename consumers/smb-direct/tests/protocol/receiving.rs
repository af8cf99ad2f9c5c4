// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data Transfer messages that are received.

use smb_direct::wire::DataTransfer;
use smb_direct::{Config, Payload, Received, State};

use crate::support::{EMPTY, REQUEST, START, data_bytes, fragment, passive, receive};

//= R-SMBD-46
#[test]
fn a_message_in_one_piece_is_not_copied() {
    let mut conn = passive(Config::default(), &REQUEST);
    let bytes = fragment(b"message", 0);
    let received = conn.receive(START, &bytes, None).unwrap();
    assert_eq!(received, Received { payload: Payload::Whole(&bytes[24..]), invalidated: None });
}

//= R-SMBD-46
#[test]
fn fragments_of_any_size_are_reassembled_in_order() {
    let mut conn = passive(Config::default(), &REQUEST);
    for message in [b"first message".as_slice(), b"second one"] {
        let mut left = message;
        for length in [1, 4, 2] {
            let (piece, rest) = left.split_at(length);
            assert_eq!(receive(&mut conn, &fragment(piece, rest.len() as u32), None), None);
            left = rest;
        }
        let expected = Some((message.to_vec(), None));
        assert_eq!(receive(&mut conn, &fragment(left, 0), None), expected);
    }
}

//= R-SMBD-2, R-SMBD-3, R-SMBD-6, R-SMBD-38, R-SMBD-39
#[test]
fn reserved_fields_padding_and_bytes_behind_the_payload_are_ignored() {
    let mut conn = passive(Config::default(), &REQUEST);
    for offset in [24u32, 32, 40, 1000] {
        let header = DataTransfer { data_offset: offset, data_length: 3, ..EMPTY };
        let padding = vec![0xFF; offset as usize - 20];
        let mut bytes = data_bytes(&header, &[&padding, b"abc".as_slice(), &[0xFF; 9]].concat());
        bytes[6..8].fill(0xFF);
        assert_eq!(receive(&mut conn, &bytes, None), Some((b"abc".to_vec(), None)));
    }
}

//= R-SMBD-41
#[test]
fn a_message_of_the_largest_size_is_reassembled() {
    let config = Config { max_fragmented_receive_size: 131_072, ..Config::default() };
    let mut conn = passive(config, &REQUEST);
    let (mut left, mut received) = (131_072u32, None);
    while left > 0 {
        let length = left.min(1340);
        left -= length;
        received = receive(&mut conn, &fragment(&vec![left as u8; length as usize], left), None);
        conn.receives_posted(1);
        crate::support::next(&mut conn, START);
    }
    assert_eq!(received.unwrap().0.len(), 131_072);
}

//= R-SMBD-50
#[test]
fn a_message_without_payload_between_fragments_carries_credits_alone() {
    let mut conn = passive(Config::default(), &REQUEST);
    assert_eq!(receive(&mut conn, &fragment(b"ab", 1), None), None);
    let grant = DataTransfer { credits_granted: 9, ..EMPTY };
    assert_eq!(receive(&mut conn, &data_bytes(&grant, &[]), None), None);
    assert_eq!(receive(&mut conn, &fragment(b"c", 0), None), Some((b"abc".to_vec(), None)));
    assert_eq!(conn.state(), State::Established);
}

//= R-SMBD-51
#[test]
fn the_latest_invalidated_token_comes_with_the_message() {
    let mut conn = passive(Config::default(), &REQUEST);
    assert_eq!(receive(&mut conn, &fragment(b"a", 2), Some(1)), None);
    assert_eq!(receive(&mut conn, &fragment(b"b", 1), Some(2)), None);
    assert_eq!(receive(&mut conn, &fragment(b"c", 0), None), Some((b"abc".to_vec(), Some(2))));
    assert_eq!(receive(&mut conn, &fragment(b"d", 0), None), Some((b"d".to_vec(), None)));
    assert_eq!(receive(&mut conn, &fragment(b"e", 0), Some(3)), Some((b"e".to_vec(), Some(3))));
    // With a message without payload: at once, or with the message that is being reassembled.
    assert_eq!(receive(&mut conn, &data_bytes(&EMPTY, &[]), Some(4)), Some((Vec::new(), Some(4))));
    assert_eq!(receive(&mut conn, &fragment(b"f", 1), None), None);
    assert_eq!(receive(&mut conn, &data_bytes(&EMPTY, &[]), Some(5)), None);
    assert_eq!(receive(&mut conn, &fragment(b"g", 0), None), Some((b"fg".to_vec(), Some(5))));
}
