// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two natively linked providers on the wire of `ndk-testkit`, for consumers.
#![allow(unsafe_code, reason = "an adapter is wrapped by its pointer")]

use core::net::SocketAddr;
use std::sync::Arc;

use ndk_consumer::Adapter;
use ndk_consumer::native::Native;
use ndk_provider::{Config, CreateCompletion};
use ndk_testkit::{Host, WireOptions, two_hosts, with_adapters};

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
        with_adapters(&self.0, |opened| {
            // SAFETY: opened for this consumer; the close waits for what `body` has created through it.
            let adapters = opened.map(|raw| unsafe { Adapter::new(&os, raw) });
            body([&adapters[0], &adapters[1]])
        })
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
