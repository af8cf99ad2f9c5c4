// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB2 messages on TCP ([MS-SMB2] 2.1), each after a zero and its length.

use std::{collections::VecDeque, time::Duration};

use ndk_consumer::Error;
use smb_consumer::MessageStream;

use crate::tcp_stream::{Connection, SILENCE};

/// Room in the stack's buffer from which on more bytes are queued.
const ROOM: usize = 128 << 10;
const HEADER: usize = 4;

/// The messages of one side of a connection.
pub struct Messages<'a> {
    connection: &'a mut Connection,
    incoming: Incoming,
    received: VecDeque<Vec<u8>>,
}

/// The message that is arriving.
#[derive(Default)]
struct Incoming {
    header: [u8; HEADER],
    message: Vec<u8>,
    /// Bytes of both that have arrived.
    filled: usize,
}

impl<'a> Messages<'a> {
    #[must_use]
    pub fn new(connection: &'a mut Connection) -> Self {
        Self { connection, incoming: Incoming::default(), received: VecDeque::new() }
    }

    /// Takes what has arrived and sends what is due. Returns whether bytes have arrived.
    fn process(&mut self) -> bool {
        self.connection.poll();
        let mut has_arrived = false;
        loop {
            let len = self.connection.stack().receive_into(self.incoming.rest());
            if len == 0 {
                break;
            }
            has_arrived = true;
            self.received.extend(self.incoming.advance(len));
        }
        if has_arrived {
            // The window has grown.
            self.connection.poll();
        }
        has_arrived
    }

    /// Waits until `is_done`.
    fn until(&mut self, is_done: impl Fn(&mut Self) -> bool) -> Result<(), Error> {
        let mut deadline = self.now() + SILENCE;
        loop {
            let has_arrived = self.process();
            if has_arrived {
                deadline = self.now() + SILENCE;
            }
            if is_done(self) {
                return Ok(());
            }
            if !self.connection.stack().may_receive() {
                return Err(Error::PeerDisconnected);
            }
            if self.now() >= deadline {
                return Err(Error::PeerSilent);
            }
            // What has grown the window may have taken more bytes from the adapter, for which no frame will arrive.
            if !has_arrived {
                self.connection.wait(deadline);
            }
        }
    }
}

impl MessageStream for Messages<'_> {
    fn now(&self) -> Duration {
        self.connection.now()
    }

    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length < 1 << 24);
        let header = length.ok_or(Error::Protocol("message longer than the peer accepts"))?.to_be_bytes();
        for mut rest in [&header[..], message] {
            loop {
                let queued = self.connection.stack().send(rest);
                rest = &rest[queued..];
                if rest.is_empty() {
                    break;
                }
                let wanted = rest.len().min(ROOM);
                self.until(|this| this.connection.stack().room() >= wanted)?;
            }
        }
        self.connection.poll();
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        if self.received.is_empty() {
            self.until(|this| !this.received.is_empty())?;
        }
        self.received.pop_front().ok_or(Error::PeerDisconnected)
    }
}

impl Incoming {
    /// Returns where the next bytes go.
    fn rest(&mut self) -> &mut [u8] {
        match self.filled.checked_sub(HEADER) {
            None => &mut self.header[self.filled..],
            Some(at) => &mut self.message[at..],
        }
    }

    /// Adds `len` bytes that are in [`rest`](Self::rest). Returns the message if it is complete.
    fn advance(&mut self, len: usize) -> Option<Vec<u8>> {
        self.filled += len;
        if self.filled == HEADER {
            let [_, a, b, c] = self.header.map(usize::from);
            self.message = vec![0; a << 16 | b << 8 | c];
        }
        let is_complete = self.filled >= HEADER && self.filled == HEADER + self.message.len();
        is_complete.then(|| std::mem::take(self).message)
    }
}
