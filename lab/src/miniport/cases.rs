// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requirements on a miniport, case by case, each in a simulation of its own.

use std::{fmt::Write as _, net::Ipv4Addr, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ndis_sim::{Miniport, StatusIndication, oid::OidError};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_PROMISCUOUS,
    NDIS_STATUS_LINK_STATE, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::nt::time::sleep;

use super::{station::Station, two_hosts::TwoHosts};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// Lengths of the data of pings, up to the longest packet of the link.
const PINGS: [usize; 6] = [0, 1, 56, 511, 1000, 1472];
/// Bytes of a TCP transfer in each direction.
const TRANSFER: usize = 1 << 20;

/// A case: its name, what it shows, and what it does with the pair, which has started.
pub struct Case {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&mut TwoHosts) -> Result<String>,
    /// Whether it is run with the driver at both ends, too.
    pub with_itself: bool,
}

/// All cases.
pub const ALL: &[Case] = &[
    Case { name: "oids", about: "every OID of its list is queried", run: oids, with_itself: false },
    Case {
        name: "frames",
        about: "frames of 60 to 1514 bytes, both ways, one at a time and in chains",
        run: frames,
        with_itself: true,
    },
    Case { name: "tcp", about: "ping, and TCP of 1 MiB each way", run: tcp, with_itself: true },
    Case { name: "link", about: "the link goes down and up", run: link, with_itself: false },
    Case {
        name: "pause",
        about: "paused and restarted five times, with sends on their way",
        run: pause,
        with_itself: true,
    },
    Case {
        name: "cancel",
        about: "sends are cancelled, on their way and when there are none",
        run: cancel,
        with_itself: false,
    },
    Case { name: "halt", about: "halted and started again, three times", run: halt, with_itself: false },
    Case { name: "reset", about: "asked whether it hangs, and reset", run: reset, with_itself: false },
    Case { name: "sleep", about: "D3, and D0 again", run: sleeps, with_itself: false },
    Case {
        name: "shutdown",
        about: "shut down, as before the machine turns off",
        run: shutdown,
        with_itself: false,
    },
    Case { name: "removal", about: "its device is taken away", run: removal, with_itself: false },
];

/// Pings and transfers from the first host to the second; returns what was done, and its time in the simulation.
fn exchange(hosts: &TwoHosts) -> Result<String> {
    let [near, far] = [0, 1].map(|side| hosts.sides[side].miniport());
    let (near, far) = (near?, far?);
    let ended = hosts.event();
    let echo = {
        let ended = ended.clone();
        far.host().clone().spawn("echo", move || Station::new(&far, ADDRESSES[1])?.echo(|| ended.is_set()))
    };
    let client = near.host().clone().spawn("client", move || -> Result<(Duration, u64)> {
        let outcome = client(&near);
        ended.set();
        outcome
    });
    let took = client.join()?;
    echo.join()?.context("the echo")?;
    let (took, coalesced) = took?;
    let took = took.as_secs_f64() * 1e3;
    Ok(format!("{} pings; TCP of 1 MiB each way in {took:.1} ms, {coalesced} frames coalesced", PINGS.len()))
}

/// Pings and a transfer; returns the time of the transfer, and the number of received frames that were coalesced.
fn client(miniport: &Miniport) -> Result<(Duration, u64)> {
    let mut station = Station::new(miniport, ADDRESSES[0])?;
    station.ping(ADDRESSES[1], &PINGS)?;
    let took = station.transfer(ADDRESSES[1], TRANSFER)?;
    station.finish()?;
    Ok((took, station.coalesced()))
}

fn tcp(hosts: &mut TwoHosts) -> Result<String> {
    exchange(hosts)
}

fn describe(answer: &Result<Vec<u8>, OidError>) -> String {
    match answer {
        Ok(bytes) if bytes.len() <= 8 => {
            let value = bytes.iter().rev().fold(String::from("0x"), |text, byte| format!("{text}{byte:02x}"));
            if bytes.is_empty() { "nothing".into() } else { value }
        }
        Ok(bytes) => format!("{} bytes", bytes.len()),
        Err(error) => format!("{:#010x}, BytesNeeded {}", error.status, error.needed),
    }
}

fn oids(hosts: &mut TwoHosts) -> Result<String> {
    let miniport = hosts.sides[0].miniport()?;
    let (mut text, mut answered) = (String::new(), 0);
    let supported = miniport.supported_oids();
    for &oid in &supported {
        let answer = miniport.query(oid, 4).or_else(|refused| {
            if refused.needed > 4 { miniport.query(oid, refused.needed as usize) } else { Err(refused) }
        });
        answered += usize::from(answer.is_ok());
        let _ = write!(text, "\n    {oid:#010x}: {}", describe(&answer));
    }
    let unknown = miniport.query(0xffff_0000, 4);
    ensure!(unknown.is_err(), "OID 0xffff0000 does not exist, and was answered");
    let attributes = miniport.attributes().general.context("no general attributes")?;
    Ok(format!(
        "{answered} of {} queries answered; MTU {}, MAC {:02x?}{text}",
        supported.len(),
        attributes.MtuSize,
        &attributes.CurrentMacAddress[..6]
    ))
}

/// A frame to a station, with a number by which it differs from others.
fn frame(to: [u8; 6], from: [u8; 6], length: usize, number: u32) -> Vec<u8> {
    let mut frame: Vec<u8> = to.into_iter().chain(from).chain([0x88, 0xb5]).collect();
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..length).map(|at| (at as u32 ^ number) as u8));
    frame
}

fn mac(miniport: &Miniport) -> Result<[u8; 6]> {
    let general = miniport.attributes().general.context("no general attributes")?;
    let mut mac = [0; 6];
    mac.copy_from_slice(&general.CurrentMacAddress[..6]);
    Ok(mac)
}

fn frames(hosts: &mut TwoHosts) -> Result<String> {
    let [near, far] = [0, 1].map(|side| hosts.sides[side].miniport());
    let (near, far) = (near?, far?);
    let macs = (mac(&near)?, mac(&far)?);
    let filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_PROMISCUOUS;
    let mut count = 0;
    for (from, to, [source, target]) in [(&near, &far, [macs.0, macs.1]), (&far, &near, [macs.1, macs.0])] {
        to.set(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes()).context("the packet filter")?;
        for chain in [1, 8, 64] {
            let wanted: Vec<_> = (0..192_u32)
                .map(|number| frame(target, source, 60 + number as usize * 1454 / 191, number))
                .collect();
            count += wanted.len();
            for frames in wanted.chunks(chain) {
                for id in from.send_chain(frames, 0) {
                    let status = from.send_status(id, Duration::from_secs(5));
                    ensure!(status == Some(NDIS_STATUS_SUCCESS), "a send ended with {status:x?}");
                }
            }
            let got = arrived(to, wanted.len());
            ensure!(got == wanted, "{} of {} frames arrived as they were sent", got.len(), wanted.len());
        }
    }
    let counters = hosts.sides.each_ref().map(|side| side.nic.counters());
    let mut text = format!("{count} frames arrived as they were sent");
    for (side, counters) in hosts.sides.iter().zip(counters) {
        let _ = write!(
            text,
            "; {}: {} frames, {} notifications, {} interrupts",
            side.driver.service(),
            counters.sent_frames + counters.received_frames,
            counters.notifications,
            counters.interrupts
        );
    }
    Ok(text)
}

/// Waits for test frames, and returns them; fewer when they do not come.
fn arrived(miniport: &Miniport, count: usize) -> Vec<Vec<u8>> {
    let receiver = miniport.clone();
    let wait = move || {
        let mut got = Vec::new();
        for _ in 0..1000 {
            got.extend(
                receiver.received().into_iter().filter(|frame| frame.get(12..14) == Some(&[0x88, 0xb5])),
            );
            if got.len() >= count {
                break;
            }
            sleep(1_000_000);
        }
        got
    };
    miniport.host().spawn("receiver", wait).join().unwrap_or_default()
}

/// Returns the states of the link that were indicated: whether it is connected.
fn link_states(indications: &[StatusIndication]) -> Vec<bool> {
    let states = indications.iter().filter(|indication| indication.code == NDIS_STATUS_LINK_STATE);
    // NDIS_LINK_STATE: a header of 4 bytes, then MediaConnectState, 1 if it is connected.
    states.filter_map(|state| Some(state.buffer.get(4..8)? == [1, 0, 0, 0])).collect()
}

fn link(hosts: &mut TwoHosts) -> Result<String> {
    let miniport = hosts.sides[0].miniport()?;
    let nic = hosts.sides[0].nic.clone();
    let before = miniport.indications().len();
    for up in [false, true, false, true] {
        nic.set_link(up);
        pause_for(&miniport, Duration::from_millis(50));
    }
    let states = link_states(&miniport.indications()[before..]);
    ensure!(states == [false, true, false, true], "the link states that were indicated: {states:?}");
    Ok(format!("link down and up indicated twice; {}", exchange(hosts)?))
}

fn pause_for(miniport: &Miniport, time: Duration) {
    let _ = miniport.host().spawn("wait", move || sleep(time.as_nanos() as u64)).join();
}

fn pause(hosts: &mut TwoHosts) -> Result<String> {
    for _ in 0..5 {
        let (near, far) = (hosts.sides[0].miniport()?, hosts.sides[1].miniport()?);
        let frames: Vec<_> =
            (0..100).map(|number| frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], 600, number)).collect();
        let back: Vec<_> =
            (0..100).map(|number| frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], 600, number)).collect();
        let ids = near.send_chain(&frames, 7);
        let others = far.send_chain(&back, 0);
        near.pause()?;
        for id in ids {
            ensure!(near.send_status(id, Duration::ZERO).is_some(), "paused, and a send is not completed");
        }
        near.restart()?;
        for id in others {
            ensure!(
                far.send_status(id, Duration::from_secs(5)).is_some(),
                "a send of the peer is not completed"
            );
        }
    }
    Ok(format!("paused five times; {}", exchange(hosts)?))
}

fn cancel(hosts: &mut TwoHosts) -> Result<String> {
    let near = hosts.sides[0].miniport()?;
    let frames: Vec<_> =
        (0..100).map(|number| frame([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1], 600, number)).collect();
    let ids = near.send_chain(&frames, 7);
    near.cancel_sends(7);
    for id in ids {
        ensure!(near.send_status(id, Duration::from_secs(5)).is_some(), "a cancelled send is not completed");
    }
    near.cancel_sends(7);
    exchange(hosts)
}

fn halt(hosts: &mut TwoHosts) -> Result<String> {
    for _ in 0..3 {
        exchange(hosts)?;
        hosts.sides[0].halt()?;
        hosts.sides[0].start_adapter()?;
    }
    Ok(format!("started four times; {}", exchange(hosts)?))
}

fn reset(hosts: &mut TwoHosts) -> Result<String> {
    let miniport = hosts.sides[0].miniport()?;
    let handlers = &miniport.adapter().driver.characteristics;
    let (asks, resets) = (handlers.CheckForHangHandlerEx.is_some(), handlers.ResetHandlerEx.is_some());
    if !asks {
        return Ok("it has no MiniportCheckForHangEx".into());
    }
    pause_for(&miniport, Duration::from_secs(30));
    let hangs = miniport.resets();
    ensure!(hangs == 0, "it said that it hangs {hangs} times in 30 s without load");
    let status = miniport.reset()?;
    let sentence = exchange(hosts)?;
    Ok(format!("not hung in 30 s; MiniportResetEx ({resets}) returned {status:#010x}; {sentence}"))
}

fn sleeps(hosts: &mut TwoHosts) -> Result<String> {
    let miniport = hosts.sides[0].miniport()?;
    let general = miniport.attributes().general.context("no general attributes")?;
    if general.PowerManagementCapabilitiesEx.is_null() {
        return Ok("it declares no power management: NDIS halts it instead".into());
    }
    for _ in 0..3 {
        miniport.sleep()?;
        miniport.wake()?;
    }
    Ok(format!("in D3 and back three times; {}", exchange(hosts)?))
}

fn shutdown(hosts: &mut TwoHosts) -> Result<String> {
    let sentence = exchange(hosts)?;
    hosts.sides[0].shut_down()?;
    Ok(sentence)
}

fn removal(hosts: &mut TwoHosts) -> Result<String> {
    let sentence = exchange(hosts)?;
    hosts.sides[0].remove_device()?;
    Ok(sentence)
}
