// SPDX-License-Identifier: MIT OR Apache-2.0

//! An NDK consumer: one RDMA WRITE between two natively linked providers.
//!
//! `cd xtask && cargo run -p ndk-consumer --example rdma_write`

#![allow(unsafe_code, reason = "an adapter is wrapped by its pointer")]

use std::sync::{Arc, mpsc::channel};

use ndk_consumer::{Adapter, native::Native, rdma_write};
use ndk_provider::Config;
use ndk_testkit::{WireOptions, two_hosts, with_adapters};

fn main() {
    let hosts = two_hosts(Config::default(), WireOptions::default());
    let os = Arc::new(Native::new());
    let written = with_adapters(&hosts, |opened| {
        // SAFETY: opened for this consumer; the close waits for what is created through it.
        let [server, client] = opened.map(|raw| unsafe { Adapter::new(&os, raw) });
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let [local, peer] = [&hosts[0], &hosts[1]].map(|host| host.identity.at(0));
            let server = &server;
            let serving = scope.spawn(move || {
                rdma_write::serve(server, local, |address| {
                    println!("the server listens at {address}");
                    ready.send(address).expect("the client waits");
                })
            });
            let remote = listening.recv().expect("the server listens");
            rdma_write::write(&client, peer, remote, b"one RDMA WRITE").expect("the write succeeds");
            serving.join().expect("the server does not panic").expect("the server succeeds")
        })
    });
    println!(
        "the server's memory holds {:?}, after {} frames",
        written.escape_ascii().to_string(),
        hosts[0].frames()
    );
}
