// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that break SMB Direct, and requests that a server cannot serve: the connection ends with a reason, or the request with a status, and
//! other connections go on.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lab::{
    image,
    os::SimOs,
    testbed::{self, Testbed},
};
use ndk_consumer::{
    Adapter, Error,
    endpoint::{Endpoint, EndpointConfig},
};
use smb_consumer::{
    Ending, Event, MemoryStore, Options, Session, Side,
    smb2::{Request, RequestBody, Response, ResponseBody, WriteData},
};
use smb_direct::{BufferDescriptor, Channel, Config, Reason};

/// Runs `client` against a server of these options, while another client copies a file. Returns the error with which the server ends.
/// The verifier must not find a leak.
pub fn refused_by(
    options: &Options,
    client: impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) + Send + 'static,
) -> Option<Error> {
    let options = options.clone();
    let bed_options = testbed::Options { verifier: true, ..testbed::Options::default() };
    let mut bed = Testbed::new(&image()?, &bed_options).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 445));
    let other = SocketAddr::new(far.address(), 5445);
    let [ready, other_ready] = [bed.event(), bed.event()];
    let [listening, other_listening] = [ready.clone(), other_ready.clone()];
    let serving = far.consumer("server", move |adapter| {
        let mut store = MemoryStore::default();
        smb_consumer::serve(adapter, &options, remote, &mut store, |_| ready.set(), &|_| {})
    });
    let serving_other = far.consumer("other server", move |adapter| {
        let mut store = MemoryStore::default();
        smb_consumer::serve(adapter, &Options::default(), other, &mut store, |_| other_ready.set(), &|_| {})
    });
    let connecting = near.consumer("client", move |adapter| {
        let _ = listening.wait(Duration::from_mins(1));
        client(adapter, local, remote);
    });
    let copying = near.consumer("other client", move |adapter| {
        let _ = other_listening.wait(Duration::from_mins(1));
        let file = vec![0xA5; 300_000];
        smb_consumer::copy(adapter, &Options::default(), local, other, "file", &file[..], &|_| {})
    });
    connecting.join().expect("the client returns");
    let failure = serving.join().expect("the server returns").expect_err("the peer broke the protocol");
    let copied = copying.join().expect("the other client returns").expect("its copy is complete");
    let served = serving_other.join().expect("the other server returns").expect("its file is complete");
    assert!(copied.digest.is_some() && copied.digest == served.digest);
    let report = &failure.report.stats;
    assert_eq!((report.total().outstanding(), report.unexpected), (0, 0));
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
    Some(failure.error)
}

/// Asserts that a server of the default options refuses a client.
pub fn refused(
    client: impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) + Send + 'static,
) -> Option<Error> {
    refused_by(&Options::default(), client)
}

/// Asserts that a server of few credits refuses a client. Fails unless the server counts this reason alone.
pub fn ends_with(
    reason: Reason,
    client: impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) + Send + 'static,
) -> Option<Error> {
    let config = Config { receive_credit_max: 8, ..Config::default() };
    let options = Options { config, ..Options::default() };
    let error = refused_by(&options, client)?;
    let ends: Vec<_> = options.endings.trace().map(|Ending { side, reason, .. }| (side, reason)).collect();
    assert_eq!(ends, [(Side::Passive, reason)], "{error}");
    assert_eq!(options.endings.count(reason), 1);
    Some(error)
}

/// Connects without SMB Direct, sends `message`, if any, and waits for the end of the connection.
pub fn send_raw(
    adapter: &Arc<Adapter<SimOs>>,
    local: SocketAddr,
    remote: SocketAddr,
    message: Option<&[u8]>,
) {
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
pub fn send_request(
    adapter: &Arc<Adapter<SimOs>>,
    local: SocketAddr,
    remote: SocketAddr,
    request: impl FnOnce([u8; 16]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let mut session = Session::active(adapter, &Options::default()).expect("a session");
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
pub fn write_request(file: [u8; 16], offset: u64, length: u32, descriptors: &[BufferDescriptor]) -> Vec<u8> {
    let mut channel_info = Vec::new();
    for descriptor in descriptors {
        let mut bytes = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut bytes);
        channel_info.extend(bytes);
    }
    let data = WriteData::Channel { channel: Channel::RdmaV1Invalidate, channel_info: &channel_info, length };
    Request { message_id: 2, body: RequestBody::Write { file, offset, data } }.emit()
}
