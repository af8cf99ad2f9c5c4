// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct for SMB implementations without RDMA: a gateway on each of two hosts, a client behind one and a server behind the other.

use std::sync::{Arc, Mutex};

use lab::os::SimOs;
use ndk_consumer::{Adapter, Error};
use smb_consumer::{
    Options, Session,
    smb2::{Request, RequestBody, Response, ResponseBody, status},
};
use smb_direct::{BufferDescriptor, Channel};
use support::smb_gateway::{FILE, FLAGS, FileServer, SIGNED, exchange, read, serve, write};

#[test]
fn large_transfers_go_by_rdma_and_small_ones_in_messages() {
    let data: Vec<u8> = (0..(1 << 20) + 25).map(|at: u32| ((at * 7) >> 3) as u8).collect();
    let (large, small) = data.split_at(1 << 20);
    let writes = [write(1, 0, large), write(2, 1 << 20, small)];
    let Some((responses, counts, content)) = exchange(&[], writes.to_vec()) else { return };
    assert!(content == data, "the file is what was written");
    let written = |message_id, count| Response { message_id, body: ResponseBody::Write { count } }.emit();
    assert_eq!(responses, [written(1, 1 << 20), written(2, 25)]);
    for counts in counts {
        assert_eq!((counts.writes, counts.written_bytes, counts.reads), (1, 1 << 20, 0));
        assert_eq!(counts.messages, 6, "two requests, each with an interim response and a response");
    }
}

#[test]
fn reads_of_more_requests_than_memory_return_the_data() {
    let data: Vec<u8> = (0..65_536).map(|at: u32| ((at * 7) >> 3) as u8).collect();
    // 4095 bytes are below the threshold, and the last read begins at the end of the file.
    let reads = [(0, 65_536), (4096, 4096), (10, 4095), (60_000, 65_536), (0, 25), (65_536, 8192)];
    let requests = (1..).zip(reads).map(|(id, (offset, length))| read(id, offset, length)).collect();
    let Some((responses, counts, _)) = exchange(&data, requests) else { return };
    for ((offset, length), response) in reads.into_iter().zip(&responses) {
        let wanted = data.get(offset as usize..).unwrap_or_default();
        let wanted = &wanted[..wanted.len().min(length as usize)];
        match Response::parse(response).expect("a response").body {
            ResponseBody::Read { data, transferred: 0 } => assert!(data == wanted, "{length} at {offset}"),
            ResponseBody::Error { status: status::END_OF_FILE, .. } => assert_eq!(offset, 65_536),
            body => panic!("{body:?}"),
        }
    }
    let by_rdma = 65_536 + 4096 + (65_536 - 60_000);
    for counts in counts {
        assert_eq!((counts.reads, counts.read_bytes, counts.writes), (3, by_rdma, 0));
        assert_eq!(counts.longest, 65_536);
    }
    assert_eq!(counts[0].outstanding, 2, "as many as there is memory for");
}

#[test]
fn messages_that_cannot_be_changed_pass_as_they_are() {
    let mut signed = write(1, 0, &[5; 5000]);
    signed[FLAGS] |= SIGNED;
    let Some((_, counts, content)) = exchange(&[], vec![signed]) else { return };
    assert_eq!(content, [5; 5000]);
    assert_eq!(counts.map(|counts| counts.writes), [0, 0]);
}

/// Connects to the gateway of `server`, sends `requests`, and waits for the end of the connection.
fn refused(server: FileServer, requests: Vec<Vec<u8>>) -> Option<Error> {
    let run = |adapter: &Arc<Adapter<SimOs>>, local, remote| {
        let mut session = Session::active(adapter, &Options::default()).expect("a session");
        session.connect(local, remote).expect("the gateway negotiates");
        for request in requests {
            // Fails if the gateway has disconnected already.
            let _ = session.send(request, None);
        }
        while session.next_event().is_ok() {}
        let _ = session.close(Err::<(), _>(Error::PeerDisconnected));
    };
    let ((), end) = serve(server, run)?;
    Some(end.expect_err("a side broke the protocol"))
}

fn read_by_channel(length: u32, descriptors: &[BufferDescriptor]) -> Vec<u8> {
    let mut channel_info = Vec::new();
    for descriptor in descriptors {
        let mut bytes = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut bytes);
        channel_info.extend(bytes);
    }
    let (channel, channel_info) = (Channel::RdmaV1Invalidate, &channel_info[..]);
    Request {
        message_id: 1,
        body: RequestBody::Read { file: FILE, offset: 0, length, channel, channel_info },
    }
    .emit()
}

#[test]
fn requests_by_channel_that_cannot_be_served_end_the_connection() {
    let descriptor = |offset, length| BufferDescriptor { offset, token: 1, length };
    let one = [descriptor(0, 4 << 20)];
    let mut signed = read_by_channel(4096, &one);
    signed[FLAGS] |= SIGNED;
    for (requests, reason) in [
        (vec![read_by_channel(4096, &[])], "descriptors that do not hold the data"),
        (vec![read_by_channel(4096, &[descriptor(0, 4095)])], "descriptors that do not hold the data"),
        (vec![read_by_channel(4096, &[descriptor(u64::MAX, 4096)])], "descriptors that do not hold the data"),
        (vec![read_by_channel(0, &one)], "a request by channel for no data"),
        (vec![read_by_channel((1 << 20) + 1, &one)], "a transfer longer than MaxReadWriteSize"),
        (vec![signed], "a signed request by channel"),
    ] {
        let Some(error) = refused(FileServer::default(), requests) else { return };
        assert!(matches!(error, Error::Protocol(text) if text == reason), "{reason}: {error}");
    }
}

#[test]
fn server_that_returns_more_than_was_asked_for_ends_the_connection() {
    let descriptor = BufferDescriptor { offset: 0, token: 1, length: 4 << 20 };
    // Within what is left of the memory for transfers, and beyond it.
    for (length, excess) in [(4096, 1), (1 << 20, 1), (1 << 20, 2 << 20)] {
        let content = Arc::new(Mutex::new(vec![7; 4 << 20]));
        let server = FileServer { content, excess, ..FileServer::default() };
        let Some(error) = refused(server, vec![read_by_channel(length, &[descriptor])]) else { return };
        assert!(matches!(error, Error::Protocol("more data than were asked for")), "{length}: {error}");
    }
}
