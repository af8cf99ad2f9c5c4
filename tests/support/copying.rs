// SPDX-License-Identifier: MIT OR Apache-2.0

//! A copy between the two hosts of a testbed.

use std::{net::SocketAddr, time::Duration};

use lab::testbed::Testbed;
use ndk_consumer::{
    Error,
    transfer::{self, Progress},
};

const MOMENT: Duration = Duration::from_secs(20);

/// Copies 1 MiB from the first host to the second and back.
pub fn copy(bed: &Testbed) {
    for end in try_copy(bed, 1 << 20, |_| {}) {
        end.expect("the copy completes");
    }
}

/// Copies `bytes` bytes from the first host to the second and back. `watch` receives the progress. Returns the results of
/// both sides.
pub fn try_copy(
    bed: &Testbed,
    bytes: usize,
    watch: impl Fn(Progress) + Send + 'static,
) -> [Result<(), Error>; 2] {
    let [client, server] = bed.machines();
    let options = transfer::Options::default();
    let address = SocketAddr::new(server.address(), 5445);
    let listening = bed.event();
    let serving = {
        let listening = listening.clone();
        server.consumer("server", move |adapter| {
            transfer::serve(adapter, &options, address, |_| listening.set(), &|_| {}).map(drop)
        })
    };
    let local = SocketAddr::new(client.address(), 0);
    let copying = client.consumer("client", move |adapter| {
        let _ = listening.wait(MOMENT);
        let data = transfer::Generated { seed: 0, bytes: bytes as u64 };
        transfer::copy(adapter, &options, local, address, "data", &data, &watch).map(drop)
    });
    [copying.join(), serving.join()].map(|end| {
        end.unwrap_or_else(|lost| panic!("{lost}\n{}", bed.violations().join("\n")))
            .map_err(|failure| failure.error)
    })
}
