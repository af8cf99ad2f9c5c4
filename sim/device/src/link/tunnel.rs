// SPDX-License-Identifier: MIT OR Apache-2.0

//! A wire with one end outside the simulation: a datagram socket of the machine the simulation runs on.
//!
//! A [`Tunnel`] is the [`Endpoint`] at one end of a [`Wire`](super::wire::Wire). Every frame that arrives there leaves
//! as one datagram, and every datagram from the peer's address enters the wire as one frame: Ethernet header first, no
//! checksum. QEMU's `-netdev dgram` uses the same format, so that the other end can be a virtual machine or
//! the tunnel of another simulation. Rate, faults, counters and capture are those of the wire.
//!
//! Real sockets need real time: the tunnel must not run on a virtual clock.
//!
//! # Loss
//!
//! UDP has no flow control: a datagram that does not fit the receiver's socket buffer is lost. A tunnel requests a
//! [large buffer](SOCKET_BUFFER) and drains it on a thread of its own; the peer may not. Between Unix sockets the
//! sender waits, its wire fills up, and the NIC at the other end waits: such a link is as lossless as the wires
//! inside.

use std::{
    io::{self, ErrorKind, Read},
    net::{SocketAddr, UdpSocket},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread::JoinHandle,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use socket2::{Domain, SockAddr, Socket, Type};

use super::wire::{Endpoint, Port};

/// Bytes requested for the send and receive buffer of a socket. The system may grant less (`net.core.rmem_max`).
pub const SOCKET_BUFFER: usize = 4 << 20;

/// Maximum length of a datagram.
const LONGEST: usize = 1 << 16;

/// Minimum length of a frame: an Ethernet header.
const SHORTEST: usize = 14;

/// Timeout of one attempt to send to a peer that does not read. After it the tunnel checks whether it is closing.
const PATIENCE: Duration = Duration::from_millis(100);

/// A datagram socket and its peer's address.
pub struct Datagrams {
    socket: Socket,
    peer: SockAddr,
    /// The file of a Unix socket, removed on drop.
    file: Option<PathBuf>,
}

impl Datagrams {
    /// Connects a bound UDP socket to `peer`.
    ///
    /// # Errors
    /// When there is no route to the peer's address.
    pub fn udp(socket: UdpSocket, peer: SocketAddr) -> io::Result<Self> {
        socket.connect(peer)?;
        Self::new(socket.into(), peer.into(), None)
    }

    /// Creates a Unix socket at the path `local` that sends to `peer`, which need not exist yet. A socket that an
    /// earlier run left at `local` is replaced.
    ///
    /// # Errors
    /// When another kind of file exists at the path, or no socket can be created.
    pub fn unix(local: &Path, peer: &Path) -> io::Result<Self> {
        if local.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
            std::fs::remove_file(local)?;
        }
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        socket.bind(&SockAddr::unix(local)?)?;
        Self::new(socket, SockAddr::unix(peer)?, Some(local.to_owned()))
    }

    fn new(socket: Socket, peer: SockAddr, file: Option<PathBuf>) -> io::Result<Self> {
        socket.set_recv_buffer_size(SOCKET_BUFFER)?;
        socket.set_send_buffer_size(SOCKET_BUFFER)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, peer, file })
    }

    /// Returns the address a UDP socket is bound to; `None` for a Unix socket.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Returns the size of the socket's receive buffer in bytes. (Linux reports twice the requested size, because it
    /// counts its own structures.)
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.socket.recv_buffer_size().unwrap_or(0)
    }

    fn send(&self, frame: &[u8]) -> io::Result<usize> {
        // `send_to` fails on a connected socket.
        if self.file.is_none() { self.socket.send(frame) } else { self.socket.send_to(frame, &self.peer) }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Counters of a tunnel, besides [those of its wire](super::wire::Counters).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct TunnelCounters {
    /// Frames sent as datagrams.
    pub sent: u64,
    /// Frames received as datagrams and sent on the wire.
    pub received: u64,
    /// Frames dropped because the peer's socket does not exist.
    pub no_peer: u64,
    /// Attempts to send that timed out because the peer's socket is full.
    pub stalled: u64,
    /// Datagrams dropped because they are shorter than an Ethernet header.
    pub runts: u64,
}

/// One end of a wire outside the simulation. Dropping it closes that end.
pub struct Tunnel {
    shared: Arc<TunnelState>,
    threads: Vec<JoinHandle<()>>,
}

struct TunnelState {
    now: Box<dyn Fn() -> u64 + Send + Sync>,
    port: Port,
    datagrams: Datagrams,
    closing: AtomicBool,
    /// Time of the sending thread's next receive from the wire.
    due: Mutex<Option<u64>>,
    changed: Condvar,
    /// The wire accepts frames.
    writable: Mutex<bool>,
    room: Condvar,
    sent: AtomicU64,
    received: AtomicU64,
    no_peer: AtomicU64,
    stalled: AtomicU64,
    runts: AtomicU64,
}

impl Tunnel {
    /// Connects `port` to a socket. `now` returns the time of the link's users in nanoseconds; it must advance in real
    /// time.
    ///
    /// # Errors
    /// When no thread can be started.
    ///
    /// # Panics
    /// When the end of the wire is attached already.
    pub fn open(
        now: impl Fn() -> u64 + Send + Sync + 'static,
        port: Port,
        datagrams: Datagrams,
    ) -> io::Result<Self> {
        let shared = Arc::new(TunnelState {
            now: Box::new(now),
            port,
            datagrams,
            closing: AtomicBool::new(false),
            due: Mutex::new(None),
            changed: Condvar::new(),
            writable: Mutex::new(false),
            room: Condvar::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            no_peer: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            runts: AtomicU64::new(0),
        });
        let endpoint: Arc<dyn Endpoint> = shared.clone();
        shared.port.attach(Arc::downgrade(&endpoint));
        let mut tunnel = Self { shared, threads: Vec::new() };
        tunnel.spawn("tunnel out", TunnelState::send)?;
        tunnel.spawn("tunnel in", TunnelState::receive)?;
        Ok(tunnel)
    }

    fn spawn(&mut self, name: &str, body: fn(&TunnelState)) -> io::Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared))?;
        self.threads.push(thread);
        Ok(())
    }

    #[must_use]
    pub fn datagrams(&self) -> &Datagrams {
        &self.shared.datagrams
    }

    #[must_use]
    pub fn counters(&self) -> TunnelCounters {
        let shared = &self.shared;
        TunnelCounters {
            sent: shared.sent.load(Relaxed),
            received: shared.received.load(Relaxed),
            no_peer: shared.no_peer.load(Relaxed),
            stalled: shared.stalled.load(Relaxed),
            runts: shared.runts.load(Relaxed),
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported by its panic hook.
            let _ = thread.join();
        }
    }
}

impl TunnelState {
    fn close(&self) {
        self.closing.store(true, SeqCst);
        // Wakes the receiving thread. Fails on an unconnected socket, but wakes the thread nevertheless.
        let _ = self.datagrams.socket.shutdown(std::net::Shutdown::Both);
        // Taking the locks orders this with a thread that has checked `closing` and is about to wait.
        drop(self.due.lock());
        self.changed.notify_all();
        drop(self.writable.lock());
        self.room.notify_all();
    }

    fn is_closing(&self) -> bool {
        self.closing.load(SeqCst)
    }

    /// Body of the thread from wire to socket.
    fn send(&self) {
        loop {
            while let Some(frame) = self.port.receive((self.now)()) {
                self.send_frame(&frame);
            }
            if !self.await_due() {
                return;
            }
        }
    }

    fn send_frame(&self, frame: &[u8]) {
        while !self.is_closing() {
            match self.datagrams.send(frame) {
                Ok(_) => {
                    self.sent.fetch_add(1, Relaxed);
                    return;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stalled.fetch_add(1, Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // On a connected socket this may report the failure of the previous frame; this one was not sent.
                Err(_) => {
                    self.no_peer.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
    }

    /// Waits until the wire may have a frame; `false` when the tunnel is closing.
    fn await_due(&self) -> bool {
        let mut due = self.due.lock();
        while !self.is_closing() {
            match *due {
                None => self.changed.wait(&mut due),
                Some(time) => {
                    let left = time.saturating_sub((self.now)());
                    if left == 0 {
                        *due = None;
                        return true;
                    }
                    self.changed.wait_for(&mut due, Duration::from_nanos(left));
                }
            }
        }
        false
    }

    /// Body of the thread from socket to wire.
    fn receive(&self) {
        let mut buffer = vec![0; LONGEST];
        while !self.is_closing() {
            match (&self.datagrams.socket).read(&mut buffer) {
                Ok(length) if length >= SHORTEST => self.enter(&buffer[..length]),
                // Too short, or empty because the socket was shut down.
                Ok(_) => {
                    self.runts.fetch_add(1, Relaxed);
                }
                // ICMP: the peer's port is not open (yet).
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    eprintln!("a tunnel's socket failed: {error}");
                    return;
                }
            }
        }
    }

    fn enter(&self, frame: &[u8]) {
        while !self.port.is_writable() {
            let mut writable = self.writable.lock();
            while !std::mem::take(&mut *writable) {
                if self.is_closing() {
                    return;
                }
                self.room.wait(&mut writable);
            }
        }
        self.received.fetch_add(1, Relaxed);
        self.port.transmit((self.now)(), frame.to_vec());
    }
}

impl Endpoint for TunnelState {
    fn wake_at(&self, time: u64) {
        let mut due = self.due.lock();
        if due.is_none_or(|known| time < known) {
            *due = Some(time);
            self.changed.notify_one();
        }
    }

    fn writable(&self) {
        *self.writable.lock() = true;
        self.room.notify_one();
    }

    fn is_alive(&self) -> bool {
        !self.is_closing()
    }
}
