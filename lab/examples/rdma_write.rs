// SPDX-License-Identifier: MIT OR Apache-2.0

//! An NDK consumer on the driver's image: one RDMA WRITE between two simulated machines, each running viordma.sys.
//!
//! `cargo xtask image && cd xtask && cargo run --profile tool -p lab --example rdma_write`
//!
//! The calls of the consumer are in [`ndk_consumer::rdma_write`], the same as in the example of `ndk-consumer`.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the simulated kernel runs on Linux only");
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    use std::{process::exit, sync::mpsc::channel};

    use anyhow::{Context as _, ensure};
    use lab::testbed::{Options, Testbed};
    use ndk_consumer::rdma_write;

    // Prints how to build the image if there is none.
    let Some(image) = lab::image() else { exit(2) };
    // In real time: this thread waits for the server through a channel that a simulated clock does not know.
    let options = Options { real_time: true, ..Options::default() };
    let mut bed = Testbed::new(&image, &options)?;
    bed.start()?;
    let [server, client] = bed.machines();
    let (local, remote) = (client.address(), server.address());
    let (ready, listening) = channel();
    let serving = server.consumer("server", move |adapter| {
        rdma_write::serve(adapter, (remote, 0).into(), |address| {
            println!("the server listens at {address}");
            let _ = ready.send(address);
        })
    });
    let target = listening.recv().context("the server does not listen")?;
    let writing = client.consumer("client", move |adapter| {
        rdma_write::write(adapter, (local, 0).into(), target, b"one RDMA WRITE through viordma.sys")
    });
    writing.join()?.context("the client failed")?;
    let written = serving.join()?.context("the server failed")?;
    println!("the server's memory holds {:?}", written.escape_ascii().to_string());
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "the verifier found: {}", violations.join("\n"));
    println!("both drivers stopped; the verifier found no violation");
    Ok(())
}
