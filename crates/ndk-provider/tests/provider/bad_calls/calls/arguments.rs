// SPDX-License-Identifier: MIT OR Apache-2.0

//! The arguments of a call, and the calls of its callback.

use crate::support::*;
use ndk_abi::netio::SOCKADDR;
use std::sync::{Condvar, Mutex};

/// The arguments of a call of any function.
#[allow(clippy::struct_excessive_bools, reason = "which pointers are given")]
pub struct Arguments {
    /// The object of the call, and an object of the right type, whose table is used.
    pub object: *mut c_void,
    pub right: *mut c_void,
    /// The IRQL of the call.
    pub level: u8,
    pub receive_cq: *mut NDK_CQ,
    pub initiator_cq: *mut NDK_CQ,
    pub srq: *mut NDK_SRQ,
    pub qp: *mut NDK_QP,
    pub endpoint: *mut NDK_SHARED_ENDPOINT,
    pub mr: *mut NDK_MR,
    pub mw: *mut NDK_MW,
    /// The object that an invalidation names.
    pub target: *mut NDK_OBJECT_HEADER,
    /// Depths, numbers of elements and the like, in the order of the parameters.
    pub numbers: [u32; 5],
    /// Whether the event callback, the completion callback and the variable for the object are given.
    pub notification: bool,
    pub completion: bool,
    pub out: bool,
    pub source: Address,
    pub destination: Address,
    /// Private data, and its length.
    pub data: Option<Vec<u8>>,
    pub data_length: u32,
    pub list: Option<Vec<NDK_SGE>>,
    pub count: u32,
    pub flags: u32,
    pub remote: (u64, u32),
    pub pages: Option<Vec<u64>>,
    pub offset: u32,
    pub length: usize,
    pub base: u64,
    pub mdl: *mut MDL,
    /// Whether the buffer and its size are given, and the size.
    pub buffer: bool,
    pub size: Option<u32>,
    /// The content of the buffer before the call.
    pub lam: Vec<u64>,
}

/// A socket address in a consumer's memory.
pub struct Address(pub Option<Vec<u8>>, pub u32);

impl Address {
    pub fn of(address: SocketAddr) -> Self {
        let (inet, length) = socket_address(address);
        // SAFETY: both members of the union are plain bytes, of at least this length.
        let bytes = unsafe { core::slice::from_raw_parts((&raw const inet).cast::<u8>(), length as usize) };
        Self(Some(bytes.to_vec()), length)
    }

    pub fn pointer(&self) -> *const SOCKADDR {
        self.0.as_ref().map_or(null(), |bytes| bytes.as_ptr().cast())
    }
}

/// The calls of one callback: a status each, and the object of a create callback.
#[derive(Default)]
pub struct Callbacks {
    calls: Mutex<Vec<(NTSTATUS, usize)>>,
    changed: Condvar,
}

impl Callbacks {
    pub fn record(&self, status: NTSTATUS, object: usize) {
        assert!(nt::irql::current() <= nt::irql::DISPATCH_LEVEL);
        self.calls.lock().unwrap().push((status, object));
        self.changed.notify_all();
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    pub fn wait(&self) -> (NTSTATUS, usize) {
        let calls = self.calls.lock().unwrap();
        let (calls, _) = self.changed.wait_timeout_while(calls, TIMEOUT, |calls| calls.is_empty()).unwrap();
        *calls.first().expect("the callback was not made")
    }
}
