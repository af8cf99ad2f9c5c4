// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases of Ethernet: Linux's IP stack in the guest, the one of the simulated host behind the image's miniport.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use linux_guest::Guest;
use ndis_sim::tcp_stack::TcpStack;

use super::{
    addresses::{Family, HOST_MAC, guest_address, host_address},
    cases::{Case, Side, TCP_PORT},
};
use crate::external_host::ExternalHost;

/// Bytes that the stack is given at once.
const PIECE: usize = 1 << 16;
const PAUSE: Duration = Duration::from_micros(100);

/// Pings the host from the guest, then sends `length` bytes over a TCP connection to the guest, which returns them.
///
/// # Errors
/// A side failed, or data differ.
pub fn run(case: &Case, length: usize, host: &ExternalHost, guest: &mut Guest) -> Result<Vec<String>> {
    let limit = case.limit();
    guest.run(&format!("ping -c 3 -s 1400 {}", host_address(case.family)), limit)?.ok()?;
    let miniport = host.machine().adapters().first().and_then(|adapter| adapter.miniport());
    let address = (host_address(case.family), if case.family == Family::V4 { 24 } else { 64 });
    let stack = TcpStack::new(miniport.context("no miniport")?, HOST_MAC, address);
    let mut stack = stack.map_err(|error| anyhow::anyhow!("the stack does not start: {error:?}"))?;
    let command = case.guest_command();
    let peer = match case.client {
        Side::Viordma => {
            let server = guest.start(&command, limit)?;
            // In hexadecimal, and in state LISTEN: connections of an earlier case may not have ended.
            let listens = format!(
                "until grep -qE ':{TCP_PORT:04X} 0+:0000 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done"
            );
            guest.run(&listens, limit)?.ok()?;
            stack.connect(guest_address(case.family), TCP_PORT);
            server
        }
        Side::Linux => {
            stack.listen(TCP_PORT);
            guest.start(&command, limit)?
        }
    };
    let exchanged = exchange(&mut stack, length, limit);
    let output = guest.kill(&peer)?;
    exchanged.with_context(|| format!("the guest's side: {output}"))?;
    let counters = stack.counters();
    ensure!(counters.invalid == 0, "wrong checksums: {counters:?}");
    Ok(vec![format!("{} frames sent, {} received", counters.sent, counters.received)])
}

/// [Runs](run) before and after an interruption.
///
/// # Errors
/// As [`run`], and those of the interruption.
pub fn run_around(
    case: &Case,
    host: &ExternalHost,
    guest: &mut Guest,
    interruption: impl FnOnce() -> Result<()>,
) -> Result<Vec<String>> {
    run(case, PIECE, host, guest)?;
    interruption()?;
    run(case, PIECE, host, guest).context("after the interruption")
}

/// Sends bytes, and compares what returns.
fn exchange(stack: &mut TcpStack, length: usize, limit: Duration) -> Result<()> {
    let start = Instant::now();
    let (mut sent, mut returned) = (0, 0);
    while returned < length {
        ensure!(start.elapsed() < limit, "of {length} bytes {sent} were sent, {returned} returned");
        stack.poll(start.elapsed());
        if stack.is_connected() {
            sent += stack.send(&bytes(sent, (length - sent).min(PIECE)));
        }
        let arrived = stack.receive();
        ensure!(arrived == bytes(returned, arrived.len()), "wrong bytes after {returned}");
        returned += arrived.len();
        stack.poll(start.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns bytes of the stream from a position on.
fn bytes(from: usize, length: usize) -> Vec<u8> {
    (from..from + length).map(|position| (position % 251) as u8).collect()
}
