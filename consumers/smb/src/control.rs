// SPDX-License-Identifier: MIT OR Apache-2.0

//! The IOCTLs of the driver that runs this crate: what to do, and what came of it. Fields are little-endian, without gaps.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use ndk_abi::nt::{FILE_DEVICE_UNKNOWN, FILE_READ_ACCESS, FILE_WRITE_ACCESS, METHOD_BUFFERED};
use ndk_consumer::stats::{OperationStats, RequestStats};
use ndk_consumer::transfer::{Digest, Failure, Report};
use ndk_consumer::{Error, Status};
use smb_direct::Config;

use crate::Options;

/// The device.
pub const DEVICE: &str = r"\Device\SmbDirect";

/// Serves one connection. Input: an [`Order`]; output: an [`Answer`].
pub const SERVE: u32 = code(0x800);
/// Writes generated data to a server and reads it back. Input: an [`Order`]; output: an [`Answer`].
pub const COPY: u32 = code(0x801);
/// Waits until a server listens. No input, no output.
pub const LISTENING: u32 = code(0x802);

/// `CTL_CODE` of an unknown device and the buffered method, for read and write access.
const fn code(function: u32) -> u32 {
    FILE_DEVICE_UNKNOWN << 16 | (FILE_READ_ACCESS | FILE_WRITE_ACCESS) << 14 | function << 2 | METHOD_BUFFERED
}

/// The order of one side of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// Index of the interface.
    pub interface: u32,
    pub local: SocketAddr,
    /// The server; of no meaning to the server.
    pub remote: SocketAddr,
    /// As in [`Config`].
    pub receive_credit_max: u16,
    pub send_credit_target: u16,
    /// As in [`Options`].
    pub chunk: u32,
    pub outstanding: u32,
    /// The seed of the data that the client copies.
    pub seed: u64,
    pub bytes: u64,
}

impl Order {
    /// Length in bytes.
    pub const LEN: usize = 4 + 2 * ADDRESS + 4 + 8 + 16;

    /// Returns the options of the copy.
    #[must_use]
    pub fn options(&self) -> Options {
        let config = Config {
            receive_credit_max: self.receive_credit_max,
            send_credit_target: self.send_credit_target,
            ..Config::default()
        };
        Options {
            config,
            chunk: self.chunk as usize,
            outstanding: self.outstanding as usize,
            ..Options::default()
        }
    }

    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend(self.interface.to_le_bytes());
        for address in [self.local, self.remote] {
            match address.ip() {
                IpAddr::V4(v4) => {
                    out.push(4);
                    out.extend(v4.octets());
                    out.extend([0; 12]);
                }
                IpAddr::V6(v6) => {
                    out.push(6);
                    out.extend(v6.octets());
                }
            }
            out.extend(address.port().to_le_bytes());
        }
        out.extend(self.receive_credit_max.to_le_bytes());
        out.extend(self.send_credit_target.to_le_bytes());
        out.extend(self.chunk.to_le_bytes());
        out.extend(self.outstanding.to_le_bytes());
        out.extend(self.seed.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out
    }

    /// Returns `None` if `bytes` are no order.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let order = Self {
            interface: u32::from_le_bytes(fields.take()?),
            local: fields.address()?,
            remote: fields.address()?,
            receive_credit_max: u16::from_le_bytes(fields.take()?),
            send_credit_target: u16::from_le_bytes(fields.take()?),
            chunk: u32::from_le_bytes(fields.take()?),
            outstanding: u32::from_le_bytes(fields.take()?),
            seed: u64::from_le_bytes(fields.take()?),
            bytes: u64::from_le_bytes(fields.take()?),
        };
        let is_usable = order.chunk != 0 && order.outstanding != 0;
        (fields.0.is_empty() && is_usable).then_some(order)
    }
}

/// Length of an address: family (4 or 6), address, port.
const ADDRESS: usize = 1 + 16 + 2;
/// Longest text of an error in bytes.
const MAX_TEXT: usize = 200;

/// How a side of a copy ended: the report, and the kind of the error, its status, and its text.
#[derive(Clone, Debug)]
pub struct Answer {
    report: Report,
    error: Option<(Kind, Status, String)>,
}

/// The errors that a test tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Connect = 1,
    Connection,
    PeerDisconnected,
    Other,
}

impl From<Result<Report, Box<Failure>>> for Answer {
    fn from(side: Result<Report, Box<Failure>>) -> Self {
        match side {
            Ok(report) => Self { report, error: None },
            Err(failure) => {
                let (kind, status) = match failure.error {
                    Error::Connect(status) => (Kind::Connect, status),
                    Error::Connection(status) => (Kind::Connection, status),
                    Error::PeerDisconnected => (Kind::PeerDisconnected, Status::SUCCESS),
                    _ => (Kind::Other, Status::SUCCESS),
                };
                Self { error: Some((kind, status, failure.error.to_string())), report: failure.report }
            }
        }
    }
}

impl From<Answer> for Result<Report, Box<Failure>> {
    fn from(Answer { report, error }: Answer) -> Self {
        report.of(match error {
            None => Ok(()),
            Some((Kind::Connect, status, _)) => Err(Error::Connect(status)),
            Some((Kind::Connection, status, _)) => Err(Error::Connection(status)),
            Some((Kind::PeerDisconnected, ..)) => Err(Error::PeerDisconnected),
            Some((Kind::Other, _, text)) => Err(Error::Other(text.into())),
        })
    }
}

impl Answer {
    /// Longest answer in bytes.
    pub const MAX_LEN: usize = 1 + 4 + 1 + MAX_TEXT + 2 * 33 + 3 * 8 + 6 * 40 + 8;

    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::MAX_LEN);
        let (kind, status, text) = match &self.error {
            None => (0, Status::SUCCESS, ""),
            Some((kind, status, text)) => (*kind as u8, *status, &text[..text.floor_char_boundary(MAX_TEXT)]),
        };
        out.push(kind);
        out.extend(status.0.to_le_bytes());
        out.push(text.len() as u8);
        out.extend(text.as_bytes());
        for digest in [self.report.digest, self.report.returned] {
            out.push(digest.is_some().into());
            out.extend(digest.unwrap_or_default());
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let report = &self.report;
        for number in [report.bytes, nanos(report.write), nanos(report.read), report.stats.unexpected] {
            out.extend(number.to_le_bytes());
        }
        for stats in report.stats.operations() {
            for number in [stats.posted, stats.succeeded, stats.flushed, stats.failed, stats.bytes] {
                out.extend(number.to_le_bytes());
            }
        }
        out
    }

    /// Returns `None` if `bytes` are no answer.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let [kind] = fields.take()?;
        let status = Status(i32::from_le_bytes(fields.take()?));
        let [length] = fields.take()?;
        let (text, rest) = fields.0.split_at_checked(length.into())?;
        fields.0 = rest;
        let text = String::from_utf8_lossy(text).into_owned();
        let kind = match kind {
            0 => None,
            1 => Some(Kind::Connect),
            2 => Some(Kind::Connection),
            3 => Some(Kind::PeerDisconnected),
            _ => Some(Kind::Other),
        };
        let mut digests: [Option<Digest>; 2] = [None; 2];
        for digest in &mut digests {
            let ([is_there], bytes) = (fields.take()?, fields.take()?);
            *digest = (is_there != 0).then_some(bytes);
        }
        let [digest, returned] = digests;
        let (bytes, write, read) = (fields.number()?, fields.number()?, fields.number()?);
        let unexpected = fields.number()?;
        let mut operations: [OperationStats; 6] = Default::default();
        for stats in &mut operations {
            stats.posted = fields.number()?;
            stats.succeeded = fields.number()?;
            stats.flushed = fields.number()?;
            stats.failed = fields.number()?;
            stats.bytes = fields.number()?;
        }
        let report = Report {
            name: String::new(),
            bytes,
            digest,
            returned,
            write: Duration::from_nanos(write),
            read: Duration::from_nanos(read),
            stats: RequestStats::of_operations(operations, unexpected),
        };
        fields.0.is_empty().then_some(Self { report, error: kind.map(|kind| (kind, status, text)) })
    }
}

/// Fields that are left.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let [family] = self.take()?;
        let ip: [u8; 16] = self.take()?;
        let port = u16::from_le_bytes(self.take()?);
        let ip = match family {
            4 => IpAddr::from(*ip.first_chunk::<4>()?),
            6 => IpAddr::from(ip),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn orders_survive_and_others_are_refused() {
        let order = Order {
            interface: 7,
            local: "192.0.2.1:0".parse().unwrap(),
            remote: "[2001:db8::2]:445".parse().unwrap(),
            receive_credit_max: 3,
            send_credit_target: 4,
            chunk: 4000,
            outstanding: 16,
            seed: u64::MAX,
            bytes: 1 << 40,
        };
        let bytes = order.emit();
        assert_eq!(bytes.len(), Order::LEN);
        assert_eq!(Order::parse(&bytes), Some(order));
        assert_eq!(Order::parse(&bytes[1..]), None);
        assert_eq!(Order::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Order::parse(&Order { chunk: 0, ..order }.emit()), None);
        assert_eq!(Order::parse(&Order { outstanding: 0, ..order }.emit()), None);
    }

    #[test]
    fn answers_survive_with_their_error() {
        let report = Report {
            bytes: 5,
            digest: Some([1; 32]),
            write: Duration::from_micros(3),
            read: Duration::from_micros(4),
            stats: RequestStats::of_operations(
                core::array::from_fn(|at| OperationStats { posted: at as u64, ..OperationStats::default() }),
                9,
            ),
            ..Report::default()
        };
        for error in [
            None,
            Some(Error::Connect(Status::CONNECTION_REFUSED)),
            Some(Error::Connection(Status::IO_TIMEOUT)),
            Some(Error::PeerDisconnected),
            Some(Error::Protocol("no order")),
        ] {
            let text = error.as_ref().map(ToString::to_string);
            let side = report.clone().of(error.map_or(Ok(()), Err));
            let bytes = Answer::from(side).emit();
            assert!(bytes.len() <= Answer::MAX_LEN);
            let back = Result::from(Answer::parse(&bytes).unwrap());
            let (error, back) = match back {
                Ok(report) => (None, report),
                Err(failure) => (Some(failure.error.to_string()), failure.report),
            };
            assert_eq!(error, text);
            assert_eq!((back.bytes, back.digest, back.returned), (5, Some([1; 32]), None));
            assert_eq!((back.write, back.read), (report.write, report.read));
            assert_eq!(back.stats.unexpected, 9);
            assert!(back.stats.operations().iter().zip(0..).all(|(stats, at)| stats.posted == at));
        }
    }
}
