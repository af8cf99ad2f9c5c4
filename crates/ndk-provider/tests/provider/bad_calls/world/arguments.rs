// SPDX-License-Identifier: MIT OR Apache-2.0

//! Valid arguments of each function, and the state that its call needs.

use super::{Handshake, PART, SIZE, World};
use crate::bad_calls::calls::{Address, Arguments, Function, Kind, make};
use crate::support::*;

use Function as F;

impl World {
    /// Returns valid arguments of a function, and prepares the state that the call needs.
    #[allow(clippy::too_many_lines, reason = "one arm for each function")]
    pub fn valid(&mut self, function: Function) -> Arguments {
        let list = if matches!(function, F::Receive | F::SrqReceive) { vec![] } else { vec![self.element()] };
        let base = self.registered.remote().0 + PART.0 as u64;
        let mut arguments = Arguments {
            object: null_mut(),
            right: self.object(function.object()),
            level: 0,
            receive_cq: self.cq,
            initiator_cq: self.cq,
            srq: self.srq,
            qp: null_mut(),
            endpoint: self.endpoint,
            mr: self.registered.mr,
            mw: self.mw,
            target: self.fast.cast(),
            numbers: [4, 4, 2, 2, 8],
            notification: true,
            completion: true,
            out: true,
            source: Address::of(self.a.at(0)),
            // No listener is there.
            destination: Address::of(self.b.at(9)),
            data: None,
            data_length: 0,
            count: list.len() as u32,
            list: Some(list),
            flags: 0,
            remote: (self.peer_registered.remote().0 + PART.0 as u64, self.peer_registered.token()),
            pages: Some(self.mapped.pages().to_vec()),
            offset: 0,
            length: SIZE,
            base: 0x1_0000,
            mdl: self.memory.mdl(),
            buffer: true,
            size: Some(128),
            lam: Vec::new(),
        };
        match function {
            F::CreateSrq => arguments.numbers = [8, 4, 0, 0, 0],
            F::CreateMr => arguments.numbers[0] = (self.random.next() & 1) as u32,
            F::ResizeCq => arguments.numbers[0] = 64,
            F::ArmCq => arguments.numbers[0] = self.random.next() as u32,
            F::ControlModeration => arguments.numbers = [0; 5],
            F::ModifySrq => arguments.numbers = [4096, 0, 0, 0, 0],
            F::InitializeFast => {
                arguments.right = self.fast.cast();
                arguments.numbers[0] = 16;
            }
            F::RegisterMr => {
                arguments.right = self.idle_mr.cast();
                arguments.flags = self.random.below(16) as u32;
            }
            F::DeregisterMr => {
                self.register();
                arguments.right = self.idle_mr.cast();
            }
            F::ReleaseLam => {
                let built = self.a_lam();
                arguments.lam = built;
            }
            F::GetCqResults | F::GetCqResultsEx => {
                self.poll_receive();
                call!(self.poll_qp, NdkFlush);
            }
            F::Flush => {
                self.poll_receive();
                arguments.right = self.poll_qp.cast();
            }
            F::Receive => arguments.right = self.plain_qp.cast(),
            F::Send => self.peer_receive(),
            F::SendAndInvalidate => {
                self.peer_receive();
                self.register_peer();
                arguments.remote.1 = call!(self.peer_fast, NdkGetRemoteTokenFromMr);
            }
            F::Bind => {
                arguments.base = base;
                arguments.length = PART.1;
                arguments.flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            }
            F::FastRegister => {
                arguments.mr = self.fast;
                arguments.count = 2;
                arguments.flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            }
            F::Invalidate => self.register_fast(),
            F::Connect | F::ConnectShared => {
                let (connector, qp) = (self.a.connector(), qp(self.pd, &self.own_cq));
                (arguments.right, arguments.qp) = (connector.cast(), qp);
                self.attempt = Some((connector, qp));
            }
            F::CompleteConnect | F::CompleteConnectEx => {
                let own = self.outgoing();
                arguments.right = own.connector.cast();
            }
            F::Accept | F::AcceptEx | F::Reject => {
                let own = self.incoming();
                arguments.right = own.connector.cast();
                arguments.qp = own.qp;
            }
            F::Disconnect => {
                let own = self.outgoing();
                assert_eq!(own.complete(), STATUS_SUCCESS);
                arguments.right = own.connector.cast();
            }
            F::Listen => {
                let listener = self.new_listener.insert(self.a.idle_listener());
                arguments.right = listener.raw.cast();
            }
            F::GetConnectionData => arguments.size = Some(256),
            F::ControlConnectEvents => arguments.right = self.idle_listener.raw.cast(),
            F::Close(kind) => arguments.right = self.fresh(kind),
            _ => {}
        }
        arguments.object = arguments.right;
        arguments
    }

    /// Creates an object of this type.
    pub(super) fn fresh(&mut self, kind: Kind) -> *mut c_void {
        let create = match kind {
            Kind::Adapter => unreachable!("NDIS opens adapters"),
            Kind::Qp => F::CreateQp,
            Kind::Cq => F::CreateCq,
            Kind::Mr => F::CreateMr,
            Kind::Mw => F::CreateMw,
            Kind::Pd => F::CreatePd,
            Kind::SharedEndpoint => F::CreateSharedEndpoint,
            Kind::Connector => F::CreateConnector,
            Kind::Listener => F::CreateListener,
            Kind::Srq => F::CreateSrq,
        };
        let arguments = self.valid(create);
        let made = make(create, &arguments, null_mut());
        let (status, object) = if made.status == STATUS_PENDING {
            let (status, object) = made.callbacks.wait();
            (status, core::ptr::with_exposed_provenance_mut(object))
        } else {
            (made.status, made.created)
        };
        assert_eq!(status, STATUS_SUCCESS);
        object
    }

    pub(super) fn close(&mut self, kind: Kind, object: *mut c_void) {
        let arguments = Arguments { object, right: object, ..self.valid(F::Query(kind)) };
        let made = make(F::Close(kind), &arguments, null_mut());
        if made.status == STATUS_PENDING {
            made.callbacks.wait();
        }
    }

    /// Has one completion ready on the queue that is polled, after a flush.
    pub(super) fn poll_receive(&mut self) {
        assert_eq!(call!(self.poll_qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    }

    pub(super) fn drain_polled(&mut self) -> usize {
        core::iter::from_fn(|| self.poll_cq.poll()).count()
    }

    pub(super) fn peer_receive(&mut self) {
        if self.peer_receives == 0 {
            let sge = self.peer_registered.part(PART.0, PART.1);
            let posted = call!(self.line.peer_qp, NdkReceive, null_mut(), &raw const sge, 1);
            assert_eq!(posted, STATUS_SUCCESS);
            self.peer_receives = 1;
        }
    }

    /// Builds a mapping and returns its description.
    pub(super) fn a_lam(&self) -> Vec<u64> {
        let (mut lam, mut size) = (vec![0_u64; 4], 32);
        let built = request(|done, context| {
            let (into, size, offset) = (lam.as_mut_ptr().cast(), &raw mut size, null_mut());
            call!(self.a.adapter(), NdkBuildLAM, self.memory.mdl(), SIZE, done, context, into, size, offset)
        });
        assert_eq!(built, STATUS_SUCCESS);
        lam
    }

    pub(super) fn register(&self) {
        let mdl = self.memory.mdl();
        let status = request(|done, context| call!(self.idle_mr, NdkRegisterMr, mdl, SIZE, 7, done, context));
        assert_eq!(status, STATUS_SUCCESS);
    }

    pub fn deregister(&self) {
        let status = request(|done, context| call!(self.idle_mr, NdkDeregisterMr, done, context));
        assert_eq!(status, STATUS_SUCCESS);
    }

    /// Fast-registers the memory, as valid arguments do.
    pub fn register_fast(&mut self) {
        let (pages, flags) = (self.mapped.pages(), NDK_OP_FLAG_ALLOW_REMOTE_READ);
        let (list, count, base) = (pages.as_ptr().cast(), pages.len() as u32, pointer(0x1_0000));
        let context = self.context(&[STATUS_SUCCESS]);
        let (qp, mr) = (self.line.qp, self.fast);
        let posted = call!(qp, NdkFastRegister, context, mr, count, list, 0, SIZE, base, flags);
        assert_eq!(posted, STATUS_SUCCESS);
        self.complete();
        self.fast_is_valid = true;
    }

    pub(super) fn register_peer(&mut self) {
        if core::mem::replace(&mut self.peer_fast_is_valid, true) {
            return;
        }
        let pages = self.peer_mapped.pages();
        let (list, count, base) = (pages.as_ptr().cast(), pages.len() as u32, pointer(0x1_0000));
        let (qp, mr, flags) = (self.line.peer_qp, self.peer_fast, NDK_OP_FLAG_ALLOW_REMOTE_READ);
        let posted = call!(qp, NdkFastRegister, null_mut(), mr, count, list, 0, SIZE, base, flags);
        assert_eq!(posted, STATUS_SUCCESS);
        assert_eq!(self.peer_cq.next().Status, STATUS_SUCCESS);
    }

    /// Binds the window, as valid arguments do.
    pub fn bind(&mut self) {
        let arguments = self.valid(F::Bind);
        let context = self.context(&[STATUS_SUCCESS]);
        assert_eq!(make(F::Bind, &arguments, context).status, STATUS_SUCCESS);
        self.complete();
        self.is_bound = true;
    }

    pub(super) fn invalidate(&mut self, object: *mut NDK_OBJECT_HEADER) {
        let context = self.context(&[STATUS_SUCCESS]);
        assert_eq!(call!(self.line.qp, NdkInvalidate, context, object, 0), STATUS_SUCCESS);
        self.complete();
    }

    pub(super) fn end(&self, node: &Node, connector: *mut NDK_CONNECTOR) -> End {
        let (cq, pd) = if core::ptr::eq(node, &raw const self.a) {
            (&self.own_cq, self.pd)
        } else {
            (&self.peer_cq, self.peer_pd)
        };
        let cq = Cq { raw: cq.raw, notified: cq.notified };
        End { qp: qp(pd, &cq), cq, pd, connector, disconnected: CallbackRecord::new() }
    }

    /// The peer has accepted: the connect waits to be completed.
    pub(super) fn outgoing(&mut self) -> &End {
        let own = self.end(&self.a, self.a.connector());
        let connecting = own.connect(self.a.at(0), self.b.at(445), &[]);
        let peer = self.end(&self.b, self.peer_listener.accept());
        let pending = peer.accept(&[]);
        assert_eq!(connecting.wait(), STATUS_SUCCESS);
        &self.handshake.insert(Handshake { own, peer, pending }).own
    }

    /// A request of the peer waits to be accepted.
    pub(super) fn incoming(&mut self) -> &End {
        let peer = self.end(&self.b, self.b.connector());
        let pending = peer.connect(self.b.at(0), self.a.at(446), &[]);
        let own = self.end(&self.a, self.own_listener.accept());
        &self.handshake.insert(Handshake { own, peer, pending }).own
    }

    /// Returns the context of a request that may complete with these statuses.
    pub fn context(&mut self, statuses: &[NTSTATUS]) -> *mut c_void {
        self.next += 1;
        self.posted.insert(self.next, statuses.to_vec());
        pointer(self.next as u64)
    }

    /// Waits until each request that was accepted has completed, once.
    //= R-QP-2
    pub fn complete(&mut self) {
        wait("each request that was accepted has completed", || {
            self.poll();
            self.posted.is_empty()
        });
    }

    pub(super) fn poll(&mut self) {
        while let Some(result) = self.own_cq.poll() {
            let context = result.RequestContext.addr();
            let allowed = self.posted.remove(&context).expect("one completion for a posted request");
            assert!(allowed.contains(&result.Status), "completed with {:#x}", result.Status);
        }
        while self.peer_cq.poll().is_some() {}
    }
}
