// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection takes the place of either Linux peer and receives what the other one sent.

use std::time::Duration;

use smb_direct::{Config, Connection, Event, State};

use crate::capture::{CONNECTIONS, messages};

/// Replays one side to `conn`. Returns the upper-layer messages, each with its token.
fn replay(mut conn: Connection<Vec<u8>>, files: &[&str], is_client: bool) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut received = Vec::new();
    let mut buffer = [0; 2048];
    let from_peer = messages(files).into_iter().filter(|(from_client, ..)| *from_client == is_client);
    for (at, (_, bytes, token)) in from_peer.enumerate() {
        let now = Duration::from_millis(at as u64);
        let (wanted, size) = conn.wanted_receives();
        assert!(size as usize >= bytes.len() || wanted == 0);
        conn.receives_posted(wanted);
        while conn.poll_transmit(now, &mut buffer).is_some() {}
        if let Some(message) = conn.receive(now, &bytes, token) {
            received.push((message.payload.bytes().to_vec(), message.invalidated));
        }
        while let Some(event) = conn.poll_event() {
            assert!(matches!(event, Event::Established(_)), "{event:?} at message {at} of {}", files[0]);
        }
    }
    assert_eq!(conn.state(), State::Established);
    received
}

/// Asserts that messages are those of SMB2.
fn assert_smb(messages: &[(Vec<u8>, Option<u32>)]) {
    for (at, (bytes, _)) in messages.iter().enumerate() {
        assert!(bytes.starts_with(b"\xFESMB") && bytes.len() >= 64, "message {at}: {:02x?}", &bytes[..8]);
    }
}

//= R-SMBD-46, R-SMBD-51
#[test]
fn linux_peers_keep_the_rules() {
    for files in CONNECTIONS {
        let start = Duration::ZERO;
        let server = Connection::passive(Config::default(), start).unwrap();
        let requests = replay(server, files, true);
        assert_smb(&requests);

        let mut client = Connection::active(Config::default(), start).unwrap();
        client.connected();
        let answers = replay(client, files, false);
        assert_smb(&answers);
        assert_eq!(requests.len(), answers.len(), "{}", files[0]);
        let tokens = messages(files).iter().filter(|(.., token)| token.is_some()).count();
        assert_eq!(answers.iter().filter(|(_, token)| token.is_some()).count(), tokens);
    }
}
