// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct between two hosts: a file goes to the peer and back by SMB2 requests, whose data the peer reads and writes by RDMA.

#![cfg(target_os = "linux")]

mod plans;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lab::{
    copy::{End, Faults, Plan, Protocol},
    image,
    os::SimOs,
    testbed::{self, Testbed},
};
use ndk_consumer::{
    Adapter, Error,
    endpoint::{Endpoint, EndpointConfig},
};
use plans::{copied, run};
use smb_consumer::{
    Event, Options, Session,
    smb2::{Request, RequestBody, Response, ResponseBody, WriteData, status},
};
use smb_direct::{BufferDescriptor, Channel, Config, Reason};

fn plan(bytes: u64, options: Options) -> Plan {
    Plan { protocol: Protocol::SmbDirect(options), ..Plan::of(bytes) }
}

#[test]
fn requests_of_8_mib_arrive_complete_by_one_rdma_request_per_descriptor() {
    let options = Options { chunk: 8 << 20, outstanding: 2, ..Options::default() };
    let Some(outcome) = copied(&plan(24 << 20, options)) else { return };
    // A fast registration holds 2 MiB.
    assert_eq!(outcome.operations["read"].succeeded, 12);
    assert_eq!(outcome.operations["write"].succeeded, 12);
    assert_eq!(outcome.operations["fast-register"].succeeded, 24);
    // Each response invalidates the first of four.
    assert_eq!(outcome.operations["invalidate"].succeeded, 18);
}

#[test]
fn lengths_around_the_rdma_threshold_and_the_request_arrive_complete() {
    for bytes in [0, 1, 1340, 1341, 4095, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1, (2 << 20) + 4095] {
        if copied(&plan(bytes, Options::default())).is_none() {
            return;
        }
    }
}

#[test]
fn file_with_64_requests_in_flight_arrives_complete() {
    let options = Options { chunk: 64 << 10, outstanding: 64, ..Options::default() };
    let Some(outcome) = copied(&plan(16 << 20, options)) else { return };
    assert_eq!(outcome.operations["fast-register"].succeeded, 512);
    assert!(!outcome.operations.contains_key("invalidate"), "the responses invalidate");
}

#[test]
fn endpoints_with_few_credits_do_not_stall() {
    for credits in [1, 2, 3] {
        let config = Config { receive_credit_max: credits, send_credit_target: credits, ..Config::default() };
        // 4000 bytes travel in messages: three fragments.
        let options = Options { config, chunk: 4000, outstanding: 16, ..Options::default() };
        if copied(&plan(100_000, options)).is_none() {
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
            let Some(outcome) = copied(&plan) else { return };
            assert_eq!(outcome.wire.lost > 0, loss > 0.0);
        }
    }
}

#[test]
fn file_arrives_complete_with_racing_threads() {
    copied(&Plan { real_time: true, ..plan(32 << 20, Options::default()) });
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

/// Runs `client` against the server. Returns the error with which the server ends. The verifier must not find a leak.
fn refused(
    client: impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) + Send + 'static,
) -> Option<Error> {
    let options = testbed::Options { verifier: true, ..testbed::Options::default() };
    let mut bed = Testbed::new(&image()?, &options).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 445));
    let ready = bed.event();
    let listening = ready.clone();
    let serving = far.consumer("server", move |adapter| {
        smb_consumer::serve(adapter, &Options::default(), remote, |_| ready.set(), &|_| {})
    });
    let connecting = near.consumer("client", move |adapter| {
        let _ = listening.wait(Duration::from_mins(1));
        client(adapter, local, remote);
    });
    connecting.join().expect("the client returns");
    let failure = serving.join().expect("the server returns").expect_err("the peer broke the protocol");
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
    Some(failure.error)
}

/// Connects without SMB Direct, sends `message`, if any, and waits for the end of the connection.
fn send_raw(adapter: &Arc<Adapter<SimOs>>, local: SocketAddr, remote: SocketAddr, message: Option<&[u8]>) {
    let config = EndpointConfig { requests: 4, receives: 4, message: 512 };
    let mut endpoint = Endpoint::new(adapter, config).expect("an endpoint");
    endpoint.connect(local, remote, &[]).expect("the server accepts");
    if let Some(message) = message {
        endpoint.send(message, 0).expect("the message is posted");
    }
    while endpoint.wait().is_ok() {}
    let _ = endpoint.close(Err::<(), _>(Error::PeerDisconnected));
}

/// Connects and creates a file, sends what `request` returns for it, and returns the next response, if any.
fn send_request(
    adapter: &Arc<Adapter<SimOs>>,
    local: SocketAddr,
    remote: SocketAddr,
    request: impl FnOnce([u8; 16]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let mut session = Session::active(adapter, &Config::default()).expect("a session");
    session.connect(local, remote).expect("the server negotiates");
    let create = Request { message_id: 1, body: RequestBody::Create { name: "file".into() } };
    session.send(create.emit(), None).expect("the request is sent");
    let Ok(Event::Message { bytes, .. }) = session.next_event() else { panic!("no response") };
    let Some(Response { body: ResponseBody::Create { file }, .. }) = Response::parse(&bytes) else {
        panic!("no file");
    };
    session.send(request(file), None).expect("the request is sent");
    let response = match session.next_event() {
        Ok(Event::Message { bytes, .. }) => Some(bytes),
        _ => None,
    };
    let _ = session.close(Ok(()));
    response
}

/// Returns a WRITE of `length` bytes at `offset` with these descriptors.
fn write_request(file: [u8; 16], offset: u64, length: u32, descriptors: &[BufferDescriptor]) -> Vec<u8> {
    let mut channel_info = Vec::new();
    for descriptor in descriptors {
        let mut bytes = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut bytes);
        channel_info.extend(bytes);
    }
    let data = WriteData::Channel { channel: Channel::RdmaV1Invalidate, channel_info: &channel_info, length };
    Request { message_id: 2, body: RequestBody::Write { file, offset, data } }.emit()
}

#[test]
fn message_that_is_no_negotiation_ends_the_connection() {
    let error = refused(|adapter, local, remote| send_raw(adapter, local, remote, Some(&[0; 3])));
    let Some(error) = error else { return };
    assert!(matches!(error, Error::Protocol(text) if text == Reason::Truncated.text()), "{error}");
}

#[test]
fn peer_that_does_not_negotiate_is_disconnected() {
    let error = refused(|adapter, local, remote| send_raw(adapter, local, remote, None));
    let Some(error) = error else { return };
    assert!(matches!(error, Error::Protocol(text) if text == Reason::NegotiationTimeout.text()), "{error}");
}

#[test]
fn memory_that_is_not_registered_ends_the_connection() {
    let error = refused(|adapter, local, remote| {
        let descriptor = BufferDescriptor { offset: 0x1000, token: 0x1234_5678, length: 4096 };
        let write = |file| write_request(file, 0, 4096, &[descriptor]);
        assert_eq!(send_request(adapter, local, remote, write), None);
    });
    let Some(error) = error else { return };
    assert!(matches!(error, Error::Connection(_)), "{error}");
}

#[test]
fn descriptors_that_overflow_or_are_too_short_are_refused() {
    let descriptor = |offset, length| BufferDescriptor { offset, token: 1, length };
    for (offset, length, descriptors) in [
        (0, 4096, vec![]),
        (0, 4096, vec![descriptor(0, 4095)]),
        (0, 4096, vec![descriptor(u64::MAX, 4096)]),
        (0, 4096, vec![descriptor(0, u32::MAX), descriptor(0, 1)]),
        (0, 4096, vec![descriptor(0, 4096); 17]),
        // Far behind the end of the file.
        (1 << 40, 4096, vec![descriptor(0, 4096)]),
        (u64::MAX, 4096, vec![descriptor(0, 4096)]),
        // More than the server's memory for one request.
        (0, (1 << 20) + 1, vec![descriptor(0, 2 << 20)]),
    ] {
        let error = refused(move |adapter, local, remote| {
            let write = |file| write_request(file, offset, length, &descriptors);
            let response = send_request(adapter, local, remote, write).expect("a response");
            let Some(Response { body: ResponseBody::Error { status, .. }, .. }) = Response::parse(&response)
            else {
                panic!("the request was accepted");
            };
            assert_eq!(status, status::INVALID_PARAMETER);
        });
        let Some(error) = error else { return };
        // The client leaves without closing the file.
        assert!(matches!(error, Error::PeerDisconnected), "{error}");
    }
}
