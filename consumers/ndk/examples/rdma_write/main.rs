// SPDX-License-Identifier: MIT OR Apache-2.0

//! An NDK consumer: one RDMA WRITE between two natively linked providers.
//!
//! `cd xtask && cargo run -p ndk-consumer --example rdma_write`

#[expect(dead_code, reason = "tests use the rest")]
#[path = "../../tests/pair/mod.rs"]
mod pair;
mod session;

use std::sync::mpsc::channel;

use ndk_provider::CreateCompletion;

use pair::Pair;

fn main() {
    let pair = Pair::new(CreateCompletion::Inline, 1500, 0);
    let written = pair.with_adapters(|[server, client]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let pair = &pair;
            let serving = scope.spawn(move || {
                session::serve(server, pair.address(0), |address| {
                    println!("the server listens at {address}");
                    ready.send(address).expect("the client waits");
                })
            });
            let remote = listening.recv().expect("the server listens");
            session::write(client, pair.address(1), remote, b"one RDMA WRITE").expect("the write succeeds");
            serving.join().expect("the server does not panic").expect("the server succeeds")
        })
    });
    println!(
        "the server's memory holds {:?}, after {} frames",
        written.escape_ascii().to_string(),
        pair.frames()
    );
}
