// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts and the objects that calls can name.

mod arguments;
mod run;

use crate::bad_calls::calls::{Callbacks, Function, KINDS, Kind};
use crate::support::*;
use ndk_provider::Config;
use std::collections::HashMap;

/// Objects of another provider, or of another protection domain, or closed.
pub struct Others {
    pub pd: *mut NDK_PD,
    pub cq: *mut NDK_CQ,
    pub qp: *mut NDK_QP,
    pub mr: *mut NDK_MR,
    pub mw: *mut NDK_MW,
    pub srq: *mut NDK_SRQ,
    pub endpoint: *mut NDK_SHARED_ENDPOINT,
    pub connector: *mut NDK_CONNECTOR,
    pub listener: *mut NDK_LISTENER,
}

/// A connection: the queue pair and the connector of each side.
pub struct Line {
    pub qp: *mut NDK_QP,
    pub connector: *mut NDK_CONNECTOR,
    peer_qp: *mut NDK_QP,
    peer_connector: *mut NDK_CONNECTOR,
}

/// A connection that is being established: its ends and the call of the peer that is in progress.
struct Handshake {
    own: End,
    peer: End,
    pending: Connecting,
}

/// Everything that a call can name.
pub struct World {
    pub random: Random,
    pub a: Node,
    pub b: Node,
    pub pd: *mut NDK_PD,
    pub cq: *mut NDK_CQ,
    pub srq: *mut NDK_SRQ,
    /// A shared receive queue, and a completion queue, that hold two entries.
    pub full_srq: *mut NDK_SRQ,
    pub unread_cq: *mut NDK_CQ,
    /// Connected; one with queues of depth 0, one without reads.
    pub line: Line,
    pub zero: Line,
    pub mute: Line,
    /// A connection from a shared endpoint to the peer's listener.
    pub shared: Line,
    pub endpoint: *mut NDK_SHARED_ENDPOINT,
    pub busy_endpoint: *mut NDK_SHARED_ENDPOINT,
    /// Not connected; with a shared receive queue; flushed after it was connected.
    pub plain_qp: *mut NDK_QP,
    pub srq_qp: *mut NDK_QP,
    pub used_qp: *mut NDK_QP,
    pub idle_connector: *mut NDK_CONNECTOR,
    pub idle_listener: Listener,
    pub listener: Listener,
    /// Registered with all rights, without a right, not registered, and for fast registration.
    pub registered: Registered,
    pub readonly: Registered,
    pub idle_mr: *mut NDK_MR,
    pub fast: *mut NDK_MR,
    pub local_fast: *mut NDK_MR,
    pub raw_fast: *mut NDK_MR,
    pub mw: *mut NDK_MW,
    pub mapped: Mapped,
    pub memory: Memory,
    /// Not contiguous.
    gap: [Memory; 2],
    pub stale: u32,
    pub peer_registered: Registered,
    pub peer_readonly: Registered,
    pub peer_stale: u32,
    peer_memory: Memory,
    pub foreign: Others,
    /// In another protection domain of the same host.
    pub second: Others,
    pub closed: Option<Others>,
    hosts: (Node, Node),
    poll_cq: Cq,
    poll_qp: *mut NDK_QP,
    own_cq: Cq,
    peer_pd: *mut NDK_PD,
    peer_cq: Cq,
    peer_listener: Listener,
    own_listener: Listener,
    peer_fast: *mut NDK_MR,
    peer_mapped: Mapped,
    peer_fast_is_valid: bool,
    peer_receives: usize,
    handshake: Option<Handshake>,
    /// The connector and the queue pair of a connect; the listener of a listen.
    attempt: Option<(*mut NDK_CONNECTOR, *mut NDK_QP)>,
    new_listener: Option<Listener>,
    /// The fast registration is in effect; the window is bound.
    fast_is_valid: bool,
    is_bound: bool,
    /// Requests that were accepted and not completed, by context: the statuses that they may complete with.
    posted: HashMap<usize, Vec<NTSTATUS>>,
    /// All calls that were made: whether they pended, and the calls of their callback.
    made: Vec<(Function, bool, &'static Callbacks)>,
    next: usize,
    before: [Vec<u8>; 3],
}

/// The part of both memories that valid requests read and write. Both have the same bytes there and others around it.
const PART: (usize, usize) = (1024, 8);
const SIZE: usize = 8192;

fn pattern(memory: &mut Memory, other: u8) {
    for (index, byte) in memory.bytes().iter_mut().enumerate() {
        *byte = if (PART.0..PART.0 + PART.1).contains(&index) { 0x77 } else { other };
    }
}

fn srq(pd: *mut NDK_PD, depth: u32) -> *mut NDK_SRQ {
    create(|done, context, out| {
        let none = null_mut();
        call!(pd, NdkCreateSrq, depth, 4, 0, None, none, none.cast(), done, context, out)
    })
    .expect("a shared receive queue")
}

fn mw(pd: *mut NDK_PD) -> *mut NDK_MW {
    create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window")
}

fn sized_qp(pd: *mut NDK_PD, cq: &Cq, depth: u32) -> *mut NDK_QP {
    create(|done, context, out| {
        call!(pd, NdkCreateQp, cq.raw, cq.raw, null_mut(), depth, depth, 4, 4, 64, done, context, out)
    })
    .expect("a queue pair")
}

impl Others {
    fn new(node: &Node, cq: &Cq, memory: &Memory) -> Self {
        let pd = node.pd();
        let listener = node.idle_listener();
        let raw = listener.raw;
        // Its callback is not made: it does not listen.
        core::mem::forget(listener);
        Self {
            pd,
            cq: cq.raw,
            qp: qp(pd, cq),
            mr: memory.register(pd, 7).mr,
            mw: mw(pd),
            srq: srq(pd, 8),
            endpoint: node.shared_endpoint(0),
            connector: node.connector(),
            listener: raw,
        }
    }

    pub fn of(&self, kind: Kind) -> *mut c_void {
        match kind {
            Kind::Adapter => null_mut(),
            Kind::Qp => self.qp.cast(),
            Kind::Cq => self.cq.cast(),
            Kind::Mr => self.mr.cast(),
            Kind::Mw => self.mw.cast(),
            Kind::Pd => self.pd.cast(),
            Kind::SharedEndpoint => self.endpoint.cast(),
            Kind::Connector => self.connector.cast(),
            Kind::Listener => self.listener.cast(),
            Kind::Srq => self.srq.cast(),
        }
    }

    fn close(&self) {
        close!(self.listener, NdkCloseListener);
        close!(self.connector, NdkCloseConnector);
        close!(self.endpoint, NdkCloseSharedEndpoint);
        close!(self.mw, NdkCloseMw);
        close!(self.mr, NdkCloseMr);
        close!(self.qp, NdkCloseQp);
        close!(self.srq, NdkCloseSrq);
        close!(self.pd, NdkClosePd);
    }
}

impl Line {
    fn close(&self) {
        close!(self.connector, NdkCloseConnector);
        close!(self.qp, NdkCloseQp);
        close!(self.peer_connector, NdkCloseConnector);
        close!(self.peer_qp, NdkCloseQp);
    }
}

/// Connects two queue pairs.
fn line(
    hosts: [&Node; 2],
    qps: [*mut NDK_QP; 2],
    listener: &Listener,
    endpoint: *mut NDK_SHARED_ENDPOINT,
    reads: u32,
) -> Line {
    let [a, b] = hosts;
    let connector = a.connector();
    let ((from, from_length), (to, to_length)) = (socket_address(a.at(0)), socket_address(b.at(445)));
    let (from, to) = ((&raw const from).cast(), (&raw const to).cast());
    let connected = CallbackRecord::new();
    let (done, context) = (Some(on_request as NDK_FN_REQUEST_COMPLETION), connected.context());
    let status = if endpoint.is_null() {
        call!(
            connector,
            NdkConnect,
            qps[0],
            from,
            from_length,
            to,
            to_length,
            reads,
            reads,
            null(),
            0,
            done,
            context
        )
    } else {
        call!(
            connector,
            NdkConnectWithSharedEndpoint,
            qps[0],
            endpoint,
            to,
            to_length,
            reads,
            reads,
            null(),
            0,
            done,
            context
        )
    };
    assert_eq!(status, STATUS_PENDING);
    let peer_connector = listener.accept();
    let (accepted, data) = (CallbackRecord::new(), [7_u8; 20]);
    let (event, none) = (None, null_mut());
    let (data, length, context) = (data.as_ptr().cast(), 20, accepted.context());
    let status =
        call!(peer_connector, NdkAccept, qps[1], reads, reads, data, length, event, none, done, context);
    assert_eq!((status, connected.wait(1)), (STATUS_PENDING, STATUS_SUCCESS));
    let complete = request(|done, context| {
        call!(connector, NdkCompleteConnect, Some(on_disconnect), connected.context(), done, context)
    });
    assert_eq!((complete, accepted.wait(1)), (STATUS_SUCCESS, STATUS_SUCCESS));
    Line { qp: qps[0], connector, peer_qp: qps[1], peer_connector }
}

impl World {
    #[allow(clippy::too_many_lines, reason = "one line for each object")]
    pub fn new(seed: u64, config: Config, is_strict: bool) -> Self {
        let config = if is_strict { reporting(config) } else { config };
        let ((a, b), hosts) = (pair_with(config), pair());
        let (cq, pd, peer_cq, peer_pd) = (a.cq(4096), a.pd(), b.cq(4096), b.pd());
        let peer_listener = b.listener(445);
        let [mut memory, mut peer_memory] = [SIZE, SIZE].map(Memory::new);
        let gap = [SIZE, SIZE].map(Memory::new);
        pattern(&mut memory, 0x11);
        pattern(&mut peer_memory, 0x22);
        let connect = |depth, endpoint, reads| {
            let qps = [sized_qp(pd, &cq, depth), sized_qp(peer_pd, &peer_cq, 32)];
            line([&a, &b], qps, &peer_listener, endpoint, reads)
        };
        let stale_of = |pd| {
            let stale = memory.register(pd, 7);
            let token = stale.token();
            stale.close();
            token
        };
        let (endpoint, busy_endpoint) = (a.shared_endpoint(0), a.shared_endpoint(0));
        let used = connect(32, null_mut(), 8);
        call!(used.qp, NdkFlush);
        close!(used.connector, NdkCloseConnector);
        close!(used.peer_connector, NdkCloseConnector);
        close!(used.peer_qp, NdkCloseQp);
        let fast_with = |pages, remote| {
            let mr = fast_mr(pd);
            assert_eq!(initialize(mr, pages, remote), STATUS_SUCCESS);
            mr
        };
        let peer_fast = fast_mr(peer_pd);
        assert_eq!(initialize(peer_fast, 16, 1), STATUS_SUCCESS);
        let (queue, full_srq) = (srq(pd, 4096), srq(pd, 2));
        let unread_cq = a.cq(4);
        let unread_qp = qp(pd, &unread_cq);
        for _ in 0..2 {
            assert_eq!(call!(full_srq, NdkSrqReceive, null_mut(), null(), 0), STATUS_SUCCESS);
            assert_eq!(call!(unread_qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
        }
        call!(unread_qp, NdkFlush);
        close!(unread_qp, NdkCloseQp);
        let srq_qp = create(|done, context, out| {
            let none = null_mut();
            call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, queue, none, 4, 4, 0, done, context, out)
        })
        .expect("a queue pair");
        let closed = is_strict.then(|| {
            let cq = a.cq(4);
            let others = Others::new(&a, &cq, &memory);
            others.close();
            cq.close();
            others
        });
        let poll_cq = a.cq(16);
        let idle_mr = create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out));
        let before = [memory.snapshot(), peer_memory.snapshot(), gap[0].snapshot()];
        let foreign_cq = hosts.0.cq(4);
        let world = Self {
            random: Random::new(seed),
            pd,
            cq: cq.raw,
            srq: queue,
            full_srq,
            unread_cq: unread_cq.raw,
            line: connect(32, null_mut(), 8),
            zero: connect(0, null_mut(), 8),
            mute: connect(32, null_mut(), 0),
            shared: connect(32, busy_endpoint, 8),
            endpoint,
            busy_endpoint,
            plain_qp: qp(pd, &cq),
            srq_qp,
            used_qp: used.qp,
            idle_connector: a.connector(),
            idle_listener: a.idle_listener(),
            listener: a.listener(0),
            registered: memory.register(pd, 7),
            readonly: memory.register(pd, 0),
            idle_mr: idle_mr.expect("an MR"),
            fast: fast_with(16, 1),
            local_fast: fast_with(16, 0),
            raw_fast: fast_mr(pd),
            mw: mw(pd),
            mapped: Mapped::new(&a, &memory, SIZE),
            stale: stale_of(pd),
            peer_registered: peer_memory.register(peer_pd, 7),
            peer_readonly: peer_memory.register(peer_pd, 0),
            peer_stale: stale_of(peer_pd),
            foreign: Others::new(&hosts.0, &foreign_cq, &memory),
            second: Others::new(&a, &cq, &memory),
            closed,
            poll_qp: qp(pd, &poll_cq),
            poll_cq,
            own_cq: cq,
            peer_pd,
            peer_mapped: Mapped::new(&b, &peer_memory, SIZE),
            peer_cq,
            peer_listener,
            own_listener: a.listener(446),
            peer_fast,
            peer_fast_is_valid: false,
            peer_receives: 0,
            handshake: None,
            attempt: None,
            new_listener: None,
            fast_is_valid: false,
            is_bound: false,
            posted: HashMap::new(),
            made: Vec::new(),
            next: 0,
            before,
            memory,
            gap,
            peer_memory,
            a,
            b,
            hosts,
        };
        assert_eq!(world.a.mistakes(), []);
        world
    }

    /// Returns an open object of this type.
    pub fn object(&self, kind: Kind) -> *mut c_void {
        match kind {
            Kind::Adapter => self.a.adapter().cast(),
            Kind::Qp => self.line.qp.cast(),
            Kind::Cq => self.poll_cq.raw.cast(),
            Kind::Mr => self.registered.mr.cast(),
            Kind::Mw => self.mw.cast(),
            Kind::Pd => self.pd.cast(),
            Kind::SharedEndpoint => self.endpoint.cast(),
            Kind::Connector => self.line.connector.cast(),
            Kind::Listener => self.listener.raw.cast(),
            Kind::Srq => self.srq.cast(),
        }
    }

    /// An element in the part that both sides know.
    pub fn element(&self) -> NDK_SGE {
        self.registered.part(PART.0, PART.1)
    }

    pub fn closed_of(&self, kind: Kind) -> *mut c_void {
        self.closed.as_ref().expect("only with a strict provider").of(kind)
    }

    /// Returns a chain of two MDLs with a gap between them.
    pub fn chain_with_gap(&self) -> *mut MDL {
        let (first, second) = (self.gap[0].mdl(), self.gap[1].mdl());
        // SAFETY: an MDL of this test, which nothing else uses now.
        unsafe { (*first).Next = second };
        first
    }

    /// Checks that no memory was written but what valid requests write.
    //= R-QP-57
    pub fn check_memory(&self) {
        let after = [self.memory.snapshot(), self.peer_memory.snapshot(), self.gap[0].snapshot()];
        for (index, (after, before)) in after.iter().zip(&self.before).enumerate() {
            let differs = after.iter().zip(before).position(|(after, before)| after != before);
            assert_eq!(differs, None, "memory {index} was written");
        }
    }

    /// Closes everything, and checks what holds at the end.
    pub fn finish(self) {
        self.check_memory();
        for line in [&self.line, &self.zero, &self.mute, &self.shared] {
            line.close();
        }
        close!(self.endpoint, NdkCloseSharedEndpoint);
        close!(self.busy_endpoint, NdkCloseSharedEndpoint);
        for qp in [self.plain_qp, self.srq_qp, self.used_qp, self.poll_qp] {
            close!(qp, NdkCloseQp);
        }
        close!(self.srq, NdkCloseSrq);
        close!(self.full_srq, NdkCloseSrq);
        close!(self.idle_connector, NdkCloseConnector);
        for listener in [self.idle_listener, self.listener, self.own_listener, self.peer_listener] {
            listener.close();
        }
        close!(self.mw, NdkCloseMw);
        for mr in [self.idle_mr, self.fast, self.local_fast, self.raw_fast, self.peer_fast] {
            close!(mr, NdkCloseMr);
        }
        for region in [self.registered, self.readonly, self.peer_registered, self.peer_readonly] {
            region.close();
        }
        drop((self.mapped, self.peer_mapped));
        self.second.close();
        self.foreign.close();
        close!(self.foreign.cq, NdkCloseCq);
        close!(self.unread_cq, NdkCloseCq);
        close!(self.pd, NdkClosePd);
        close!(self.peer_pd, NdkClosePd);
        for cq in [self.own_cq, self.peer_cq, self.poll_cq] {
            cq.close();
        }
        drop((self.a, self.b, self.hosts));
        // No callback can be made now.
        //= R-CREATE-1, R-CREATE-2, R-CREATE-4
        for (function, pended, callbacks) in self.made {
            assert_eq!(callbacks.count(), usize::from(pended), "callbacks of {function:?}");
        }
    }
}

/// Returns the type of an open object.
pub fn kind_of(object: *mut c_void) -> Kind {
    // SAFETY: the world has not closed the object, which begins with its header.
    let kind = unsafe { (*object.cast::<NDK_OBJECT_HEADER>()).ObjectType };
    KINDS.into_iter().find(|known| *known as i32 == kind.0).expect("a known type")
}
