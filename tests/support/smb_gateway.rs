// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct for SMB implementations without RDMA: a gateway on each of two hosts, a client behind one and a server behind the other.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use lab::{
    image,
    os::SimOs,
    testbed::{self, Testbed},
};
use ndk_consumer::{Adapter, Error, endpoint::listen_for_one};
use smb_consumer::{
    Options,
    gateway::{self, Counts, Plain},
    smb2::{Command, Request, RequestBody, Response, ResponseBody, WriteData, status},
};
use smb_direct::{Channel, Config};

pub const FILE: [u8; 16] = [9; 16];

/// Offset of `Flags` in a message, and `SMB2_FLAGS_SIGNED`.
pub const FLAGS: usize = 16;
pub const SIGNED: u8 = 8;

/// A client: sends its requests at once, and closes the connection after the last response.
#[derive(Clone)]
pub struct Requests {
    pub waiting: Arc<Mutex<VecDeque<Vec<u8>>>>,
    pub responses: Arc<Mutex<Vec<Vec<u8>>>>,
    /// Responses to expect, interim ones included.
    pub expected: usize,
}

impl Plain for Requests {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.responses.lock().unwrap().push(message.to_vec());
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.responses.lock().unwrap().len() >= self.expected {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.waiting.lock().unwrap().pop_front())
    }
}

/// A server of one file: answers each request with an interim response and the response proper.
#[derive(Clone, Default)]
pub struct FileServer {
    pub content: Arc<Mutex<Vec<u8>>>,
    pub responses: VecDeque<Vec<u8>>,
    /// Bytes that it returns beyond those that a READ asks for.
    pub excess: usize,
}

impl Plain for FileServer {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let request = Request::parse(message).expect("a request");
        let message_id = request.message_id;
        let mut content = self.content.lock().unwrap();
        let (command, body) = match request.body {
            RequestBody::Write { offset, data: WriteData::Message(data), .. } => {
                let from = offset as usize;
                let end = content.len().max(from + data.len());
                content.resize(end, 0);
                content[from..from + data.len()].copy_from_slice(data);
                (Command::Write, ResponseBody::Write { count: data.len() as u32 })
            }
            RequestBody::Read { offset, length, channel: Channel::None, channel_info: [], .. } => {
                let rest = content.get(offset as usize..).unwrap_or_default();
                let data = &rest[..rest.len().min(length as usize + self.excess)];
                let command = Command::Read;
                if data.is_empty() {
                    (command, ResponseBody::Error { command, status: status::END_OF_FILE })
                } else {
                    (command, ResponseBody::Read { data, transferred: 0 })
                }
            }
            body => panic!("the gateway passed {body:?} on"),
        };
        let interim = ResponseBody::Error { command, status: status::PENDING };
        self.responses.push_back(Response { message_id, body: interim }.emit());
        self.responses.push_back(Response { message_id, body }.emit());
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.responses.pop_front())
    }
}

pub fn write(message_id: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let data = WriteData::Message(data);
    Request { message_id, body: RequestBody::Write { file: FILE, offset, data } }.emit()
}

pub fn read(message_id: u64, offset: u64, length: u32) -> Vec<u8> {
    let channel = Channel::None;
    Request { message_id, body: RequestBody::Read { file: FILE, offset, length, channel, channel_info: &[] } }
        .emit()
}

pub fn options() -> Options {
    let config = Config { max_read_write_size: 1 << 20, ..Config::default() };
    // Less memory than requests in flight.
    Options { config, chunk: 1 << 20, outstanding: 2, ..Options::default() }
}

pub type End = Result<Counts, Error>;

/// Runs `client` against the gateway of `server`. Returns how the gateway ended. The verifier must not find a violation.
pub fn serve<T: Send + 'static>(
    server: FileServer,
    client: impl FnOnce(&Arc<Adapter<SimOs>>, SocketAddr, SocketAddr) -> T + Send + 'static,
) -> Option<(T, End)> {
    let options = testbed::Options { verifier: true, ..testbed::Options::default() };
    let mut bed = Testbed::new(&image()?, &options).expect("a testbed");
    bed.start().expect("both hosts start");
    let [near, far] = bed.machines();
    let (local, remote) = (SocketAddr::new(near.address(), 0), SocketAddr::new(far.address(), 445));
    let ready = bed.event();
    let listening = ready.clone();
    let mut server = server;
    let serving = far.consumer("server", move |adapter| {
        let connector = listen_for_one(adapter, remote, Duration::from_mins(1), |_| ready.set())?;
        let (end, stats) = gateway::server(adapter, &self::options(), connector, &mut server);
        assert_eq!(stats.total().outstanding(), 0);
        end
    });
    let connecting = near.consumer("client", move |adapter| {
        let _ = listening.wait(Duration::from_mins(1));
        client(adapter, local, remote)
    });
    let result = connecting.join().expect("the client returns");
    let end = serving.join().expect("the gateway returns");
    bed.stop().expect("both hosts stop");
    assert!(bed.violations().is_empty(), "{:?}", bed.violations());
    Some((result, end))
}

/// The responses but interim ones, what the gateways counted, and the file.
pub type Exchanged = (Vec<Vec<u8>>, [Counts; 2], Vec<u8>);

/// Sends `requests` for a file of `content` through both gateways.
pub fn exchange(content: &[u8], requests: Vec<Vec<u8>>) -> Option<Exchanged> {
    let client = Requests {
        expected: 2 * requests.len(),
        waiting: Arc::new(Mutex::new(requests.into())),
        responses: Arc::default(),
    };
    let server = FileServer { content: Arc::new(Mutex::new(content.to_vec())), ..FileServer::default() };
    let mut plain = client.clone();
    let run = move |adapter: &Arc<Adapter<SimOs>>, local, remote| {
        let (end, stats) = gateway::client(adapter, &options(), local, remote, &mut plain);
        assert_eq!(stats.total().outstanding(), 0);
        end
    };
    let (near, far) = serve(server.clone(), run)?;
    let mut responses = client.responses.lock().unwrap().clone();
    let is_interim = |message: &Vec<u8>| {
        matches!(
            Response::parse(message),
            Some(Response { body: ResponseBody::Error { status: status::PENDING, .. }, .. })
        )
    };
    responses.retain(|message| !is_interim(message));
    responses.sort_by_key(|message| Response::parse(message).expect("a response").message_id);
    let content = server.content.lock().unwrap().clone();
    Some((responses, [near.expect("the client's gateway"), far.expect("the server's gateway")], content))
}
