// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client of QEMU's monitor protocol: what the device has been set to, and events that happen to it.
//!
//! Commands and replies are lines of JSON. QEMU also sends events, which are skipped.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::{Value, json};

/// Time limit of a reply.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to QEMU's monitor.
pub struct Qmp {
    stream: BufReader<UnixStream>,
}

impl Qmp {
    /// Waits for QEMU's greeting and accepts it.
    ///
    /// # Errors
    /// When QEMU does not reply.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut this = Self { stream: BufReader::new(stream) };
        let greeting = this.line()?;
        if greeting.get("QMP").is_none() {
            return Err(unexpected(&greeting));
        }
        this.execute("qmp_capabilities", &json!({}))?;
        Ok(this)
    }

    /// Executes a command and returns what it returns.
    ///
    /// # Errors
    /// When QEMU refuses it, or does not reply.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> io::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes())?;
        loop {
            let mut reply = self.line()?;
            if reply.get("event").is_some() {
                continue;
            }
            return match reply.get_mut("return") {
                Some(value) => Ok(value.take()),
                None => Err(unexpected(&reply)),
            };
        }
    }

    fn line(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU closed the monitor connection"));
        }
        Ok(serde_json::from_str(&line)?)
    }
}

fn unexpected(reply: &Value) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the monitor replied {reply}"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn events_are_skipped_and_refused_commands_are_errors() {
        let (client, mut server) = UnixStream::pair().expect("sockets");
        let server = thread::spawn(move || {
            let replies = "{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"RESET\"}\n{\"return\": [7]}\n\
                           {\"error\": {\"class\": \"CommandNotFound\"}}\n";
            server.write_all(replies.as_bytes()).expect("the client is connected");
            io::read_to_string(server).expect("text")
        });
        let mut qmp = Qmp::new(client).expect("a greeting");
        assert_eq!(qmp.execute("query-x", &json!({ "name": "net0" })).expect("a reply"), json!([7]));
        let refused = qmp.execute("query-y", &json!({})).expect_err("refused");
        assert!(refused.to_string().contains("CommandNotFound"), "{refused}");
        drop(qmp);
        let sent = server.join().expect("no panic");
        let names: Vec<_> = sent.lines().map(|line| line.contains("query-x")).collect();
        assert_eq!(names, [false, true, false]);
    }
}
