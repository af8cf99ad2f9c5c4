// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable connections, datagrams and atomic operations, on a queue pair that each side makes besides that of the connection and connects
//! by itself.
//!
//! Both sides exchange its [`Numbers`] over the connection. Then the client requests item after item, and the server checks each; then the
//! server requests, and the client checks. The other side is `lab/guest/services.h`.

use anyhow::{Context as _, Result, bail, ensure};
use fallible::Arc;
use ndk_consumer::protocols::probe::{
    message::{Control, Kind, Numbers},
    pattern,
};
use roce::{
    Access, AtomicOperation, AtomicRequest, Completion, CompletionKind, CompletionStatus, Cq,
    DatagramRequest, DatagramSpec, PeerSpec, Qp, QpChange, RecvRequest, RequesterSpec, SendData, SendFlags,
    SendOperation, SendRequest, UnreliableSpec,
};
use roce_testkit::{Lock, Memory, Options, poll, spec};
use roce_wire::{Psn, Qpn};

use super::host::{Host, IMMEDIATE};
use crate::interop::cases::Service;
use Length::{Bytes, PathMtu};
use Operation::{Send, Write};

/// Longest item, and bytes of each memory.
const LONGEST: usize = 65_536;
/// Bytes before a received datagram.
const GRH: usize = 40;
/// PSN of the first packet: it wraps within a few packets.
const FIRST_PSN: u32 = 0x00FF_FFFE;
const Q_KEY: u32 = 0x1717;
/// Requests at a time, of READs and atomic operations.
const AT_A_TIME: u8 = 4;
/// The number at the start of the memory that atomic operations change.
const NUMBER: u64 = 40;
/// Additions of 1 that are posted at once.
const ADDITIONS: u64 = 16;

/// Operations of items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Send,
    Write,
}

/// An item: the operation, its length, whether it has immediate data.
type Item = (Operation, Length, bool);

#[derive(Clone, Copy)]
enum Length {
    Bytes(usize),
    /// As long as a packet may be.
    PathMtu,
}

const OF_CONNECTIONS: [Item; 11] = [
    (Send, Bytes(0), false),
    (Send, Bytes(1), false),
    (Send, Bytes(1024), false),
    (Send, Bytes(1025), true),
    (Send, Bytes(LONGEST), false),
    (Write, Bytes(3), false),
    (Write, Bytes(4097), false),
    (Write, Bytes(LONGEST), false),
    (Write, Bytes(0), true),
    (Write, Bytes(1025), true),
    (Write, Bytes(LONGEST), true),
];

const OF_DATAGRAMS: [Item; 6] = [
    (Send, Bytes(0), false),
    (Send, Bytes(0), true),
    (Send, Bytes(1), false),
    (Send, Bytes(1023), true),
    (Send, PathMtu, false),
    (Send, PathMtu, true),
];

/// Atomic operations, each with the number after it.
const OF_ATOMICS: [(AtomicOperation, u64); 4] = [
    (AtomicOperation::FetchAdd { add: 2 }, 42),
    (AtomicOperation::CompareSwap { compare: 41, swap: 1 }, 42),
    (AtomicOperation::CompareSwap { compare: 42, swap: u64::MAX - 1 }, u64::MAX - 1),
    (AtomicOperation::FetchAdd { add: 3 }, 1),
];

/// Requests of this side and checks those of the guest. The client of the connection requests first. Returns notes for the table.
pub(super) fn run(host: &mut Host<'_>, service: Service, is_client: bool) -> Result<Vec<String>> {
    let mut queue = Queue::open(host, service)?;
    let mut counts = [0; 2];
    for requests in [is_client, !is_client] {
        counts[usize::from(requests)] = queue.take_turn(requests)?;
    }
    let [from_guest, to_guest] = counts;
    Ok(vec![format!("{to_guest} requests to Linux, {from_guest} from it")])
}

/// The queue pair, and what it uses.
struct Queue<'h, 'a> {
    host: &'h mut Host<'a>,
    service: Service,
    qp: Arc<Qp<Lock>>,
    cq: Arc<Cq<Lock>>,
    completions: Vec<Completion>,
    /// For WRITEs and atomic operations of the peer.
    memory: Memory,
    received: Memory,
    sent: Memory,
    peer: Numbers,
}

impl<'h, 'a> Queue<'h, 'a> {
    /// Creates the queue pair, exchanges numbers, and connects it.
    fn open(host: &'h mut Host<'a>, service: Service) -> Result<Self> {
        let side = &host.side;
        let cq = side.engine.create_cq(64, 0).ok().context("no completion queue")?;
        let qp = side.engine.create_qp(spec(side.pd, &cq, &Options::default()));
        let qp = qp.ok().context("no queue pair")?;
        let (memory, received) = (side.shared(LONGEST), side.sink(LONGEST));
        // Atomic operations return their results there.
        let sent = side.sink(LONGEST);
        memory.write(&NUMBER.to_ne_bytes());
        let own = Numbers {
            qpn: qp.qpn().value(),
            psn: FIRST_PSN,
            key: memory.key(),
            address: memory.address(0),
            q_key: Q_KEY,
        };
        host.send(&own.encode())?;
        let message = host.receive_message()?;
        let peer = Numbers::decode(&message).context("not the numbers of a queue pair")?;
        let mut queue = Self { host, service, qp, cq, completions: Vec::new(), memory, received, sent, peer };
        queue.receive_next()?;
        queue.connect()?;
        // Both can receive from here on.
        queue.host.send(&Control::new(Kind::DONE, 0, 0).encode())?;
        queue.control_of(Kind::DONE, 0)?;
        Ok(queue)
    }

    fn connect(&self) -> Result<()> {
        let (path, qpn, mtu) = (self.host.path(), Qpn::new(self.peer.qpn), self.host.mtu);
        let (receive_psn, send_psn) = (Psn::new(self.peer.psn), Psn::new(FIRST_PSN));
        let changes = match self.service {
            Service::UnreliableConnection => [
                QpChange::OpenUnreliable(UnreliableSpec {
                    path,
                    qpn,
                    mtu,
                    receive_psn,
                    access: Access::REMOTE_WRITE,
                }),
                QpChange::SendUnreliably(send_psn),
            ],
            Service::Datagrams => [
                QpChange::OpenDatagrams(DatagramSpec { q_key: Q_KEY, mtu }),
                QpChange::SendUnreliably(send_psn),
            ],
            Service::Atomics => [
                QpChange::ReadyToReceive(PeerSpec {
                    path,
                    qpn,
                    mtu,
                    receive_psn,
                    inbound_reads: AT_A_TIME,
                    rnr_timer: 12,
                    access: Access::REMOTE_ATOMIC,
                }),
                QpChange::ReadyToSend(RequesterSpec {
                    send_psn,
                    outbound_reads: AT_A_TIME,
                    retries: 7,
                    rnr_retries: 7,
                    ack_timeout: 14,
                }),
            ],
        };
        for change in changes {
            let result = self.host.side.engine.modify_qp(&self.qp, &change);
            result.map_err(|error| anyhow::anyhow!("{error:?}: {change:?}"))?;
        }
        Ok(())
    }

    /// Requests all items, or checks them. Returns how many requests there were.
    fn take_turn(&mut self, requests: bool) -> Result<usize> {
        let items = match self.service {
            Service::UnreliableConnection => &OF_CONNECTIONS[..],
            Service::Datagrams => &OF_DATAGRAMS,
            Service::Atomics if requests => return self.request_atomics(),
            Service::Atomics => return self.check_atomics(),
        };
        for (number, item) in (0..).zip(items) {
            let result = if requests { self.request(number, *item) } else { self.check(number, *item) };
            result.with_context(|| format!("item {number}"))?;
        }
        Ok(items.len())
    }

    fn request(&mut self, number: u32, (operation, length, is_immediate): Item) -> Result<()> {
        let length = self.bytes(length);
        self.sent.write(&pattern(number, length));
        let sges = [self.sent.sge(0, length)];
        let immediate = is_immediate.then_some(IMMEDIATE);
        let data = || SendData::Sges(if length == 0 { &[] } else { &sges });
        let engine = &self.host.side.engine;
        if self.service == Service::Datagrams {
            let (path, qpn) = (self.host.path(), Qpn::new(self.peer.qpn));
            // The peer must drop the first one.
            for q_key in [self.peer.q_key ^ 1, self.peer.q_key] {
                let flags = SendFlags::empty();
                let request =
                    DatagramRequest { context: 0, path: &path, qpn, q_key, immediate, flags, data: data() };
                engine.post_datagram(&self.qp, &request).ok().context("cannot post a datagram")?;
            }
            self.complete()?;
        } else {
            let operation = match operation {
                Send => SendOperation::Send,
                Write => SendOperation::Write { address: self.peer.address, key: self.peer.key },
            };
            let request = SendRequest { context: 0, operation, flags: SendFlags::empty(), data: data() };
            let posted = match immediate {
                Some(immediate) => engine.post_send_immediate(&self.qp, &request, immediate),
                None => engine.post_send(&self.qp, &request),
            };
            posted.ok().context("cannot post a request")?;
        }
        self.complete()?;
        self.verdict(number, length)
    }

    fn check(&mut self, number: u32, (operation, length, is_immediate): Item) -> Result<()> {
        self.control_of(Kind::CHECK, number)?;
        let (length, expected) = (self.bytes(length), pattern(number, self.bytes(length)));
        let header = if self.service == Service::Datagrams { GRH } else { 0 };
        if operation == Send || is_immediate {
            let received = self.completion(true)?;
            let kind = match (self.service, operation) {
                (Service::Datagrams, _) => {
                    CompletionKind::ReceiveDatagram { source: Qpn::new(self.peer.qpn) }
                }
                (_, Send) => CompletionKind::Receive,
                (_, Write) => CompletionKind::ReceiveWrite,
            };
            ensure!(received.status == CompletionStatus::Success, "{:?}", received.status);
            ensure!(received.kind == kind, "{:?} instead of {kind:?}", received.kind);
            ensure!(received.bytes as usize == header + length, "{} bytes", received.bytes);
            ensure!(received.immediate == is_immediate.then_some(IMMEDIATE), "{:?}", received.immediate);
        }
        let memory = if operation == Write { &self.memory } else { &self.received };
        self.host.until("message as it was sent", |_| {
            (memory.read()[header..][..length] == expected).then_some(())
        })?;
        if header > 0 {
            // The addresses of the IPv4 header: those of the guest and of the host end in 2 and 1.
            let header = self.received.read();
            ensure!((header[35], header[39]) == (2, 1), "addresses {:?}", &header[32..GRH]);
        }
        self.memory.write(&vec![0; LONGEST]);
        if operation == Send || is_immediate {
            self.receive_next()?;
        }
        self.host.send(&Control::new(Kind::VERDICT, number, length).encode())
    }

    fn request_atomics(&mut self) -> Result<usize> {
        let mut before = NUMBER;
        for (number, (operation, after)) in (0..).zip(OF_ATOMICS) {
            self.post_atomic(operation, 0)?;
            self.complete()?;
            let returned = number_at(&self.sent, 0)?;
            ensure!(returned == before, "operation {number} returned {returned:#x} instead of {before:#x}");
            self.verdict(number, 8)?;
            before = after;
        }
        for place in 0..ADDITIONS {
            self.post_atomic(AtomicOperation::FetchAdd { add: 1 }, place as usize)?;
        }
        for place in 0..ADDITIONS {
            self.complete()?;
            let returned = number_at(&self.sent, place as usize)?;
            ensure!(returned == before + place, "addition {place} returned {returned:#x}");
        }
        self.verdict(OF_ATOMICS.len() as u32, 8)?;
        Ok(OF_ATOMICS.len() + ADDITIONS as usize)
    }

    fn check_atomics(&mut self) -> Result<usize> {
        let last = OF_ATOMICS[OF_ATOMICS.len() - 1].1 + ADDITIONS;
        for (number, after) in (0..).zip(OF_ATOMICS.map(|(_, after)| after).into_iter().chain([last])) {
            self.control_of(Kind::CHECK, number)?;
            let value = number_at(&self.memory, 0)?;
            ensure!(value == after, "the number is {value:#x} after operation {number}, not {after:#x}");
            self.host.send(&Control::new(Kind::VERDICT, number, 8).encode())?;
        }
        Ok(OF_ATOMICS.len() + ADDITIONS as usize)
    }

    fn post_atomic(&self, operation: AtomicOperation, place: usize) -> Result<()> {
        let request = AtomicRequest {
            context: 0,
            address: self.peer.address,
            key: self.peer.key,
            operation,
            flags: SendFlags::empty(),
            sink: self.sent.sge(8 * place, 8),
        };
        let posted = self.host.side.engine.post_atomic(&self.qp, &request);
        posted.ok().context("cannot post an atomic operation")
    }

    fn receive_next(&self) -> Result<()> {
        let request = RecvRequest { context: 0, sges: &[self.received.all()] };
        let posted = self.host.side.engine.post_recv(&self.qp, &request);
        posted.ok().context("cannot post a receive of the service")
    }

    fn bytes(&self, length: Length) -> usize {
        match length {
            Bytes(bytes) => bytes,
            PathMtu => self.host.mtu.bytes(),
        }
    }

    /// Waits for the completion of a request.
    fn complete(&mut self) -> Result<()> {
        let completion = self.completion(false)?;
        ensure!(completion.status == CompletionStatus::Success, "a request: {:?}", completion.status);
        Ok(())
    }

    fn completion(&mut self, is_receive: bool) -> Result<Completion> {
        let Self { host, cq, completions, .. } = self;
        host.until("completion", |_| {
            completions.extend(poll(cq));
            let at = completions.iter().position(|each| each.kind.is_receive() == is_receive)?;
            Some(completions.remove(at))
        })
    }

    /// Lets the guest check an item, and waits for its verdict.
    fn verdict(&mut self, number: u32, length: usize) -> Result<()> {
        self.host.send(&Control::new(Kind::CHECK, number, length).encode())?;
        self.control_of(Kind::VERDICT, number)
    }

    fn control_of(&mut self, kind: Kind, number: u32) -> Result<()> {
        let message = self.host.receive_message()?;
        match Control::decode(&message) {
            Some(control) if control.kind == kind && control.item == number && control.ok => Ok(()),
            other => bail!("{other:?} instead of {kind:?} for item {number}"),
        }
    }
}

/// Returns the number at a place of a memory of numbers.
fn number_at(memory: &Memory, place: usize) -> Result<u64> {
    let bytes = memory.read();
    let number = bytes.chunks_exact(8).nth(place).context("no such place")?;
    Ok(u64::from_ne_bytes(number.try_into()?))
}
