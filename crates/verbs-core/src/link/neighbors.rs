// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes at the same address: frames that one receives for another, and ports that only one can have.
//!
//! Names are abstract ones of Unix sockets, which the kernel releases when a process ends.

use core::net::IpAddr;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use parking_lot::Mutex;

use super::frame::SLOT_BITS;
use crate::error::Error;

/// The sockets of a process.
#[derive(Debug)]
pub struct Neighbors {
    address: IpAddr,
    slot: u8,
    /// Receives frames that came to another process.
    inbox: UnixDatagram,
    /// By port.
    claims: Mutex<HashMap<u16, Claim>>,
}

#[derive(Debug)]
struct Claim {
    /// Nothing is sent to it.
    _socket: UnixDatagram,
    listens: bool,
}

impl Neighbors {
    /// Opens the sockets of the process in a slot.
    pub fn open(address: IpAddr, slot: u8) -> Result<Self, Error> {
        let inbox = bind(&slot_name(address, slot))?;
        Ok(Self { address, slot, inbox, claims: Mutex::default() })
    }

    /// Claims a port.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] if this or another process has it.
    pub fn claim(&self, port: u16) -> Result<(), Error> {
        let socket = bind(&self.port_name(port))?;
        self.claims.lock().insert(port, Claim { _socket: socket, listens: false });
        Ok(())
    }

    /// Releases a port.
    pub fn release(&self, port: u16) {
        self.claims.lock().remove(&port);
    }

    /// Records that this process listens on a port that it has.
    pub fn listen(&self, port: u16) {
        if let Some(claim) = self.claims.lock().get_mut(&port) {
            claim.listens = true;
        }
    }

    /// Returns whether this process listens on a port.
    pub fn listens(&self, port: u16) -> bool {
        self.claims.lock().get(&port).is_some_and(|claim| claim.listens)
    }

    /// Returns whether this process has a port.
    pub fn has(&self, port: u16) -> bool {
        self.claims.lock().contains_key(&port)
    }

    /// Returns whether another process has a port.
    pub fn is_elsewhere(&self, port: u16) -> bool {
        let connected = || {
            let name = SocketAddr::from_abstract_name(self.port_name(port))?;
            UnixDatagram::unbound()?.connect_addr(&name)
        };
        !self.has(port) && connected().is_ok()
    }

    /// Passes a frame to the process in a slot. Returns whether it did: not if there is none, or if too many are waiting.
    pub fn pass(&self, slot: u8, frame: &[u8]) -> bool {
        let name = SocketAddr::from_abstract_name(slot_name(self.address, slot));
        name.and_then(|name| self.inbox.send_to_addr(frame, &name)).is_ok()
    }

    /// Passes a frame to all other processes.
    pub fn pass_to_all(&self, frame: &[u8]) {
        for slot in (0..1 << SLOT_BITS).filter(|&slot| slot != self.slot) {
            self.pass(slot, frame);
        }
    }

    /// Takes a frame that another process has passed. Returns its length.
    pub fn take(&self, buffer: &mut [u8]) -> Option<usize> {
        self.inbox.recv(buffer).ok()
    }

    /// Returns a descriptor that is readable when another process has passed a frame.
    pub fn readable(&self) -> BorrowedFd<'_> {
        self.inbox.as_fd()
    }

    fn port_name(&self, port: u16) -> String {
        format!("viordma/{}/port/{port}", self.address)
    }
}

fn slot_name(address: IpAddr, slot: u8) -> String {
    format!("viordma/{address}/slot/{slot}")
}

fn bind(name: &str) -> Result<UnixDatagram, Error> {
    let bound = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
    let socket = bound.map_err(|error| of_io(&error))?;
    socket.set_nonblocking(true).map_err(|error| of_io(&error))?;
    Ok(socket)
}

fn of_io(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => Error::AddressInUse,
        Some(number) => Error::System(number),
        None => Error::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_process_at_a_time() {
        let address = [127, 9, 9, 1].into();
        let (a, b) = (Neighbors::open(address, 0).unwrap(), Neighbors::open(address, 1).unwrap());
        assert_eq!(a.claim(7), Ok(()));
        assert_eq!((a.claim(7), b.claim(7)), (Err(Error::AddressInUse), Err(Error::AddressInUse)));
        assert_eq!((a.has(7), b.has(7), a.is_elsewhere(7), b.is_elsewhere(7)), (true, false, false, true));
        a.listen(7);
        b.listen(7);
        assert_eq!((a.listens(7), b.listens(7)), (true, false));
        a.release(7);
        assert!(!a.listens(7) && !b.is_elsewhere(7));
        assert_eq!(b.claim(7), Ok(()));
        assert_eq!(Neighbors::open(address, 1).err(), Some(Error::AddressInUse));
    }

    #[test]
    fn frames_are_passed_to_one_or_all() {
        let address = [127, 9, 9, 2].into();
        let all = [0, 1, 2].map(|slot| Neighbors::open(address, slot).unwrap());
        assert!(all[0].pass(1, b"one"));
        assert!(!all[0].pass(9, b"none"));
        all[0].pass_to_all(b"all");
        let taken = all.each_ref().map(|neighbors| {
            let mut buffer = [0; 16];
            let mut frames = Vec::new();
            while let Some(len) = neighbors.take(&mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
            frames
        });
        assert_eq!(taken, [vec![], vec![b"one".to_vec(), b"all".to_vec()], vec![b"all".to_vec()]]);
    }
}
