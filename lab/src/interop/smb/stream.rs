// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB2 messages on TCP: each after four bytes, a type and the length ([MS-SMB2] 2.1).

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use smb_consumer::{gateway::Plain, smb2::rewrite::transfer_response};

/// Messages that are read ahead.
const AHEAD: usize = 64;
/// Longest time that a response is held.
const HOLD: Duration = Duration::from_secs(2);
/// Time limit for the other side to take a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, and a thread that reads it.
pub struct Stream {
    connection: TcpStream,
    received: mpsc::Receiver<io::Result<Vec<u8>>>,
    hold: Hold,
}

/// Responses to READ and WRITE that are held until there is a number of them, as if the server was slow.
struct Hold {
    /// This number; 1 to hold none.
    until: usize,
    held: VecDeque<Vec<u8>>,
    /// The moment at which all are released.
    deadline: Option<Instant>,
    /// Held responses that are to be returned now.
    released: usize,
}

impl Stream {
    /// Starts to read a connection.
    pub fn new(connection: TcpStream) -> io::Result<Self> {
        connection.set_nonblocking(false)?;
        connection.set_nodelay(true)?;
        connection.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let mut reader = connection.try_clone()?;
        let (sender, received) = mpsc::sync_channel(AHEAD);
        // Ends with the connection, or when its messages are no longer taken.
        thread::spawn(move || {
            loop {
                let message = read(&mut reader);
                let is_last = message.is_err();
                if sender.send(message).is_err() || is_last {
                    return;
                }
            }
        });
        let hold = Hold { until: 1, held: VecDeque::new(), deadline: None, released: 0 };
        Ok(Self { connection, received, hold })
    }

    /// Holds responses to READ and WRITE until there are `count`, or for two seconds.
    pub fn holding(mut self, count: usize) -> Self {
        self.hold.until = count;
        self
    }
}

impl Hold {
    fn push(&mut self, message: Vec<u8>) {
        self.held.push_back(message);
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + HOLD);
        if self.held.len() >= self.until || Instant::now() >= deadline {
            self.release();
        }
    }

    fn release(&mut self) {
        self.released = self.held.len();
        self.deadline = None;
    }

    /// Returns a message that is held no longer.
    fn pop(&mut self) -> Option<Vec<u8>> {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.release();
        }
        self.released = self.released.checked_sub(1)?;
        self.held.pop_front()
    }
}

fn read(reader: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let mut header = [0; 4];
        reader.read_exact(&mut header)?;
        let [kind, length @ ..] = header;
        let [a, b, c] = length.map(usize::from);
        let mut message = vec![0; a << 16 | b << 8 | c];
        reader.read_exact(&mut message)?;
        // Others are keepalives of NetBIOS.
        if kind == 0 {
            return Ok(message);
        }
    }
}

impl Plain for Stream {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).ok().filter(|length| *length < 1 << 24);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        self.connection.write_all(&[&length.to_be_bytes(), message].concat())
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(message) = self.hold.pop() {
            return Ok(Some(message));
        }
        match self.received.try_recv() {
            Ok(Ok(message)) if self.hold.until > 1 && transfer_response(&message).is_some() => {
                self.hold.push(message);
                Ok(self.hold.pop())
            }
            Ok(message) => message.map(Some),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // An error means that the connection has ended.
        drop(self.connection.shutdown(Shutdown::Both));
    }
}

/// Returns a connection if one has arrived.
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, std::net::SocketAddr)>> {
    listener.set_nonblocking(true)?;
    match listener.accept() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        accepted => accepted.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use smb_consumer::smb2::{Response, ResponseBody};

    use super::*;

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a listener");
        let other = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (connection, _) = listener.accept().expect("a connection");
        (Stream::new(connection).expect("a thread"), other)
    }

    fn wait(stream: &mut Stream) -> io::Result<Vec<u8>> {
        loop {
            match stream.receive()? {
                Some(message) => return Ok(message),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn messages_have_a_length_and_keepalives_are_left_out() {
        let (mut stream, mut other) = pair();
        stream.send(&vec![7; 0x01_02_03]).expect("sent");
        let mut bytes = vec![0; 4 + 0x01_02_03];
        other.read_exact(&mut bytes).expect("a message");
        assert_eq!(bytes[..5], [0, 1, 2, 3, 7]);
        other.write_all(&[0x85, 0, 0, 0, 0, 0, 0, 2, 8, 9]).expect("written");
        assert_eq!(wait(&mut stream).expect("a message"), [8, 9]);
    }

    #[test]
    fn responses_to_transfers_are_held_until_there_are_enough() {
        let (stream, mut other) = pair();
        let mut stream = stream.holding(2);
        let response = |message_id| {
            let body = ResponseBody::Write { count: 1 };
            Response { message_id, body }.emit()
        };
        let messages = [response(1), b"other".to_vec(), response(2)];
        for message in &messages {
            other.write_all(&[0, 0, 0, message.len() as u8]).expect("written");
            other.write_all(message).expect("written");
        }
        let start = Instant::now();
        let [first, second, third] = messages;
        for expected in [second, first, third.clone()] {
            assert_eq!(wait(&mut stream).expect("a message"), expected);
        }
        assert!(start.elapsed() < HOLD);
        other.write_all(&[0, 0, 0, third.len() as u8]).expect("written");
        other.write_all(&third).expect("written");
        assert_eq!(wait(&mut stream).expect("a message"), third);
        assert!(start.elapsed() >= HOLD);
    }

    #[test]
    fn end_is_reported_after_the_last_message() {
        let (mut stream, mut other) = pair();
        other.write_all(&[0, 0, 0, 1, 5]).expect("written");
        drop(other);
        assert_eq!(wait(&mut stream).expect("a message"), [5]);
        for _ in 0..2 {
            assert_eq!(wait(&mut stream).expect_err("the end").kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
