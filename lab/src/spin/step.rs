// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of a script, and their text: one line each.

use std::{fmt, str::FromStr};

use anyhow::{Context as _, Result, anyhow, bail};
use ndk_abi::ndis::NDIS_OID;

use super::misbehavior::{Misbehavior, bits_of};

/// Probabilities of the link's faults, per thousand frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkFaults {
    pub loss: u16,
    pub duplication: u16,
    pub corruption: u16,
    pub reordering: u16,
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Alpha,
    Beta,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Alpha, Self::Beta];

    /// Returns the number of the host in a testbed.
    #[must_use]
    pub fn number(self) -> usize {
        match self {
            Self::Alpha => 0,
            Self::Beta => 1,
        }
    }
}

/// A step. One that the state of the hosts does not allow, such as the restart of an adapter that is halted, is skipped, so that a
/// script without some of its steps is a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Microseconds pass.
    Wait(u64),
    Faults(LinkFaults),
    /// Begins to copy bytes by RDMA from the first host to the second and back.
    Copy(usize),
    /// Begins to send bytes each way through a TCP connection.
    Tcp(usize),
    /// Ends all disturbances, waits until traffic has ended, and requires that both hosts work.
    Check,
    On(Side, Act),
    /// An action on a thread of the host after this number of microseconds, beside the next steps.
    Later(u64, Side, Act),
}

/// A part of the parameters of receive side scaling. The others stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RssPart {
    /// An indirection table of 2^`log2` entries over this number of processors.
    Table { processors: u8, log2: u8 },
    /// A request whose indirection table is null, which the driver refuses.
    NoTable,
    /// A key of this byte.
    Key(u8),
    /// `NDIS_HASH_*`
    Types(u32),
    /// The processor of frames without a hash.
    Default(u8),
}

/// Action on a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// The adapter is paused and restarted.
    Restart,
    /// The adapter is halted and started again.
    Reenable,
    Halt,
    Start,
    Sleep,
    Wake,
    /// The device is removed, and NDIS notices.
    Remove,
    /// The device is removed, and only the driver can notice.
    Vanish,
    /// A device that was removed, is broken or was shut down is replaced by another. The adapter is halted.
    Insert,
    ShutDown,
    /// The device sets DEVICE_NEEDS_RESET.
    Fail,
    /// The device does not reset from now on.
    Stuck,
    /// The device's configuration changes at each read, or no longer.
    Unsteady(bool),
    /// The device sends the message of a vector without a reason.
    Interrupt(u16),
    Link(bool),
    /// RDMA is enabled or disabled by OID.
    Rdma(bool),
    /// The stack spreads received frames over this number of processors, or no longer.
    Rss(u8),
    RssPart(RssPart),
    /// Hashes of received frames are requested without receive side scaling, or no longer.
    ReceiveHash(bool),
    /// Coalescing of received segments is switched by OID, for IPv4 and IPv6.
    Coalescing([bool; 2]),
    /// The stack starts or stops the offloads by OID, for IPv4 and IPv6.
    Encapsulation([bool; 2]),
    /// The device takes no frames out of the transmit queue of a pair, until that or the device is reset.
    Stall(u16),
    /// The device executes no command for this number of milliseconds, or until the next check.
    PauseCommands(u32),
    /// The same: takes no frame to send.
    PauseSending(u32),
    /// The device takes this number of milliseconds for each command, until the next check.
    CommandTime(u32),
    /// The same, for each reset.
    ResetTime(u32),
    /// The same, for each reset of a queue.
    QueueResetTime(u32),
    /// The device asks for an announcement of the adapter's addresses.
    Announce,
    /// The device does something wrong.
    Misbehave(Misbehavior),
    /// The device reports this speed of the link, in Mbit/s.
    Speed(u32),
    /// The adapter is put into a VLAN by OID; 0 for none.
    Vlan(u16),
    Query(NDIS_OID, usize),
    Set(NDIS_OID, Vec<u8>),
    /// Frames of a length are sent to the peer in one chain.
    Frames {
        count: usize,
        length: usize,
    },
    /// Sends are canceled.
    Cancel,
    /// The stack keeps received lists, or returns those it kept.
    Keep(bool),
    /// This share of 1,000 allocations fails.
    Shortage(u16),
    /// The n-th allocation from now fails, counted from 0.
    FailNth(u16),
}

impl Act {
    /// Returns whether a [`Step::Later`] can do it: it needs no change of the adapter's state by the PnP manager.
    #[must_use]
    pub fn can_be_later(&self) -> bool {
        matches!(
            self,
            Self::Vanish
                | Self::Fail
                | Self::Interrupt(_)
                | Self::Link(_)
                | Self::Rdma(_)
                | Self::Rss(_)
                | Self::ReceiveHash(_)
                | Self::RssPart(_)
                | Self::Coalescing(_)
                | Self::Encapsulation(_)
                | Self::Stall(_)
                | Self::PauseCommands(_)
                | Self::PauseSending(_)
                | Self::CommandTime(_)
                | Self::ResetTime(_)
                | Self::QueueResetTime(_)
                | Self::Announce
                | Self::Misbehave(_)
                | Self::Speed(_)
                | Self::Vlan(_)
                | Self::Query(..)
                | Self::Set(..)
                | Self::Frames { .. }
                | Self::Cancel
        )
    }

    /// Returns whether it is a request to the adapter, which must have power.
    #[must_use]
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Self::Rdma(_)
                | Self::Rss(_)
                | Self::ReceiveHash(_)
                | Self::RssPart(_)
                | Self::Coalescing(_)
                | Self::Encapsulation(_)
                | Self::Vlan(_)
                | Self::Query(..)
                | Self::Set(..)
        )
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
        })
    }
}

impl FromStr for Side {
    type Err = anyhow::Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::BOTH
            .into_iter()
            .find(|side| side.to_string() == word)
            .with_context(|| format!("no host is {word}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(micros) => write!(f, "wait {micros}"),
            Self::Faults(LinkFaults { loss, duplication, corruption, reordering }) => {
                write!(f, "faults {loss} {duplication} {corruption} {reordering}")
            }
            Self::Copy(bytes) => write!(f, "copy {bytes}"),
            Self::Tcp(bytes) => write!(f, "tcp {bytes}"),
            Self::Check => f.write_str("check"),
            Self::On(side, act) => write!(f, "{side} {act}"),
            Self::Later(micros, side, act) => write!(f, "later {micros} {side} {act}"),
        }
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        Ok(match words[..] {
            ["wait", micros] => Self::Wait(micros.parse()?),
            ["faults", loss, duplication, corruption, reordering] => Self::Faults(LinkFaults {
                loss: loss.parse()?,
                duplication: duplication.parse()?,
                corruption: corruption.parse()?,
                reordering: reordering.parse()?,
            }),
            ["copy", bytes] => Self::Copy(bytes.parse()?),
            ["tcp", bytes] => Self::Tcp(bytes.parse()?),
            ["check"] => Self::Check,
            ["later", micros, side, ref act @ ..] => {
                let act = Act::from_words(act)?;
                if !act.can_be_later() {
                    bail!("cannot be done later: {act}");
                }
                Self::Later(micros.parse()?, side.parse()?, act)
            }
            [side, ref act @ ..] => Self::On(side.parse()?, Act::from_words(act)?),
            [] => bail!("an empty step"),
        })
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "on" } else { "off" };
        match self {
            Self::Restart => f.write_str("restart"),
            Self::Reenable => f.write_str("reenable"),
            Self::Halt => f.write_str("halt"),
            Self::Start => f.write_str("start"),
            Self::Sleep => f.write_str("sleep"),
            Self::Wake => f.write_str("wake"),
            Self::Remove => f.write_str("remove"),
            Self::Vanish => f.write_str("vanish"),
            Self::Insert => f.write_str("insert"),
            Self::ShutDown => f.write_str("shut-down"),
            Self::Fail => f.write_str("fail"),
            Self::Stuck => f.write_str("stuck"),
            Self::Unsteady(on) => write!(f, "unsteady {}", switch(on)),
            Self::Interrupt(vector) => write!(f, "interrupt {vector}"),
            Self::Link(up) => write!(f, "link {}", switch(up)),
            Self::Rdma(on) => write!(f, "rdma {}", switch(on)),
            Self::Rss(processors) => write!(f, "rss {processors}"),
            Self::ReceiveHash(on) => write!(f, "receive-hash {}", switch(on)),
            Self::RssPart(part) => match part {
                RssPart::Table { processors, log2 } => write!(f, "rss table {processors} {log2}"),
                RssPart::NoTable => f.write_str("rss no-table"),
                RssPart::Key(byte) => write!(f, "rss key {byte}"),
                RssPart::Types(types) => write!(f, "rss types {types:#x}"),
                RssPart::Default(processor) => write!(f, "rss default {processor}"),
            },
            Self::Coalescing([v4, v6]) => write!(f, "coalescing {} {}", switch(v4), switch(v6)),
            Self::Encapsulation([v4, v6]) => write!(f, "encapsulation {} {}", switch(v4), switch(v6)),
            Self::Stall(pair) => write!(f, "stall {pair}"),
            Self::PauseCommands(millis) => write!(f, "pause-commands {millis}"),
            Self::PauseSending(millis) => write!(f, "pause-sending {millis}"),
            Self::CommandTime(millis) => write!(f, "command-time {millis}"),
            Self::ResetTime(millis) => write!(f, "reset-time {millis}"),
            Self::QueueResetTime(millis) => write!(f, "queue-reset-time {millis}"),
            Self::Announce => f.write_str("announce"),
            Self::Misbehave(misbehavior) => misbehavior.fmt(f),
            Self::Speed(megabits) => write!(f, "speed {megabits}"),
            Self::Vlan(id) => write!(f, "vlan {id}"),
            Self::Query(oid, length) => write!(f, "query {oid:#010x} {length}"),
            Self::Set(oid, bytes) => write!(f, "set {oid:#010x} {}", hex(bytes)),
            Self::Frames { count, length } => write!(f, "frames {count} {length}"),
            Self::Cancel => f.write_str("cancel"),
            Self::Keep(on) => write!(f, "keep {}", switch(on)),
            Self::Shortage(share) => write!(f, "shortage {share}"),
            Self::FailNth(number) => write!(f, "fail-nth {number}"),
        }
    }
}

impl Act {
    fn from_words(words: &[&str]) -> Result<Self> {
        let switch = |word: &str| match word {
            "on" => Ok(true),
            "off" => Ok(false),
            other => Err(anyhow!("{other} is neither on nor off")),
        };
        Ok(match *words {
            ["restart"] => Self::Restart,
            ["reenable"] => Self::Reenable,
            ["halt"] => Self::Halt,
            ["start"] => Self::Start,
            ["sleep"] => Self::Sleep,
            ["wake"] => Self::Wake,
            ["remove"] => Self::Remove,
            ["vanish"] => Self::Vanish,
            ["insert"] => Self::Insert,
            ["shut-down"] => Self::ShutDown,
            ["fail"] => Self::Fail,
            ["stuck"] => Self::Stuck,
            ["unsteady", on] => Self::Unsteady(switch(on)?),
            ["interrupt", vector] => Self::Interrupt(vector.parse()?),
            ["link", up] => Self::Link(switch(up)?),
            ["rdma", on] => Self::Rdma(switch(on)?),
            ["receive-hash", on] => Self::ReceiveHash(switch(on)?),
            ["rss", "no-table"] => Self::RssPart(RssPart::NoTable),
            ["rss", processors] => Self::Rss(processors.parse()?),
            ["rss", "table", processors, log2] => {
                Self::RssPart(RssPart::Table { processors: processors.parse()?, log2: log2.parse()? })
            }
            ["rss", "key", byte] => Self::RssPart(RssPart::Key(byte.parse()?)),
            ["rss", "types", types] => Self::RssPart(RssPart::Types(number(types)?)),
            ["rss", "default", processor] => Self::RssPart(RssPart::Default(processor.parse()?)),
            ["coalescing", v4, v6] => Self::Coalescing([switch(v4)?, switch(v6)?]),
            ["encapsulation", v4, v6] => Self::Encapsulation([switch(v4)?, switch(v6)?]),
            ["stall", pair] => Self::Stall(pair.parse()?),
            ["pause-commands", millis] => Self::PauseCommands(millis.parse()?),
            ["pause-sending", millis] => Self::PauseSending(millis.parse()?),
            ["command-time", millis] => Self::CommandTime(millis.parse()?),
            ["reset-time", millis] => Self::ResetTime(millis.parse()?),
            ["queue-reset-time", millis] => Self::QueueResetTime(millis.parse()?),
            ["announce"] => Self::Announce,
            ["query", oid, length] => Self::Query(number(oid)?, length.parse()?),
            ["set", oid, bytes] => Self::Set(number(oid)?, from_hex(bytes)?),
            ["frames", count, length] => Self::Frames { count: count.parse()?, length: length.parse()? },
            ["cancel"] => Self::Cancel,
            ["keep", on] => Self::Keep(switch(on)?),
            ["shortage", share] => Self::Shortage(share.parse()?),
            ["fail-nth", number] => Self::FailNth(number.parse()?),
            ["speed", megabits] => Self::Speed(megabits.parse()?),
            ["vlan", id] => Self::Vlan(id.parse()?),
            _ => Self::Misbehave(Misbehavior::from_words(words)?),
        })
    }
}

/// Returns an OID or bits, in hexadecimal with a prefix.
fn number(word: &str) -> Result<u32> {
    Ok(u32::try_from(bits_of(word)?)?)
}

/// Returns bytes as hexadecimal digits; `-` if there are none.
fn hex(bytes: &[u8]) -> String {
    let mut text = if bytes.is_empty() { "-".to_owned() } else { String::new() };
    for byte in bytes {
        let digits = [byte >> 4, byte & 0xf].map(|digit| char::from_digit(digit.into(), 16));
        text.extend(digits.into_iter().flatten());
    }
    text
}

fn from_hex(word: &str) -> Result<Vec<u8>> {
    if word == "-" {
        return Ok(Vec::new());
    }
    let digits =
        word.chars().map(|digit| digit.to_digit(16).with_context(|| format!("{word} is not hexadecimal")));
    let digits = digits.collect::<Result<Vec<_>>>()?;
    if digits.len() % 2 != 0 {
        bail!("{word} has half a byte");
    }
    Ok(digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
