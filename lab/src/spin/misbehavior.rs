// SPDX-License-Identifier: MIT OR Apache-2.0

//! Misbehavior of a device of a script, its text, and how it is ended.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail};
use device_sim::{
    Nic,
    virtio_net::{Features, Role, UsedQuirk},
};

/// Misbehavior of the device, until the driver resets the queue or the device, unless said otherwise, or until the next check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misbehavior {
    /// The used ring's entry of the next buffer of a queue is corrupt.
    Corrupt(Queue, UsedQuirk),
    /// The header of the next frame that a pair receives states this number of buffers.
    Buffers(u16, u16),
    /// No command of the control queue is answered.
    Unanswered,
    /// Commands of this class are refused.
    Refused(u8),
    /// After its next reset the device no longer offers these features, as bits, until it is replaced.
    Withdrawn(u64),
}

/// Longer than any script lasts.
const FOREVER: Duration = Duration::from_hours(1);

/// A queue, by the number of its pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    Receive(u16),
    Transmit(u16),
    Control,
}

/// The words of a script for corrupt entries of a used ring.
pub const ENTRIES: [(&str, UsedQuirk); 5] = [
    ("id-out-of-range", UsedQuirk::IdOutOfRange),
    ("id-twice", UsedQuirk::IdTwice),
    ("length-too-large", UsedQuirk::LengthTooLarge),
    ("length-too-small", UsedQuirk::LengthTooSmall),
    ("index-jump", UsedQuirk::IndexJump),
];

impl Misbehavior {
    /// Has a device misbehave. Pairs that it does not have are others of it.
    pub fn begin(self, nic: &Nic) {
        let pair = |number: u16| usize::from(number % nic.options().pairs);
        match self {
            Self::Corrupt(queue, entry) => {
                let role = match queue {
                    Queue::Receive(number) => Role::Receive(pair(number)),
                    Queue::Transmit(number) => Role::Transmit(pair(number)),
                    Queue::Control => Role::Control,
                };
                nic.misbehavior().corrupt(role, entry);
            }
            Self::Buffers(number, buffers) => nic.misbehavior().misstate_buffers(pair(number), buffers),
            Self::Unanswered => nic.pause_commands(FOREVER),
            Self::Refused(class) => nic.misbehavior().refuse_class(class),
            Self::Withdrawn(features) => nic.misbehavior().withdraw(Features(features)),
        }
    }

    /// Returns what a line of a script says.
    ///
    /// # Errors
    /// It is none.
    pub fn from_words(words: &[&str]) -> Result<Self> {
        let queue = |side: &str, pair: &str| {
            Ok(match side {
                "receive" => Queue::Receive(pair.parse()?),
                "transmit" => Queue::Transmit(pair.parse()?),
                other => bail!("{other} is neither receive nor transmit"),
            })
        };
        let entry = |word: &str| match ENTRIES.into_iter().find(|&(name, _)| name == word) {
            Some((_, entry)) => Ok(entry),
            None => bail!("no such entry of a used ring: {word}"),
        };
        Ok(match *words {
            ["corrupt", "control", word] => Self::Corrupt(Queue::Control, entry(word)?),
            ["corrupt", side, pair, word] => Self::Corrupt(queue(side, pair)?, entry(word)?),
            ["buffers", pair, buffers] => Self::Buffers(pair.parse()?, buffers.parse()?),
            ["commands", "unanswered"] => Self::Unanswered,
            ["commands", "refused", class] => Self::Refused(class.parse()?),
            ["withdraw", bits] => Self::Withdrawn(bits_of(bits)?),
            _ => bail!("no such act: {}", words.join(" ")),
        })
    }
}

/// Returns bits in hexadecimal with a prefix.
pub fn bits_of(word: &str) -> Result<u64> {
    let digits = word.strip_prefix("0x").with_context(|| format!("{word} does not begin with 0x"))?;
    Ok(u64::from_str_radix(digits, 16)?)
}

impl fmt::Display for Misbehavior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Corrupt(queue, entry) => {
                let name = ENTRIES.into_iter().find(|&(_, known)| known == entry);
                write!(f, "corrupt {queue} {}", name.map_or("", |(name, _)| name))
            }
            Self::Buffers(pair, buffers) => write!(f, "buffers {pair} {buffers}"),
            Self::Unanswered => f.write_str("commands unanswered"),
            Self::Refused(class) => write!(f, "commands refused {class}"),
            Self::Withdrawn(features) => write!(f, "withdraw {features:#x}"),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receive(pair) => write!(f, "receive {pair}"),
            Self::Transmit(pair) => write!(f, "transmit {pair}"),
            Self::Control => f.write_str("control"),
        }
    }
}
