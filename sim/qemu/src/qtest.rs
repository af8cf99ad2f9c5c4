// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client of QEMU's qtest protocol: accesses to the machine's memory and ports, as its processor would make them.
//!
//! Commands and replies are lines of text; each command waits for its reply.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use trapped_access::Width;

/// Time limit of a reply. QEMU replies within microseconds unless the machine is overloaded.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to QEMU's qtest server.
pub struct Qtest {
    stream: BufReader<UnixStream>,
}

impl Qtest {
    /// # Errors
    /// When the time limit of replies cannot be set.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Reads `width` bytes of memory or of a memory BAR.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn read(&mut self, address: u64, width: Width) -> io::Result<u64> {
        let reply = self.command(&format!("read{} {address:#x}", suffix(width)))?;
        Ok(number(&reply)? & width.all_ones())
    }

    /// Writes `width` bytes of memory or of a memory BAR.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn write(&mut self, address: u64, width: Width, value: u64) -> io::Result<()> {
        let value = value & width.all_ones();
        self.command(&format!("write{} {address:#x} {value:#x}", suffix(width))).map(drop)
    }

    /// Writes four bytes to a port.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn write_port(&mut self, port: u16, value: u32) -> io::Result<()> {
        self.command(&format!("outl {port:#x} {value:#x}")).map(drop)
    }

    /// Reads memory into `into`.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn read_bytes(&mut self, address: u64, into: &mut [u8]) -> io::Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let reply = self.command(&format!("read {address:#x} {:#x}", into.len()))?;
        let digits = reply.strip_prefix("0x").ok_or_else(|| unexpected(&reply))?;
        if digits.len() != 2 * into.len() {
            return Err(unexpected(&reply));
        }
        for (at, byte) in into.iter_mut().enumerate() {
            let pair = digits.get(2 * at..2 * at + 2).ok_or_else(|| unexpected(&reply))?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| unexpected(&reply))?;
        }
        Ok(())
    }

    /// Sends a command and returns the value of its reply, empty if it has none.
    fn command(&mut self, command: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU closed the qtest connection"));
        }
        let value = line.trim_end().strip_prefix("OK").ok_or_else(|| unexpected(&line))?;
        Ok(value.trim_start().to_owned())
    }
}

/// Returns the letter of a command for accesses of this width.
const fn suffix(width: Width) -> char {
    match width {
        Width::Byte => 'b',
        Width::Word => 'w',
        Width::Dword => 'l',
        Width::Qword => 'q',
    }
}

fn number(reply: &str) -> io::Result<u64> {
    let digits = reply.strip_prefix("0x").ok_or_else(|| unexpected(reply))?;
    u64::from_str_radix(digits, 16).map_err(|_| unexpected(reply))
}

fn unexpected(reply: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("qtest replied {:?}", reply.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Runs `commands` against a server that makes these replies, and returns what it received.
    fn served<T>(replies: &'static str, commands: impl FnOnce(&mut Qtest) -> T) -> (T, String) {
        let (client, server) = UnixStream::pair().expect("sockets");
        let server = thread::spawn(move || {
            let mut server = server;
            server.write_all(replies.as_bytes()).expect("the client is connected");
            io::read_to_string(server).expect("text")
        });
        let result = commands(&mut Qtest::new(client).expect("a socket"));
        (result, server.join().expect("no panic"))
    }

    #[test]
    fn accesses_have_the_width_of_their_command() {
        let (values, sent) = served("OK 0xffffffffffffff12\nOK\nOK 0x0a1b\n", |qtest| {
            let byte = qtest.read(0x10, Width::Byte).expect("a reply");
            qtest.write(0x20, Width::Word, 0x1_2345).expect("a reply");
            let mut bytes = [0; 2];
            qtest.read_bytes(0x30, &mut bytes).expect("a reply");
            (byte, bytes)
        });
        assert_eq!(values, (0x12, [0x0a, 0x1b]));
        assert_eq!(sent, "readb 0x10\nwritew 0x20 0x2345\nread 0x30 0x2\n");
    }

    #[test]
    fn refused_command_and_end_of_the_connection_are_errors() {
        let (result, _) = served("FAIL Unknown command\n", |qtest| qtest.read(0, Width::Dword));
        assert_eq!(result.expect_err("refused").kind(), io::ErrorKind::InvalidData);
        let (result, _) = served("OK\n", |qtest| qtest.read(0, Width::Dword));
        assert_eq!(result.expect_err("no value").kind(), io::ErrorKind::InvalidData);
    }
}
