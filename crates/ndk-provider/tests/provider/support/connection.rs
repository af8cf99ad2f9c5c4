// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ends of a connection.

use super::*;
use ndk_abi::netio::SOCKADDR;

/// Everything one end of a connection needs.
pub struct End {
    pub cq: Cq,
    pub pd: *mut NDK_PD,
    pub qp: *mut NDK_QP,
    pub connector: *mut NDK_CONNECTOR,
    /// The calls of the disconnect event callback.
    pub disconnected: &'static CallbackRecord,
}

/// Creates a queue pair of depths 32 and 32 with 4 elements per request and 64 bytes of inline data.
pub fn qp(pd: *mut NDK_PD, cq: &Cq) -> *mut NDK_QP {
    create(|done, context, out| {
        call!(pd, NdkCreateQp, cq.raw, cq.raw, QP_CONTEXT, 32, 32, 4, 4, 64, done, context, out)
    })
    .expect("a queue pair")
}

impl OpenAdapter {
    /// Returns an end for `connector`, which may be one of another NDK adapter.
    pub fn end(&self, connector: *mut NDK_CONNECTOR) -> End {
        let (cq, pd) = (self.cq(256), self.pd());
        let qp = qp(pd, &cq);
        End { cq, pd, qp, connector, disconnected: CallbackRecord::new() }
    }

    /// Returns an end with a new connector.
    pub fn active(&self) -> End {
        self.end(self.connector())
    }
}

pub const QP_CONTEXT: *mut c_void = core::ptr::without_provenance_mut(0x0051_5051);

/// A connect or accept in progress.
pub struct Connecting {
    status: NTSTATUS,
    record: &'static CallbackRecord,
    member: observed::Member,
}

impl Connecting {
    pub fn wait(&self) -> NTSTATUS {
        if self.status != STATUS_PENDING {
            return self.status;
        }
        let status = self.record.wait(1);
        observed::completion(self.member, status);
        status
    }

    /// Returns whether the call did not pend.
    pub fn is_inline(&self) -> bool {
        self.status != STATUS_PENDING
    }

    pub fn is_done(&self) -> bool {
        self.status != STATUS_PENDING || self.record.count() != 0
    }
}

impl End {
    pub fn connect(&self, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Connecting {
        let ((source, source_length), (target, target_length)) = (socket_address(from), socket_address(to));
        let record = CallbackRecord::new();
        let status = call!(
            self.connector,
            NdkConnect,
            self.qp,
            (&raw const source).cast::<SOCKADDR>(),
            source_length,
            (&raw const target).cast::<SOCKADDR>(),
            target_length,
            8,
            8,
            data.as_ptr().cast(),
            data.len() as u32,
            Some(on_request),
            record.context(),
        );
        Connecting { status, record, member: observed::last() }
    }

    /// Connects from a shared endpoint.
    pub fn connect_with(&self, endpoint: *mut NDK_SHARED_ENDPOINT, to: SocketAddr) -> Connecting {
        let (target, length) = socket_address(to);
        let record = CallbackRecord::new();
        let status = call!(
            self.connector,
            NdkConnectWithSharedEndpoint,
            self.qp,
            endpoint,
            (&raw const target).cast(),
            length,
            1,
            1,
            null(),
            0,
            Some(on_request),
            record.context(),
        );
        Connecting { status, record, member: observed::last() }
    }

    pub fn complete(&self) -> NTSTATUS {
        request(|done, context| {
            call!(
                self.connector,
                NdkCompleteConnect,
                Some(on_disconnect),
                self.disconnected.context(),
                done,
                context
            )
        })
    }

    pub fn accept(&self, data: &[u8]) -> Connecting {
        let record = CallbackRecord::new();
        let status = call!(
            self.connector,
            NdkAccept,
            self.qp,
            16,
            4,
            data.as_ptr().cast(),
            data.len() as u32,
            Some(on_disconnect),
            self.disconnected.context(),
            Some(on_request),
            record.context(),
        );
        Connecting { status, record, member: observed::last() }
    }

    pub fn disconnect(&self) -> NTSTATUS {
        request(|done, context| call!(self.connector, NdkDisconnect, done, context))
    }

    pub fn private_data(&self) -> Result<Vec<u8>, NTSTATUS> {
        private_data(self.connector)
    }

    pub fn receive(&self, context: u64, sges: &[NDK_SGE]) -> NTSTATUS {
        call!(self.qp, NdkReceive, pointer(context), list(sges), sges.len() as u32)
    }

    pub fn send(&self, context: u64, sges: &[NDK_SGE], flags: u32) -> NTSTATUS {
        call!(self.qp, NdkSend, pointer(context), list(sges), sges.len() as u32, flags)
    }

    pub fn write(&self, context: u64, sges: &[NDK_SGE], to: (u64, u32)) -> NTSTATUS {
        self.write_flagged(context, sges, to, 0)
    }

    pub fn write_flagged(&self, context: u64, sges: &[NDK_SGE], to: (u64, u32), flags: u32) -> NTSTATUS {
        call!(self.qp, NdkWrite, pointer(context), list(sges), sges.len() as u32, to.0, to.1, flags)
    }

    pub fn read(&self, context: u64, sges: &[NDK_SGE], from: (u64, u32)) -> NTSTATUS {
        call!(self.qp, NdkRead, pointer(context), list(sges), sges.len() as u32, from.0, from.1, 0)
    }

    /// Closes everything, the connector first.
    pub fn close(self) {
        close!(self.connector, NdkCloseConnector);
        close!(self.qp, NdkCloseQp);
        self.cq.close();
        close!(self.pd, NdkClosePd);
    }
}

/// Returns the peer's private data.
pub fn private_data(connector: *mut NDK_CONNECTOR) -> Result<Vec<u8>, NTSTATUS> {
    let mut length = 0;
    match call!(connector, NdkGetConnectionData, null_mut(), null_mut(), null_mut(), &raw mut length) {
        STATUS_SUCCESS => {}
        status => return Err(status),
    }
    let mut data = vec![0xee_u8; length as usize];
    let pointer = data.as_mut_ptr().cast();
    let status = call!(connector, NdkGetConnectionData, null_mut(), null_mut(), pointer, &raw mut length);
    assert_eq!(status, STATUS_SUCCESS);
    Ok(data)
}

pub fn pointer(context: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(context as usize)
}

fn list(sges: &[NDK_SGE]) -> *const NDK_SGE {
    if sges.is_empty() { null() } else { sges.as_ptr() }
}

/// Accepts and completes a connect whose request `passive` has.
pub fn establish(active: &End, passive: &End, connecting: &Connecting) {
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
}

/// Connects the two hosts.
pub fn connect(a: &OpenAdapter, b: &OpenAdapter) -> (End, End, Listener) {
    connect_over(a, b, a.at(0), b.at(445))
}

/// Sends a message without data, and takes the completions of both ends.
pub fn send_one(from: &End, to: &End) {
    assert_eq!(to.receive(1, &[]), STATUS_SUCCESS);
    assert_eq!(from.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!([from.cq.next().Status, to.cq.next().Status], [STATUS_SUCCESS; 2]);
}

/// Connects the two hosts over these addresses.
pub fn connect_over(
    a: &OpenAdapter,
    b: &OpenAdapter,
    from: SocketAddr,
    to: SocketAddr,
) -> (End, End, Listener) {
    let listener = b.idle_listener();
    assert_eq!(listener.listen(to), STATUS_SUCCESS);
    let active = a.active();
    let connecting = active.connect(from, to, &[]);
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    (active, passive, listener)
}
