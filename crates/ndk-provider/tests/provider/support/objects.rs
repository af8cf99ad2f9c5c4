// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that need no peer.

use super::*;
use std::sync::{Condvar, Mutex};

impl OpenAdapter {
    /// Returns what `NdkQueryAdapterInfo` reports.
    pub fn info(&self) -> NDK_ADAPTER_INFO {
        let mut info = core::mem::MaybeUninit::<NDK_ADAPTER_INFO>::uninit();
        let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
        let status = call!(self.adapter(), NdkQueryAdapterInfo, info.as_mut_ptr(), &raw mut size);
        assert_eq!(status, STATUS_SUCCESS);
        // SAFETY: the call succeeded with room for the structure, so it wrote each of its fields.
        unsafe { info.assume_init() }
    }

    pub fn cq(&self, depth: u32) -> Cq {
        let notified = CallbackRecord::new();
        let raw = create(|done, context, out| {
            call!(
                self.adapter(),
                NdkCreateCq,
                depth,
                Some(on_cq),
                notified.context(),
                null_mut(),
                done,
                context,
                out
            )
        });
        Cq { raw: raw.expect("a completion queue"), notified }
    }

    pub fn pd(&self) -> *mut NDK_PD {
        create(|done, context, out| call!(self.adapter(), NdkCreatePd, done, context, out)).expect("a PD")
    }

    pub fn connector(&self) -> *mut NDK_CONNECTOR {
        create(|done, context, out| call!(self.adapter(), NdkCreateConnector, done, context, out))
            .expect("a connector")
    }

    /// Returns a listener on `port`.
    pub fn listener(&self, port: u16) -> Listener {
        let listener = self.idle_listener();
        assert_eq!(listener.listen(self.at(port)), STATUS_SUCCESS);
        listener
    }

    /// Returns a shared endpoint at `port`.
    pub fn shared_endpoint(&self, port: u16) -> *mut NDK_SHARED_ENDPOINT {
        let (bytes, length) = socket_address(self.at(port));
        create(|done, context, out| {
            let address = (&raw const bytes).cast();
            call!(self.adapter(), NdkCreateSharedEndpoint, address, length, done, context, out)
        })
        .expect("a shared endpoint")
    }

    pub fn idle_listener(&self) -> Listener {
        let incoming = Box::new(Incoming::default());
        let context = (&raw const *incoming).cast_mut().cast();
        let raw = create(|done, request, out| {
            call!(self.adapter(), NdkCreateListener, Some(on_connect), context, done, request, out)
        });
        Listener { raw: raw.expect("a listener"), incoming }
    }
}

/// A completion queue and the calls of its notification callback.
pub struct Cq {
    pub raw: *mut NDK_CQ,
    pub notified: &'static CallbackRecord,
}

impl Cq {
    /// Waits for the next completion.
    pub fn next(&self) -> NDK_RESULT_EX {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn poll(&self) -> Option<NDK_RESULT_EX> {
        let mut result = core::mem::MaybeUninit::<NDK_RESULT_EX>::uninit();
        let count = call!(self.raw, NdkGetCqResultsEx, result.as_mut_ptr(), 1);
        // SAFETY: a count of 1 says that the call wrote the result.
        (count == 1).then(|| unsafe { result.assume_init() })
    }

    pub fn arm(&self, kind: u32) {
        call!(self.raw, NdkArmCq, kind);
    }

    pub fn close(self) {
        close!(self.raw, NdkCloseCq);
    }
}

/// A listener and the connectors of its connect events.
pub struct Listener {
    pub raw: *mut NDK_LISTENER,
    incoming: Box<Incoming>,
}

#[derive(Default)]
struct Incoming {
    connectors: Mutex<Vec<usize>>,
    changed: Condvar,
}

unsafe extern "efiapi" fn on_connect(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context is the listener's and is freed after the listener is closed.
    let incoming = unsafe { &*context.cast::<Incoming>() };
    incoming.connectors.lock().unwrap().push(connector.expose_provenance());
    incoming.changed.notify_all();
}

// SAFETY: calls on NDK objects may come from any thread.
unsafe impl Sync for Listener {}

impl Listener {
    pub fn listen(&self, address: SocketAddr) -> NTSTATUS {
        let (bytes, length) = socket_address(address);
        request(|done, context| call!(self.raw, NdkListen, (&raw const bytes).cast(), length, done, context))
    }

    /// Calls `NdkGetLocalAddress`.
    pub fn address(&self) -> Result<SocketAddr, NTSTATUS> {
        returned_address(|out, length| call!(self.raw, NdkGetLocalAddress, out.cast(), length))
    }

    /// Returns whether no connector waits for [`Listener::accept`].
    pub fn is_idle(&self) -> bool {
        self.incoming.connectors.lock().unwrap().is_empty()
    }

    /// Waits for the connector of the next connect event.
    pub fn accept(&self) -> *mut NDK_CONNECTOR {
        let connectors = self.incoming.connectors.lock().unwrap();
        let (mut connectors, _) =
            self.incoming.changed.wait_timeout_while(connectors, TIMEOUT, |c| c.is_empty()).unwrap();
        assert!(!connectors.is_empty(), "no connect event");
        core::ptr::with_exposed_provenance_mut(connectors.remove(0))
    }

    pub fn close(self) {
        close!(self.raw, NdkCloseListener);
    }
}

/// A raw pointer for threads of a test that waits for them.
#[derive(Clone, Copy)]
pub struct OnAnyThread<T>(pub *mut T);
// SAFETY: calls on NDK objects may come from any thread.
unsafe impl<T> Send for OnAnyThread<T> {}
// SAFETY: as above, also through one reference.
unsafe impl<T> Sync for OnAnyThread<T> {}

impl<T> OnAnyThread<T> {
    pub fn get(&self) -> *mut T {
        self.0
    }
}
