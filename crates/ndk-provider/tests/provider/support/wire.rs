// SPDX-License-Identifier: MIT OR Apache-2.0

//! The hosts at both ends of the wire of `ndk-testkit`, each with an open NDK adapter.

use super::*;
use core::ops::Deref;
use ndk_provider::{Config, CreateCompletion, Provider};
pub use ndk_testkit::SCOPE;
use ndk_testkit::{Host, Identity, WireOptions, two_hosts};
use std::sync::{Arc, MutexGuard};

/// An open NDK adapter of a host.
pub struct OpenAdapter {
    pub provider: Arc<Provider>,
    own: Identity,
    adapter: *mut NDK_ADAPTER,
}

// SAFETY: calls on NDK objects may come from any thread.
unsafe impl Send for OpenAdapter {}
// SAFETY: calls on one NDK object may come from several threads at a time.
unsafe impl Sync for OpenAdapter {}

impl OpenAdapter {
    fn new(provider: &Arc<Provider>, own: Identity, major: u16, minor: u16) -> Self {
        let adapter = provider.open(NDK_VERSION { Major: major, Minor: minor }).expect("an adapter");
        Self { provider: Arc::clone(provider), own, adapter }
    }

    /// Opens an NDK adapter of the host with this number.
    pub fn of(provider: &Arc<Provider>, number: u8) -> Self {
        observed::start();
        Self::new(provider, Identity::new(number), 2, 1)
    }

    /// Opens another NDK adapter of the same host.
    pub fn open(&self, major: u16, minor: u16) -> Self {
        Self::new(&self.provider, self.own, major, minor)
    }

    /// Closes the adapter, which waits for its objects.
    pub fn close(self) {
        self.close_now();
    }

    /// Closes the adapter. If it was the last one, no object of the engine is left.
    fn close_now(&self) {
        // SAFETY: opened by `new`, closed once.
        unsafe { self.provider.close(self.adapter) };
        if self.provider.open_adapters() == 0 {
            assert_eq!(self.provider.objects(), roce::Objects::default(), "objects of the engine are left");
        }
    }

    pub fn adapter(&self) -> *mut NDK_ADAPTER {
        self.adapter
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        self.own.at(port)
    }

    pub fn at_v6(&self, port: u16) -> SocketAddr {
        self.own.at_v6(port)
    }

    /// The link-local address with its scope.
    pub fn at_link_local(&self, port: u16) -> SocketAddr {
        self.own.at_link_local(port)
    }
}

/// One host, with one NDK adapter open.
pub struct Node {
    opened: OpenAdapter,
    pub host: Host,
}

/// Returns two hosts on one wire.
pub fn pair() -> (Node, Node) {
    pair_with(Config::default())
}

/// Returns two hosts whose calls pend whenever they may.
pub fn pending_pair() -> (Node, Node) {
    pair_with(Config { create_completion: CreateCompletion::Pend, ..Config::default() })
}

pub fn pair_with(config: Config) -> (Node, Node) {
    observed::start();
    let [a, b] = two_hosts(config, WireOptions::default());
    (Node::new(a), Node::new(b))
}

impl Node {
    fn new(host: Host) -> Self {
        Self { opened: OpenAdapter::new(&host.provider, host.identity, 2, 1), host }
    }

    /// Until the guard is dropped, received frames are processed but neither the receiver, the DPC nor the timer makes
    /// callbacks: the DPC is held in a callback of a completion queue.
    pub fn hold_callbacks(&self) -> HeldCallbacks<'_> {
        let gate = Gate::new();
        let (timer, batches) = (self.host.hold_timer(), self.host.hold_batches());
        let cq: *mut NDK_CQ = create(|done, context, out| {
            let (callback, null) = (Some(on_cq_at_gate as NDK_FN_CQ_NOTIFICATION_CALLBACK), null_mut());
            call!(self.adapter(), NdkCreateCq, 1, callback, gate.context(), null, done, context, out)
        })
        .expect("a completion queue");
        let pd = self.pd();
        let qp: *mut NDK_QP = create(|done, context, out| {
            call!(pd, NdkCreateQp, cq, cq, null_mut(), 1, 1, 0, 0, 0, done, context, out)
        })
        .expect("a queue pair");
        call!(cq, NdkArmCq, NDK_CQ_NOTIFY_ANY);
        assert_eq!(call!(qp, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
        call!(qp, NdkFlush);
        gate.wait();
        HeldCallbacks { gate, cq, pd, qp, _timer: timer, _batches: batches }
    }

    /// Returns a counter of the engine.
    pub fn counter(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.provider.counters(&mut |name, value| {
            if name == wanted {
                found = Some(value);
            }
        });
        found.expect("a counter of this name")
    }
}

/// Holds a host's callbacks until dropped.
pub struct HeldCallbacks<'a> {
    gate: &'static Gate,
    cq: *mut NDK_CQ,
    pd: *mut NDK_PD,
    qp: *mut NDK_QP,
    _timer: MutexGuard<'a, ()>,
    _batches: MutexGuard<'a, ()>,
}

impl Drop for HeldCallbacks<'_> {
    fn drop(&mut self) {
        self.gate.open();
        close!(self.qp, NdkCloseQp);
        close!(self.cq, NdkCloseCq);
        close!(self.pd, NdkClosePd);
    }
}

impl Deref for Node {
    type Target = OpenAdapter;

    fn deref(&self) -> &OpenAdapter {
        &self.opened
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Waits for every object to be closed.
            self.opened.close_now();
        }
    }
}
