// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two natively linked providers on the wire of `ndk-testkit`, for consumers.
#![allow(unsafe_code, reason = "a provider is opened and closed through pointers")]

use core::net::SocketAddr;
use core::ptr::NonNull;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_ADAPTER, NDK_VERSION};
use ndk_consumer::Adapter;
use ndk_consumer::native::Native;
use ndk_provider::{Config, CreateCompletion};
use ndk_testkit::{Host, WireOptions, two_hosts};

/// Two hosts on one wire.
pub struct TwoHosts([Host; 2]);

impl TwoHosts {
    /// Returns two hosts. `mtu` is the IP MTU in bytes, `loss` the number of frames lost per million.
    pub fn new(pending: CreateCompletion, mtu: u32, loss: u64) -> Self {
        Self(two_hosts(Config { create_completion: pending, ..Config::default() }, WireOptions { mtu, loss }))
    }

    /// Opens both adapters, runs `body`, and closes them.
    pub fn with_adapters<R>(&self, body: impl FnOnce([&Arc<Adapter<Native>>; 2]) -> R) -> R {
        let os = Arc::new(Native::new());
        let raw = self.0.each_ref().map(|host| {
            let version = NDK_VERSION { Major: 2, Minor: 1 };
            let opened = host.provider.open(version);
            NonNull::new(opened.unwrap_or_else(|status| panic!("{status:#x}"))).unwrap()
        });
        // SAFETY: closed below, after `body` has closed everything made from them.
        let adapters = raw.map(|raw: NonNull<NDK_ADAPTER>| unsafe { Adapter::new(&os, raw) });
        let result = body([&adapters[0], &adapters[1]]);
        drop(adapters);
        for (host, raw) in self.0.iter().zip(raw) {
            // SAFETY: opened above, and all objects created through it are closed.
            unsafe { host.provider.close(raw.as_ptr()) };
        }
        result
    }

    /// Returns the address of a host with port 0.
    pub fn address(&self, host: usize) -> SocketAddr {
        self.0[host].identity.at(0)
    }

    /// Cuts the wire: all later frames are lost.
    pub fn cut(&self) {
        self.0.iter().for_each(Host::cut);
    }

    /// Prints the counters of both engines.
    pub fn print_counters(&self) {
        for host in &self.0 {
            host.provider.counters(&mut |name, value| {
                if value != 0 {
                    print!("{name} {value}, ");
                }
            });
            println!();
        }
    }

    /// Returns the number of frames that both hosts have sent.
    pub fn frames(&self) -> u64 {
        self.0[0].frames()
    }
}
