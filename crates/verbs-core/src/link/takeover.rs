// SPDX-License-Identifier: MIT OR Apache-2.0

//! The port of RoCEv2 when the process that had it has ended.
//!
//! Other hosts send to this port only. Without it, no other process at the address would receive anything from them.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::OnceLock;

use roce::Instant;

use super::socket::bind;
use crate::sys::UdpSocket;

/// The slot whose port is that of RoCEv2.
const SLOT: u8 = 0;

/// How often a process tries: less than a peer's retries take, and seldom enough to cost nothing.
const INTERVAL: Duration = Duration::from_millis(50);

/// Attempts of a process in another slot to bind the port of RoCEv2.
#[derive(Debug)]
pub struct Takeover {
    address: IpAddr,
    except: Option<u32>,
    socket: OnceLock<UdpSocket>,
    /// When to try next; `u64::MAX`: never.
    next: AtomicU64,
}

impl Takeover {
    /// The socket drops datagrams that have arrived by the interface `except`.
    pub fn new(address: IpAddr, slot: u8, except: Option<u32>) -> Self {
        let next = if slot == SLOT { u64::MAX } else { 0 };
        Self { address, except, socket: OnceLock::new(), next: AtomicU64::new(next) }
    }

    /// Binds the port if it is time to try, and no process has it.
    pub fn attempt(&self, now: Instant) {
        if self.next.load(Ordering::SeqCst) > now.as_nanos() {
            return;
        }
        let next = match bind(self.address, SLOT, self.except) {
            Ok(socket) => {
                // One thread makes attempts.
                let _ = self.socket.set(socket);
                u64::MAX
            }
            Err(_) => (now + INTERVAL).as_nanos(),
        };
        self.next.store(next, Ordering::SeqCst);
    }

    /// Returns when to try next, unless this process has the port.
    pub fn next(&self) -> Option<Instant> {
        Some(self.next.load(Ordering::SeqCst)).filter(|&next| next != u64::MAX).map(Instant::from_nanos)
    }

    /// Returns the socket that was taken over.
    pub fn socket(&self) -> Option<&UdpSocket> {
        self.socket.get()
    }
}
