// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB2 messages on TCP: each after four bytes, a type and the length ([MS-SMB2] 2.1).

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use smb_consumer::gateway::Plain;

/// Messages that are read ahead.
const AHEAD: usize = 64;
/// Time limit for the other side to take a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, and a thread that reads it.
pub struct Stream {
    connection: TcpStream,
    received: mpsc::Receiver<io::Result<Vec<u8>>>,
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
        Ok(Self { connection, received })
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
        match self.received.try_recv() {
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
        stream.send(&[7; 0x01_02_03]).expect("sent");
        let mut bytes = vec![0; 4 + 0x01_02_03];
        other.read_exact(&mut bytes).expect("a message");
        assert_eq!(bytes[..5], [0, 1, 2, 3, 7]);
        other.write_all(&[0x85, 0, 0, 0, 0, 0, 0, 2, 8, 9]).expect("written");
        assert_eq!(wait(&mut stream).expect("a message"), [8, 9]);
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
