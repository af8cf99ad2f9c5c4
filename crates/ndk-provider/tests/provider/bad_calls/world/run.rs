// SPDX-License-Identifier: MIT OR Apache-2.0

//! A call, what it starts, and how its effect is undone.

use super::{Handshake, World, line, sized_qp};
use crate::bad_calls::calls::{Arguments, Function, Kind, Made, make};
use crate::support::*;

use Function as F;

impl World {
    /// Makes a call, waits for what it has started, and undoes it. `completes`: the statuses with which a request may
    /// complete; `breaks`: that ends the connection.
    pub fn run(
        &mut self,
        function: Function,
        arguments: &Arguments,
        completes: &[NTSTATUS],
        breaks: bool,
    ) -> NTSTATUS {
        self.poll();
        assert!(self.posted.is_empty(), "a request from before the call");
        let context = self.context(completes);
        let made = make(function, arguments, context);
        // A close without a callback completes silently.
        //= R-CLOSE-23
        let pended = made.status == STATUS_PENDING && arguments.completion;
        self.made.push((function, pended, made.callbacks));
        //= R-QP-3
        if !is_post(function) || made.status != STATUS_SUCCESS {
            self.posted.remove(&context.addr());
        }
        let (status, created) = if pended {
            self.follow(function);
            let (status, object) = made.callbacks.wait();
            (status, core::ptr::with_exposed_provenance_mut(object))
        } else if made.status == STATUS_PENDING && matches!(function, F::Close(_)) {
            (STATUS_SUCCESS, null_mut())
        } else {
            (made.status, made.created)
        };
        check_buffer(function, arguments, &made, status);
        if status == STATUS_SUCCESS && is_post(function) {
            self.complete_post(function, arguments, breaks);
        }
        self.undo(function, arguments, &made, status, created);
        // A checked call, which writes a report that was made above `DISPATCH_LEVEL`.
        self.poll();
        status
    }

    /// Makes the peer's part of a call that waits for the peer.
    fn follow(&mut self, function: Function) {
        let Some(Handshake { peer, pending, .. }) = &self.handshake else { return };
        match function {
            F::Accept | F::AcceptEx => {
                assert_eq!(pending.wait(), STATUS_SUCCESS);
                assert_eq!(peer.complete(), STATUS_SUCCESS);
            }
            F::Disconnect => {
                peer.disconnected.wait(1);
                assert_eq!(peer.disconnect(), STATUS_SUCCESS);
            }
            _ => {}
        }
    }

    /// Waits for the completion of a request that was accepted.
    fn complete_post(&mut self, function: Function, arguments: &Arguments, breaks: bool) {
        if function == F::Receive {
            call!(arguments.object.cast::<NDK_QP>(), NdkFlush);
        }
        self.complete();
        if breaks {
            self.line.close();
            let qps = [sized_qp(self.pd, &self.own_cq, 32), sized_qp(self.peer_pd, &self.peer_cq, 32)];
            self.line = line([&self.a, &self.b], qps, &self.peer_listener, null_mut(), 8);
            self.peer_receives = 0;
            return;
        }
        match function {
            F::Send => self.peer_receives -= 1,
            F::SendAndInvalidate => {
                self.peer_receives -= 1;
                self.peer_fast_is_valid = false;
            }
            F::Bind => self.is_bound = true,
            F::FastRegister => self.fast_is_valid = true,
            F::Invalidate => self.fast_is_valid = false,
            _ => {}
        }
    }

    fn undo(
        &mut self,
        function: Function,
        arguments: &Arguments,
        made: &Made,
        status: NTSTATUS,
        created: *mut c_void,
    ) {
        let succeeded = status == STATUS_SUCCESS;
        let right = arguments.right;
        // A close, or a function without a status, had no effect.
        let refused = arguments.object != right || arguments.level > nt::irql::DISPATCH_LEVEL;
        match function {
            F::CreateCq if succeeded => self.close(Kind::Cq, created),
            F::CreatePd if succeeded => self.close(Kind::Pd, created),
            F::CreateSharedEndpoint if succeeded => self.close(Kind::SharedEndpoint, created),
            F::CreateConnector if succeeded => self.close(Kind::Connector, created),
            F::CreateListener if succeeded => self.close(Kind::Listener, created),
            F::CreateMr if succeeded => self.close(Kind::Mr, created),
            F::CreateMw if succeeded => self.close(Kind::Mw, created),
            F::CreateSrq if succeeded => self.close(Kind::Srq, created),
            F::CreateQp | F::CreateQpWithSrq if succeeded => self.close(Kind::Qp, created),
            F::BuildLam if succeeded => {
                let mut lam = made.buffer.0;
                call!(self.a.adapter(), NdkReleaseLAM, lam.as_mut_ptr().cast());
            }
            //= R-LAM-27
            F::ReleaseLam => {
                let mut lam = arguments.lam.clone();
                call!(self.a.adapter(), NdkReleaseLAM, lam.as_mut_ptr().cast());
            }
            F::RegisterMr if succeeded => self.deregister(),
            F::DeregisterMr if call!(self.idle_mr, NdkGetLocalTokenFromMr) != 0 => self.deregister(),
            // What a refused poll did not return is still there.
            F::GetCqResults | F::GetCqResultsEx => {
                assert_eq!(self.drain_polled(), usize::from(!succeeded), "{function:?}");
            }
            F::Flush => {
                assert_eq!(self.drain_polled(), usize::from(!refused), "a flush");
                call!(self.poll_qp, NdkFlush);
                assert_eq!(self.drain_polled(), usize::from(refused), "a flush");
            }
            F::Close(kind) if refused => self.close(kind, right),
            _ => {}
        }
        self.undo_state();
    }

    /// Restores the state from before the call.
    fn undo_state(&mut self) {
        if core::mem::take(&mut self.fast_is_valid) {
            self.invalidate(self.fast.cast());
        }
        if core::mem::take(&mut self.is_bound) {
            self.invalidate(self.mw.cast());
        }
        if let Some((connector, qp)) = self.attempt.take() {
            close!(connector, NdkCloseConnector);
            close!(qp, NdkCloseQp);
        }
        if let Some(listener) = self.new_listener.take() {
            listener.close();
        }
        if let Some(Handshake { own, peer, .. }) = self.handshake.take() {
            for end in [own, peer] {
                close!(end.connector, NdkCloseConnector);
                close!(end.qp, NdkCloseQp);
            }
        }
    }
}

/// Whether a function posts a request that completes.
fn is_post(function: Function) -> bool {
    matches!(
        function,
        F::Send
            | F::SendAndInvalidate
            | F::Receive
            | F::Write
            | F::Read
            | F::Bind
            | F::FastRegister
            | F::Invalidate
    )
}

/// Checks that no more of a buffer was written than the call may write.
fn check_buffer(function: Function, arguments: &Arguments, made: &Made, status: NTSTATUS) {
    let given = arguments.size.unwrap_or(0) as usize;
    let written = match (function, status) {
        (F::GetCqResults, STATUS_SUCCESS) => size_of::<NDK_RESULT>(),
        (F::GetCqResultsEx, STATUS_SUCCESS) => size_of::<NDK_RESULT_EX>(),
        //= R-CONN-66
        (F::GetConnectionData, STATUS_SUCCESS | STATUS_BUFFER_TOO_SMALL) => given,
        (_, STATUS_SUCCESS) => given.min(made.variables.size as usize),
        //= R-INFO-4, R-LAM-6
        _ => 8 * arguments.lam.len(),
    };
    made.buffer.check(written, &format!("{function:?}"));
}
