// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupts and notifications as eventfds, by QEMU's ivshmem-doorbell device.
//!
//! A 32-bit write to that device's doorbell register increments an eventfd of this process: interrupt messages of the
//! network device are aimed there. An eventfd of its own makes it send an MSI-X message: aimed at the notification
//! register of a queue, it notifies the queue without a reply to wait for.
//!
//! This process is the device's server, which hands over all eventfds when QEMU starts.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
};

use vmm_sys_util::{
    epoll::{ControlOperation, Epoll, EpollEvent, EventSet},
    eventfd::{EFD_NONBLOCK, EventFd},
    sock_ctrl_msg::ScmSocket as _,
};

/// Vectors of the network device, and queues, that have an eventfd.
pub const VECTORS: u16 = 32;

/// Peer numbers of the ivshmem protocol: this process, and the device.
const THIS: u16 = 1;
const DEVICE: u16 = 0;
/// Offset of the doorbell register in BAR 0.
pub const DOORBELL: u64 = 12;
/// Bytes of the shared memory that the protocol requires, unused.
const SHARED: u64 = 1 << 16;

/// Returns the data of a message to the doorbell register that signals interrupt `vector`.
#[must_use]
pub const fn message_data(vector: u16) -> u32 {
    (THIS as u32) << 16 | vector as u32
}

/// The eventfds of one device.
pub struct Doorbells {
    interrupts: Vec<EventFd>,
    notifications: Vec<EventFd>,
    stop: EventFd,
    epoll: Epoll,
    /// The server's connection, which stays open.
    _connection: UnixStream,
}

impl Doorbells {
    /// Hands over eventfds to the device at the other end of `connection`. `directory` is for a temporary file.
    ///
    /// # Errors
    /// When no eventfd can be made, or the device does not take them.
    pub fn serve(connection: UnixStream, directory: &Path) -> io::Result<Self> {
        let shared =
            File::options().read(true).write(true).create_new(true).open(directory.join("shared"))?;
        shared.set_len(SHARED)?;
        let eventfds = |count| (0..count).map(|_| EventFd::new(EFD_NONBLOCK)).collect::<io::Result<Vec<_>>>();
        let (interrupts, notifications) = (eventfds(VECTORS)?, eventfds(VECTORS)?);
        send(&connection, 0, None)?;
        send(&connection, DEVICE.into(), None)?;
        send(&connection, -1, Some(shared.as_raw_fd()))?;
        for (peer, eventfds) in [(THIS, &interrupts), (DEVICE, &notifications)] {
            for eventfd in eventfds {
                send(&connection, peer.into(), Some(eventfd.as_raw_fd()))?;
            }
        }
        let (stop, epoll) = (EventFd::new(EFD_NONBLOCK)?, Epoll::new()?);
        for (number, eventfd) in interrupts.iter().chain([&stop]).enumerate() {
            let event = EpollEvent::new(EventSet::IN, number as u64);
            epoll.ctl(ControlOperation::Add, eventfd.as_raw_fd(), event)?;
        }
        Ok(Self { interrupts, notifications, stop, epoll, _connection: connection })
    }

    /// Notifies a queue; `false` if it has no eventfd.
    #[must_use]
    pub fn notify(&self, queue: u16) -> bool {
        self.notifications.get(usize::from(queue)).is_some_and(|eventfd| eventfd.write(1).is_ok())
    }

    /// Waits for interrupts and calls `deliver` with the vector of each, until [`Doorbells::stop`] is called.
    pub fn run(&self, deliver: impl Fn(u16)) {
        let mut events = vec![EpollEvent::default(); usize::from(VECTORS) + 1];
        loop {
            let count = match self.epoll.wait(-1, &mut events) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            for event in &events[..count] {
                let number = event.data() as usize;
                let Some(eventfd) = self.interrupts.get(number) else { return };
                if eventfd.read().is_ok() {
                    deliver(number as u16);
                }
            }
        }
    }

    /// Returns whether an interrupt has come on `vector` since the last call. Not while [`Doorbells::run`] runs.
    #[must_use]
    pub fn take(&self, vector: u16) -> bool {
        self.interrupts.get(usize::from(vector)).is_some_and(|eventfd| eventfd.read().is_ok())
    }

    /// Ends [`Doorbells::run`].
    pub fn stop(&self) {
        // Fails only if the counter is about to overflow.
        let _ = self.stop.write(1);
    }
}

/// Sends a number of the ivshmem protocol, with a file.
fn send(connection: &UnixStream, number: i64, file: Option<RawFd>) -> io::Result<()> {
    let files: &[RawFd] = file.as_slice();
    let sent = connection.send_with_fds(&[&number.to_le_bytes()[..]], files).map_err(io::Error::from)?;
    if sent == size_of::<i64>() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
