// SPDX-License-Identifier: MIT OR Apache-2.0

//! An NDK consumer: one RDMA WRITE between two natively linked providers.
//!
//! `cd xtask && cargo run -p ndk-consumer --example rdma_write`

mod session;
#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../tests/two_hosts.rs"]
mod two_hosts;

use std::sync::mpsc::channel;

use ndk_provider::CreateCompletion;

use two_hosts::TwoHosts;

fn main() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 1500, 0);
    let written = hosts.with_adapters(|[server, client]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let hosts = &hosts;
            let serving = scope.spawn(move || {
                session::serve(server, hosts.address(0), |address| {
                    println!("the server listens at {address}");
                    ready.send(address).expect("the client waits");
                })
            });
            let remote = listening.recv().expect("the server listens");
            session::write(client, hosts.address(1), remote, b"one RDMA WRITE").expect("the write succeeds");
            serving.join().expect("the server does not panic").expect("the server succeeds")
        })
    });
    println!(
        "the server's memory holds {:?}, after {} frames",
        written.escape_ascii().to_string(),
        hosts.frames()
    );
}
