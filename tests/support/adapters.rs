// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several adapters of one host: RDMA between them, and one that goes while the other works.

use std::{net::SocketAddr, time::Duration};

use lab::machine::{Consumer, MachineAdapter};
use ndk_consumer::{Error, transfer};
use nt_sim::Event;

pub const MOMENT: Duration = Duration::from_secs(5);

/// A copy in progress: the results of client and server.
pub type Copy = [Consumer<Result<(), Error>>; 2];

/// Begins to copy `bytes` bytes from one adapter to the other. `moving` is set when a part has arrived.
pub fn begin(ends: [&MachineAdapter; 2], listening: Event, moving: Event, bytes: usize) -> Copy {
    let [client, server] = ends;
    let options = transfer::Options::default();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), 5445));
    let is_listening = listening.clone();
    let serving = server.consumer("server", move |adapter| {
        let outcome = transfer::serve(adapter, &options, remote, |_| is_listening.set(), &|_| {});
        outcome.map(drop).map_err(|failure| failure.error)
    });
    let copying = client.consumer("client", move |adapter| {
        let _ = listening.wait(MOMENT);
        let data = transfer::Generated { seed: 0, bytes: bytes as u64 };
        let watch = |at: transfer::Progress| {
            if at.done > 1 << 20 {
                moving.set();
            }
        };
        let outcome = transfer::copy(adapter, &options, local, remote, "data", &data, &watch);
        outcome.map(drop).map_err(|failure| failure.error)
    });
    [copying, serving]
}

pub fn complete(copy: Copy) {
    for end in copy {
        end.join().expect("the host lives").expect("the copy completes");
    }
}
