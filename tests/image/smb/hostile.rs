// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that break SMB Direct, and requests that a server cannot serve: the connection ends with a reason, or the request with a status, and
//! other connections go on.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use lab::{
    image,
    os::SimOs,
    testbed::{self, Testbed},
};
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::{
    Access, Adapter, Connector, Cq, Error, FastMemory, Listener, Memory, Pd, Qp, QpDepths, ReadLimits,
    RemoteMemory,
    endpoint::{Endpoint, EndpointConfig, EndpointEvent},
};
use smb_consumer::{
    Event, Options, Session,
    smb2::{Request, RequestBody, Response, ResponseBody, WriteData, status},
};
use smb_direct::{
    BufferDescriptor, Channel, Reason,
    wire::{DataTransfer, NegotiateRequest},
};
use support::smb_peers::{ends_with, refused, refused_by, send_raw, send_request, write_request};

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
        // Farther behind the end of the file than the server accepts.
        ((64 << 20) + 1, 4096, vec![descriptor(0, 4096)]),
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

/// A request that the server accepts.
const NEGOTIATION: NegotiateRequest = NegotiateRequest {
    min_version: 0x0100,
    max_version: 0x0100,
    credits_requested: 255,
    preferred_send_size: 1364,
    max_receive_size: 1364,
    max_fragmented_size: 1 << 20,
};

const HEADER: DataTransfer = DataTransfer {
    credits_requested: 255,
    credits_granted: 8,
    flags: 0,
    remaining_data_length: 0,
    data_offset: 0,
    data_length: 0,
};

fn message(header: DataTransfer, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [0; DataTransfer::LEN];
    header.emit(&mut bytes);
    [&bytes, rest].concat()
}

/// Connects without SMB Direct, negotiates if asked to, sends `messages`, and answers nothing until the connection ends.
fn misbehave(
    negotiation: Option<NegotiateRequest>,
    messages: Vec<Vec<u8>>,
) -> impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) + Send + 'static {
    move |adapter, local, remote| {
        let config = EndpointConfig { requests: 64, receives: 16, message: 16_384 };
        let mut endpoint = Endpoint::new(adapter, config).expect("an endpoint");
        endpoint.connect(local, remote, &[]).expect("the server accepts");
        if let Some(negotiation) = negotiation {
            let mut bytes = [0; NegotiateRequest::LEN];
            negotiation.emit(&mut bytes);
            endpoint.send(&bytes, 0).expect("the request is posted");
            while !matches!(endpoint.wait_for(Duration::from_secs(1)), Ok(Some(EndpointEvent::Message(_)))) {}
        }
        for message in messages {
            // Fails if the server has disconnected already.
            let _ = endpoint.send(&message, 0);
        }
        while endpoint.wait_for(Duration::from_secs(1)).is_ok() {}
        let _ = endpoint.close(Err::<(), _>(Error::PeerDisconnected));
    }
}

#[test]
fn each_violation_after_the_negotiation_ends_the_connection_with_its_reason() {
    let with = |change: &dyn Fn(&mut DataTransfer), rest: &[u8]| {
        let mut header = HEADER;
        change(&mut header);
        message(header, rest)
    };
    let fragment = |remaining| {
        with(&|h| (h.data_offset, h.data_length, h.remaining_data_length) = (24, 1, remaining), &[0; 5])
    };
    for (messages, reason) in [
        (vec![message(HEADER, &[])[..19].to_vec()], Reason::Truncated),
        (vec![message(HEADER, &[0; 8192 - 19])], Reason::Transport),
        (vec![with(&|h| h.credits_requested = 0, &[])], Reason::ZeroCredits),
        (vec![with(&|h| (h.data_offset, h.data_length) = (25, 1), &[0; 40])], Reason::Misaligned),
        (vec![with(&|h| (h.data_offset, h.data_length) = (16, 30), &[0; 40])], Reason::Overlap),
        (vec![with(&|h| (h.data_offset, h.data_length) = (24, u32::MAX), &[0; 40])], Reason::OutOfBounds),
        (vec![with(&|h| h.data_offset = 0xFFFF_FFF8, &[0; 40])], Reason::OutOfBounds),
        (vec![fragment(u32::MAX)], Reason::FragmentedTooLong),
        (vec![with(&|h| h.remaining_data_length = 1, &[])], Reason::EmptyFragment),
        (vec![fragment(3), fragment(3)], Reason::FragmentMismatch),
        // A server without a credit of its own cannot grant more than the eight of its response.
        (vec![with(&|h| h.credits_granted = 0, &[]); 9], Reason::CreditsOverdrawn),
        // A message whose rest never comes, and silence.
        (vec![fragment(1000)], Reason::KeepaliveTimeout),
        (vec![], Reason::KeepaliveTimeout),
    ] {
        if ends_with(reason, misbehave(Some(NEGOTIATION), messages)).is_none() {
            return;
        }
    }
}

#[test]
fn each_violation_of_the_negotiation_ends_the_connection_with_its_reason() {
    let with = |change: &dyn Fn(&mut NegotiateRequest)| {
        let mut request = NEGOTIATION;
        change(&mut request);
        let mut bytes = [0; NegotiateRequest::LEN];
        request.emit(&mut bytes);
        bytes.to_vec()
    };
    // Data before the negotiation are taken for one, in which the bytes of the versions are a number of credits.
    for (first, reason) in [
        (message(HEADER, &[]), Reason::Version),
        (with(&|request| request.min_version = 0x0200), Reason::Version),
        (with(&|request| request.credits_requested = 0), Reason::ZeroCredits),
        (with(&|request| request.max_receive_size = 127), Reason::Size),
        (with(&|request| request.max_fragmented_size = 131_071), Reason::Size),
    ] {
        if ends_with(reason, misbehave(None, vec![first])).is_none() {
            return;
        }
    }
}

/// Opens a file on a server with room for one request, sends `requests`, which get the file's identifier and 4096 registered bytes, and
/// returns the bodies of the responses: the number of bytes written, or the status.
fn write_all(
    requests: impl Fn([u8; 16], BufferDescriptor) -> Vec<Vec<u8>> + Send + 'static,
) -> Option<Vec<Result<u32, u32>>> {
    let options = Options { outstanding: 1, ..Options::default() };
    let (responses, received) = std::sync::mpsc::channel();
    refused_by(&options, move |adapter, local, remote| {
        let (mut session, _) =
            Session::reach(adapter, &Options::default(), local, remote).expect("the server negotiates");
        let create = Request { message_id: 1, body: RequestBody::Create { name: "file".into() } };
        session.send(create.emit(), None).expect("the request is sent");
        let Ok(Event::Message { bytes, .. }) = session.next_event() else { panic!("no response") };
        let Some(Response { body: ResponseBody::Create { file }, .. }) = Response::parse(&bytes) else {
            panic!("no file");
        };
        let memory = FastMemory::new(session.pd(), 4096).expect("memory");
        session.register(&memory, Access::RemoteRead, 0).expect("the registration is posted");
        let RemoteMemory { address, token, .. } = memory.remote();
        let requests = requests(file, BufferDescriptor { offset: address, token, length: 4096 });
        let count = requests.len();
        for request in requests {
            session.send(request, None).expect("the request is sent");
        }
        let mut bodies = Vec::new();
        // Each completion ends a wait, too.
        for _ in 0..100 {
            if bodies.len() == count {
                break;
            }
            match session.next_event_within(Duration::from_secs(1)).expect("the connection is up") {
                Some(Event::Message { bytes, .. }) => bodies.push(match Response::parse(&bytes) {
                    Some(Response { body: ResponseBody::Write { count }, .. }) => Ok(count),
                    Some(Response { body: ResponseBody::Error { status, .. }, .. }) => Err(status),
                    other => panic!("{other:?}"),
                }),
                Some(Event::Done(_)) | None => {}
            }
        }
        responses.send(bodies).expect("the test waits");
        let _ = session.close(Ok(()));
        drop(memory);
    })?;
    Some(received.recv().expect("the client has sent them"))
}

#[test]
fn requests_that_wait_behind_refused_ones_are_served() {
    // The first occupies the only slot; the others wait, and the refused ones leave the slot to the last.
    let outcome = write_all(|file, memory| {
        let too_short = BufferDescriptor { length: 4095, ..memory };
        let write = |at: u64, memory| plain_write(file, at * 4096, &[memory]);
        vec![write(0, memory), write(1, too_short), write(2, too_short), write(3, memory)]
    });
    let Some(outcome) = outcome else { return };
    let refused = Err(status::INVALID_PARAMETER);
    assert_eq!(outcome, [Ok(4096), refused, refused, Ok(4096)]);
}

#[test]
fn write_may_begin_64_mib_behind_the_end_of_the_file_and_no_farther() {
    let outcome = write_all(|file, memory| {
        let write = |offset: u64| plain_write(file, offset, &[memory]);
        vec![write(64 << 20), write((128 << 20) + 4096), write((192 << 20) + 8193)]
    });
    let Some(outcome) = outcome else { return };
    assert_eq!(outcome, [Ok(4096), Ok(4096), Err(status::INVALID_PARAMETER)]);
}

/// Returns a WRITE of 4096 bytes at `offset` with these descriptors, whose tokens the response does not invalidate.
fn plain_write(file: [u8; 16], offset: u64, descriptors: &[BufferDescriptor]) -> Vec<u8> {
    let mut channel_info = Vec::new();
    for descriptor in descriptors {
        let mut bytes = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut bytes);
        channel_info.extend(bytes);
    }
    let data = WriteData::Channel { channel: Channel::RdmaV1, channel_info: &channel_info, length: 4096 };
    Request { message_id: 2, body: RequestBody::Write { file, offset, data } }.emit()
}

/// Bytes of memory of which a peer may write parts.
const MEMORY: usize = 3 * 4096 - 100;
/// The buffer of the posted receive: two parts of the memory.
const POSTED: [(usize, usize); 2] = [(4000, 200), (9000, 56)];
const PATTERN: u8 = 0x5C;

/// Connects a queue pair with one receive at [`POSTED`], in memory filled with [`PATTERN`] that the peer may write up to its end, and
/// has the peer run `attack` on its queue pair, with memory filled with ones. Returns the memory after what the peer has sent.
fn memory_after(
    attack: impl FnOnce(&Qp<SimOs>, &Memory<SimOs>, &RemoteMemory) + Send + 'static,
) -> Option<Vec<u8>> {
    const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
    const DEPTHS: QpDepths =
        QpDepths { receives: 4, requests: 4, receive_sges: 2, request_sges: 2, inline: 0 };
    let bed_options = testbed::Options { verifier: true, ..testbed::Options::default() };
    let mut bed = Testbed::new(&image()?, &bed_options).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 445));
    let (ready, done) = (bed.event(), bed.event());
    let [listening, attacked] = [ready.clone(), done.clone()];
    let announced: Arc<Mutex<Option<RemoteMemory>>> = Arc::default();
    let announcement = announced.clone();
    let serving = far.consumer("server", move |adapter| {
        let (cq, mut completions) = Cq::new(adapter, 16).expect("a completion queue");
        let pd = Pd::new(adapter).expect("a protection domain");
        let memory = Memory::new(&pd, MEMORY, Access::RemoteReadWrite).expect("memory");
        memory.store(0, &[PATTERN; MEMORY]);
        let qp = Qp::new(&pd, &cq, &cq, 0, &DEPTHS).expect("a queue pair");
        qp.receive(1, &POSTED.map(|(at, length)| memory.sge(at, length))).expect("the receive is posted");
        let listener = Listener::new(adapter, remote).expect("a listener");
        *announcement.lock().expect("no thread has panicked") = Some(memory.remote(MEMORY));
        ready.set();
        let mut connector = listener.next(Some(Duration::from_mins(1))).expect("a client");
        connector.accept(&qp, LIMITS, &[], completions.waker()).expect("the connection is accepted");
        let _ = attacked.wait(Duration::from_mins(1));
        let mut bytes = vec![0; MEMORY];
        memory.load(0, &mut bytes);
        let _ = connector.disconnect();
        let _ = qp.flush();
        while completions.poll(&mut [NDK_RESULT_EX::zeroed()]).is_ok_and(|taken| taken != 0) {}
        drop((connector, listener, qp, memory, completions, cq, pd));
        bytes
    });
    let attacking = near.consumer("client", move |adapter| {
        let _ = listening.wait(Duration::from_mins(1));
        let target = announced.lock().expect("no thread has panicked").take().expect("an announcement");
        let (cq, mut completions) = Cq::new(adapter, 16).expect("a completion queue");
        let pd = Pd::new(adapter).expect("a protection domain");
        let memory = Memory::new(&pd, MEMORY, Access::LocalRead).expect("memory");
        memory.store(0, &[1; MEMORY]);
        let qp = Qp::new(&pd, &cq, &cq, 0, &DEPTHS).expect("a queue pair");
        let mut connector = Connector::new(adapter).expect("a connector");
        connector.connect(&qp, local, remote, LIMITS, &[]).expect("the server accepts");
        connector.complete(completions.waker()).expect("the connection is established");
        attack(&qp, &memory, &target);
        let mut results = [NDK_RESULT_EX::zeroed()];
        let _ = completions.wait(&mut results, Duration::from_secs(10));
        // Time for a frame that the completion does not wait for.
        let _ = completions.wait(&mut results, Duration::from_millis(10));
        done.set();
        let _ = connector.disconnect();
        let _ = qp.flush();
        while completions.poll(&mut results).is_ok_and(|taken| taken != 0) {}
        drop((connector, qp, memory, completions, cq, pd));
    });
    attacking.join().expect("the client returns");
    let bytes = serving.join().expect("the server returns");
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
    Some(bytes)
}

#[test]
fn messages_change_no_byte_outside_the_posted_buffer() {
    // The length of the buffer is 256.
    for length in [200, 256, 257, 4096, 8192] {
        let memory = memory_after(move |qp, memory, _| {
            qp.send(1, &[memory.sge(0, length)], 0).expect("the message is posted");
        });
        let Some(memory) = memory else { return };
        let is_posted = |at: usize| POSTED.iter().any(|(from, length)| (*from..from + length).contains(&at));
        let changed = memory.iter().enumerate().filter(|(_, byte)| **byte != PATTERN);
        let outside = changed.clone().filter(|(at, _)| !is_posted(*at)).count();
        assert_eq!(outside, 0, "a message of {length} bytes");
        if length <= 256 {
            assert_eq!(changed.count(), length);
        }
    }
}

#[test]
fn writes_that_leave_registered_memory_change_no_byte() {
    let (end, most) = (MEMORY as u64, u64::MAX);
    for (offset, length) in [(end, 1), (end - 1, 2), (end - 5000, 5001), (most, 2), (most - 4095, 4096)] {
        let memory = memory_after(move |qp, memory, target| {
            // Without a check of this side: the region is as long as the request needs.
            let address = target.address.wrapping_add(offset);
            let target = RemoteMemory { address, token: target.token, length: length as u64 };
            qp.write(1, &[memory.sge(0, length)], &target, 0, 0).expect("the write is posted");
        });
        let Some(memory) = memory else { return };
        let changed = memory.iter().filter(|byte| **byte != PATTERN).count();
        assert_eq!(changed, 0, "{length} bytes at {offset:#x}");
    }
}
