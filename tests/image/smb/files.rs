// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct between two hosts: a file goes to the peer and back by SMB2 requests, whose data the peer reads and writes by RDMA.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use device_sim::virtio_net::Features;
use lab::{
    copy::{End, Faults, Outcome, Plan, Protocol},
    image,
    smb_load::{self, Load},
    smb_tcp::Messages,
    tcp_stream::{self, Connection},
    testbed::{self, Testbed},
};
use ndk_abi::ndk::{
    NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED,
};
use ndk_consumer::{
    Access, Error, FastMemory, Memory, RemoteMemory, Status, endpoint::listen_for_one, transfer::Generated,
};
use smb_consumer::{Ending, Endings, Event, MemoryStore, Options, PORTS, Session, Side};
use smb_direct::{BufferDescriptor, Config, Reason};
use support::plans::{copied, run};

fn plan(bytes: u64, options: Options) -> Plan {
    Plan { protocol: Protocol::SmbDirect(options), ..Plan::of(bytes) }
}

/// Runs a plan with client and server linked, and with both in a driver. Each has to succeed.
fn copied_by_both(plan: &Plan) -> Vec<Outcome> {
    let Protocol::SmbDirect(options) = &plan.protocol else { panic!("a plan of linked sides") };
    let in_driver = |driver| {
        let protocol = Protocol::SmbDirectDriver(options.clone(), driver);
        copied(&Plan { protocol, ..plan.clone() })
    };
    copied(plan).into_iter().chain(lab::smb_driver().and_then(in_driver)).collect()
}

#[test]
fn requests_of_8_mib_arrive_complete_by_one_rdma_request_per_descriptor() {
    let options = Options { chunk: 8 << 20, outstanding: 2, ..Options::default() };
    for outcome in copied_by_both(&plan(24 << 20, options)) {
        // A fast registration holds 2 MiB.
        assert_eq!(outcome.operations["read"].succeeded, 12);
        assert_eq!(outcome.operations["write"].succeeded, 12);
        assert_eq!(outcome.operations["fast-register"].succeeded, 24);
        // Each response invalidates the first of four.
        assert_eq!(outcome.operations["invalidate"].succeeded, 18);
    }
}

#[test]
fn lengths_around_the_rdma_threshold_and_the_request_arrive_complete() {
    for bytes in [0, 1, 1340, 1341, 4095, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1, (2 << 20) + 4095] {
        if copied_by_both(&plan(bytes, Options::default())).is_empty() {
            return;
        }
    }
}

#[test]
fn file_with_64_requests_in_flight_arrives_complete() {
    let options = Options { chunk: 64 << 10, outstanding: 64, ..Options::default() };
    for outcome in copied_by_both(&plan(16 << 20, options)) {
        assert_eq!(outcome.operations["fast-register"].succeeded, 512);
        assert!(!outcome.operations.contains_key("invalidate"), "the responses invalidate");
    }
}

#[test]
fn endpoints_with_few_credits_do_not_stall() {
    for credits in [1, 2, 3] {
        let config = Config { receive_credit_max: credits, send_credit_target: credits, ..Config::default() };
        // 4000 bytes travel in messages: three fragments.
        let options = Options { config, chunk: 4000, outstanding: 16, ..Options::default() };
        if copied_by_both(&plan(100_000, options)).is_empty() {
            return;
        }
    }
}

#[test]
fn file_arrives_complete_at_each_path_mtu_and_with_loss() {
    for path_mtu in [1024, 4096] {
        for loss in [0.0, 0.01, 0.05] {
            let faults = Faults { loss, ..Faults::NONE };
            let plan = Plan { path_mtu, faults, ..plan(4 << 20, Options::default()) };
            for outcome in copied_by_both(&plan) {
                assert_eq!(outcome.wire.lost > 0, loss > 0.0);
            }
        }
    }
}

#[test]
fn file_arrives_complete_with_racing_threads() {
    copied_by_both(&Plan { real_time: true, ..plan(32 << 20, Options::default()) });
}

#[test]
fn both_sides_detect_a_lost_peer() {
    let plan = Plan { kill_peer_at: Some(0.5), ..plan(8 << 20, Options::default()) };
    let Some(outcome) = run(&plan) else { return };
    let End::PeerLost { moved, noticed_after } = outcome.end else { panic!("{:?}", outcome.end) };
    assert!((8 << 20..10 << 20).contains(&moved), "cut off after {moved} of {} bytes", 16 << 20);
    // An idle side sends a keepalive after 120 s.
    assert!(noticed_after < Duration::from_secs(130), "detected after {noticed_after:?}");
}

/// Copies 100,000 bytes to a server that listens at `port`, if any, by a client without a port number. Returns why it failed, if it did,
/// and the ends of connections of both sides.
fn copy_to_port(port: Option<u16>) -> Option<(Option<Error>, Arc<Endings>)> {
    let mut bed = Testbed::new(&image()?, &testbed::Options::default()).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 0));
    let options = Options::default();
    let endings = options.endings.clone();
    let ready = bed.event();
    let serving = port.map(|port| {
        let (ready, options) = (ready.clone(), options.clone());
        far.consumer("server", move |adapter| {
            let local = SocketAddr::new(remote.ip(), port);
            let mut store = MemoryStore::default();
            smb_consumer::serve(adapter, &options, local, &mut store, |_| ready.set(), &|_| {})
                .expect("a complete file");
        })
    });
    let is_served = serving.is_some();
    let copying = near.consumer("client", move |adapter| {
        assert!(!is_served || ready.wait(Duration::from_mins(1)));
        let file = vec![7; 100_000];
        smb_consumer::copy(adapter, &options, local, remote, "file", &file[..], &|_| {})
    });
    let copied = copying.join().expect("the client returns");
    if let Some(serving) = serving {
        serving.join().expect("the server returns");
    }
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
    Some((copied.err().map(|failure| failure.error), endings))
}

#[test]
fn client_tries_the_ports_in_turn_and_both_sides_trace_why_the_connection_ended() {
    for port in PORTS {
        let Some((error, endings)) = copy_to_port(Some(port)) else { return };
        assert!(error.is_none(), "port {port}: {error:?}");
        let ends: Vec<_> = endings.trace().map(|Ending { side, reason, .. }| (side, reason)).collect();
        let client = (Side::Active, Reason::Closed);
        let server = (Side::Passive, Reason::Disconnected);
        assert!(ends == [client, server] || ends == [server, client], "{ends:?}");
    }
}

#[test]
fn client_fails_if_no_port_is_open() {
    let Some((error, endings)) = copy_to_port(None) else { return };
    assert!(matches!(error, Some(Error::Connect(Status::CONNECTION_REFUSED))), "{error:?}");
    assert_eq!(endings.trace().count(), 0, "there was no connection");
}

#[test]
fn large_requests_reach_80_percent_of_the_rate_of_rdma_alone() {
    let Some(image) = image() else { return };
    for load in
        [Load { size: 1 << 20, outstanding: 8, count: 32 }, Load { size: 8 << 20, outstanding: 2, count: 8 }]
    {
        let smb = smb_load::smb_direct(&image, &load, false).expect("the transfers succeed");
        let rdma = smb_load::rdma(&image, &load, false).expect("the transfers succeed");
        for (smb, rdma) in smb.into_iter().zip(rdma) {
            assert!(5 * rdma.elapsed >= 4 * smb.elapsed, "{load:?}: {:?}, {:?}", smb.elapsed, rdma.elapsed);
        }
    }
}

/// Copies `length` bytes there and back over TCP, and compares them. Returns false if there is no image.
fn copied_over_tcp(bed_options: &testbed::Options, options: &Options, length: u64) -> bool {
    let Some(image) = image() else { return false };
    let mut bed = Testbed::new(&image, bed_options).expect("a testbed");
    bed.start().expect("both hosts start");
    let (for_client, for_server) = (options.clone(), options.clone());
    let client = move |connection: &mut Connection| {
        let source = Generated { seed: 1, bytes: length };
        smb_consumer::copy_over(&mut Messages::new(connection), &for_client, "file", &source, &|_| {})
    };
    let serve = move |connection: &mut Connection| {
        smb_consumer::serve_over(
            &mut Messages::new(connection),
            &for_server,
            &mut MemoryStore::default(),
            &|_| {},
        )
    };
    let (copied, served) = tcp_stream::run(&bed, client, serve).expect("a connection");
    let (copied, served) = (copied.expect("the client succeeds"), served.expect("the server succeeds"));
    assert_eq!((copied.bytes, served.bytes), (length, length));
    assert!(copied.digest.is_some());
    assert_eq!((served.digest, copied.returned), (copied.digest, copied.digest));
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    true
}

#[test]
fn file_arrives_complete_over_tcp_with_and_without_offloads() {
    for without in [Features::default(), Features::OFFLOADS] {
        let bed = testbed::Options { features: Features::DEFAULT.without(without), ..Default::default() };
        for (chunk, outstanding, length) in [(8 << 20, 2, 20 << 20), (4096, 64, 300_001), (1 << 20, 8, 0)] {
            if !copied_over_tcp(&bed, &Options { chunk, outstanding, ..Options::default() }, length) {
                return;
            }
        }
    }
}

#[test]
fn file_arrives_complete_over_tcp_with_loss() {
    let faults = Faults { loss: 0.01, ..Faults::NONE };
    let bed = testbed::Options { faults, ..testbed::Options::default() };
    copied_over_tcp(&bed, &Options::default(), 2 << 20);
}

#[test]
fn all_reads_of_a_request_but_the_last_are_deferred() {
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &testbed::Options::default()).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 445));
    let (ready, idle, nic) = (bed.event(), bed.event(), far.nic().clone());
    let listening = ready.clone();
    let serving = far.consumer("server", move |adapter| {
        let limit = Duration::from_mins(1);
        let connector = listen_for_one(adapter, remote, limit, |_| ready.set()).expect("a client");
        let mut session = Session::passive(adapter, &Options::default()).expect("a session");
        session.accept(connector).expect("the client negotiates");
        let Ok(Event::Message { bytes, .. }) = session.next_event() else { panic!("no message") };
        let (offset, token) = bytes.split_at(8);
        let offset = u64::from_le_bytes(offset.try_into().expect("an address"));
        let token = u32::from_le_bytes(token.try_into().expect("a token"));
        let memory = Memory::new(session.pd(), 4096, Access::LocalWrite).expect("memory");
        // Each descriptor is taken after those before the last one were posted.
        let mut sent = Vec::new();
        let descriptors = (0..4).map(|at| {
            let _ = idle.wait(Duration::from_millis(1));
            sent.push(nic.counters().sent_frames);
            BufferDescriptor { offset: offset + at * 1024, token, length: 1024 }
        });
        let posted = session.read(&memory, 0, descriptors, 1).expect("the reads are posted");
        assert_eq!((posted, sent.len()), (4, 4));
        assert!(sent.iter().all(|frames| *frames == sent[0]), "frames of deferred reads: {sent:?}");
        for _ in 0..posted {
            assert!(matches!(session.next_event(), Ok(Event::Done(1))));
        }
        session.send(vec![1], None).expect("the message is sent");
        let _ = session.close(Ok(()));
    });
    let connecting = near.consumer("client", move |adapter| {
        let _ = listening.wait(Duration::from_mins(1));
        let options = Options::default();
        let (mut session, _) = Session::reach(adapter, &options, local, remote).expect("a negotiation");
        let memory = FastMemory::new(session.pd(), 4096).expect("memory");
        session.register(&memory, Access::RemoteRead, 7).expect("the registration is posted");
        let RemoteMemory { address, token, .. } = memory.remote();
        let message = [&address.to_le_bytes()[..], &token.to_le_bytes()].concat();
        session.send(message, None).expect("the message is sent");
        assert!(matches!(session.next_event(), Ok(Event::Done(7))));
        assert!(matches!(session.next_event(), Ok(Event::Message { .. })));
        let _ = session.close(Ok(()));
    });
    connecting.join().expect("the client returns");
    serving.join().expect("the server returns");
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}

/// Returns the rows of the first table of `docs/smb.md`, section *Seen from Windows*: field, least value, value of the driver.
fn documented_limits() -> Vec<(String, u64, u64)> {
    let page = std::fs::read_to_string(lab::root().join("docs/smb.md")).expect("the page");
    let table = page.split_once("| `NDK_ADAPTER_INFO` |").expect("the table").1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = |at: usize| cells[at].parse().expect("a number");
        (cells[1].to_owned(), number(2), number(3))
    };
    rows.map(row).collect()
}

#[test]
fn limits_are_those_of_the_documentation_and_suffice_for_smb_direct() {
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &testbed::Options::default()).expect("a testbed");
    bed.start().expect("both hosts start");
    let asking = bed.machines()[0].consumer("client", |adapter| adapter.info().expect("an answer"));
    let info = asking.join().expect("the consumer returns");
    bed.stop().expect("both hosts stop");
    let rows = documented_limits();
    assert_eq!(rows.len(), 17);
    for (name, least, documented) in rows {
        let value = match name.as_str() {
            "MaxReceiveRequestSge" => info.MaxReceiveRequestSge.into(),
            "MaxInitiatorRequestSge" => info.MaxInitiatorRequestSge.into(),
            "MaxReadRequestSge" => info.MaxReadRequestSge.into(),
            "FRMRPageCount" => info.FRMRPageCount.into(),
            "MaxTransferLength" => info.MaxTransferLength.into(),
            "MaxRegistrationSize" => info.MaxRegistrationSize as u64,
            "MaxInboundReadLimit" => info.MaxInboundReadLimit.into(),
            "MaxOutboundReadLimit" => info.MaxOutboundReadLimit.into(),
            "MaxReceiveQueueDepth" => info.MaxReceiveQueueDepth.into(),
            "MaxInitiatorQueueDepth" => info.MaxInitiatorQueueDepth.into(),
            "MaxCqDepth" => info.MaxCqDepth.into(),
            "MaxInlineDataSize" => info.MaxInlineDataSize.into(),
            "MaxSrqDepth" => info.MaxSrqDepth.into(),
            "LargeRequestThreshold" => info.LargeRequestThreshold.into(),
            "MaxCallerData" => info.MaxCallerData.into(),
            "MaxCalleeData" => info.MaxCalleeData.into(),
            "RdmaTechnology" => u64::from(info.RdmaTechnology.0.unsigned_abs()),
            other => panic!("there is no field {other}"),
        };
        assert_eq!(value, documented, "{name}");
        assert!(value >= least, "{name} is {value}, but {least} are needed");
    }
    let flags =
        NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED;
    assert_eq!(info.AdapterFlags & flags, flags);
}
