// SPDX-License-Identifier: MIT OR Apache-2.0

//! A script: how the hosts are set up, and the steps. Its text is one line each, comments begin with `#`:
//!
//! ```text
//! seed 7
//! path-mtu 1024
//! packed
//! without 0x20000000
//!
//! copy 65536
//! alpha fail
//! check
//! ```

use std::{fmt, str::FromStr, time::Duration};

use anyhow::{Context as _, Result};
use device_sim::{
    Quirks,
    virtio_net::{Features, LargeQuirk, RssLimits},
};
use ndis_sim::Keyword;
use nt_sim::cpu::groups::MAX_GROUP_SIZE;
use viordma_inf::keywords::PROPERTIES;

use super::{
    misbehavior::bits_of,
    step::{Side, Step},
};
use crate::testbed;

/// How the hosts are set up.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Setup {
    /// Seed of the simulation: the order of events, the faults of the link, the allocations that fail.
    pub seed: u64,
    pub path_mtu: u32,
    pub processors: u32,
    /// Processors of a processor group.
    pub group_size: u32,
    /// Queue pairs of each device.
    pub pairs: u16,
    /// The devices use packed rings.
    pub packed: bool,
    /// Features that the devices do not offer, as bits. Nor do they offer those that need one of them.
    pub without: u64,
    /// Time that a reset of the first device takes, in milliseconds.
    pub reset_millis: u32,
    /// Largest IP packet of both devices; 0 for the smallest that the path MTU needs. `*JumboPacket` is set to it unless `keywords`
    /// has it.
    pub mtu: u16,
    /// Link speed that the first device reports, in Mbit/s; 0 for its usual one.
    pub speed: u32,
    /// Time that a command of the first device's control queue takes, in microseconds.
    pub command_micros: u32,
    /// Receive side scaling of the first device: length of the key in bytes, entries of the table, types of hashes.
    pub rss_limits: Option<(u8, u16, u32)>,
    /// Type of the hash that the first device reports of every frame. One that NDIS does not ask for: the driver must not use it.
    pub hash_report: Option<u16>,
    /// The first device leaves the checksums of TCP and UDP to the driver.
    pub partial_checksums: bool,
    /// Defects of the header of coalesced frames of the first device, although the driver must accept them.
    pub large: Option<Large>,
    /// Times that the first device delivers the first frame once more.
    pub repeats: u32,
    /// Threads run in real time: what races with what differs from run to run.
    pub real_time: bool,
    /// Interrupt messages of each device; 0: it has its line instead; `None` for as many as it has use for.
    pub messages: Option<u16>,
    /// Largest sizes of the receive and of the transmit queues of each device; 0 for QEMU's.
    pub queue_sizes: [u16; 2],
    /// The first device works only if all its queues are enabled.
    pub insists: bool,
    /// The first device drops frames for which it has no buffer.
    pub drops: bool,
    /// `NetworkAddress` of the first adapter; empty for none.
    pub station: String,
    /// Registry values of both adapters.
    pub keywords: Vec<(String, String)>,
}

/// Statements of a device about a coalesced frame that have no effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Large {
    /// The headers have this length.
    HeaderLength(u16),
    /// Its segments have this length, which is less than they had.
    SegmentSize(u16),
}

impl Large {
    const fn quirk(self) -> LargeQuirk {
        match self {
            Self::HeaderLength(bytes) => LargeQuirk::HeaderLength(bytes),
            Self::SegmentSize(bytes) => LargeQuirk::SegmentSize(bytes),
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 0,
            path_mtu: 4096,
            processors: 2,
            group_size: MAX_GROUP_SIZE,
            pairs: 1,
            packed: false,
            without: 0,
            reset_millis: 0,
            mtu: 0,
            speed: 0,
            command_micros: 0,
            rss_limits: None,
            hash_report: None,
            partial_checksums: false,
            large: None,
            repeats: 0,
            real_time: false,
            messages: None,
            queue_sizes: [0; 2],
            insists: false,
            drops: false,
            station: String::new(),
            keywords: Vec::new(),
        }
    }
}

impl Setup {
    /// Returns the options of the testbed. Its names of keywords live forever.
    #[must_use]
    pub(super) fn options(&self) -> testbed::Options {
        let keyword = |(name, value): &(String, String)| {
            let name: &'static str = Box::leak(name.clone().into_boxed_str());
            (name, Keyword::Text(value.clone()))
        };
        let when = |is_offered, feature| if is_offered { feature } else { Features::default() };
        let of_pairs = Features::MQ | Features::RSS | Features::HASH_REPORT;
        let offered =
            Features::DEFAULT | when(self.packed, Features::RING_PACKED) | when(self.pairs > 1, of_pairs);
        testbed::Options {
            seed: self.seed,
            real_time: self.real_time,
            path_mtu: self.path_mtu,
            mtu: (self.mtu != 0).then_some(self.mtu),
            processors: self.processors,
            group_size: self.group_size,
            pairs: self.pairs,
            messages: self.messages,
            queue_sizes: self.queue_sizes.map(|size| if size == 0 { 256 } else { size }),
            features: offered.without(Features(self.without)).consistent(),
            quirks: Quirks {
                reset_time: Duration::from_millis(self.reset_millis.into()),
                speed: (self.speed != 0).then_some(self.speed),
                command_time: Duration::from_micros(self.command_micros.into()),
                rss_limits: self.rss_limits.map(|(key_len, entries, types)| RssLimits {
                    key_len,
                    entries,
                    types,
                }),
                hash_report: self.hash_report.map(|kind| (0x5a5a_5a5a, kind)),
                partial_checksums: self.partial_checksums.then_some(None),
                large: self.large.map(Large::quirk),
                repeats: (self.repeats != 0).then_some(self.repeats),
                insists_on_all_queues: self.insists,
                drops_without_buffer: self.drops,
                ..Quirks::default()
            },
            keywords: self.keywords.iter().map(keyword).collect(),
            ..testbed::Options::default()
        }
    }

    /// Returns the VLAN that the adapters are in when they start; 0 for none.
    #[must_use]
    pub fn vlan(&self) -> u16 {
        let value = self.keywords.iter().find(|(name, _)| name == "VlanID");
        value.and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
    }

    /// Returns whether the adapter of a host has a registry value that the driver's table of keywords does not allow.
    pub(super) fn has_invalid_keyword(&self, side: Side) -> bool {
        let is_invalid = |(name, value): &(String, String)| {
            let property = PROPERTIES.iter().find(|property| property.name == name);
            let value = value.parse();
            property.is_some_and(|property| !value.is_ok_and(|value| property.keyword(0).allows(value)))
        };
        // The second digit states whether the address is a local one of a station.
        let is_station = |digit: u8| matches!(digit, b'2' | b'6' | b'A' | b'E');
        let has_invalid_station =
            side == Side::Alpha && self.station.as_bytes().get(1).is_some_and(|&digit| !is_station(digit));
        has_invalid_station || self.keywords.iter().any(is_invalid)
    }

    /// Reads a line. Returns `false` if it is a step.
    fn read(&mut self, line: &str) -> Result<bool> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["seed", seed] => self.seed = seed.parse()?,
            ["path-mtu", mtu] => self.path_mtu = mtu.parse()?,
            ["processors", count] => self.processors = count.parse()?,
            ["group-size", count] => self.group_size = count.parse()?,
            ["pairs", count] => self.pairs = count.parse()?,
            ["packed"] => self.packed = true,
            ["without", bits] => self.without = bits_of(bits)?,
            ["reset-millis", count] => self.reset_millis = count.parse()?,
            ["mtu", mtu] => self.mtu = mtu.parse()?,
            ["speed", megabits] => self.speed = megabits.parse()?,
            ["command-micros", count] => self.command_micros = count.parse()?,
            ["rss-limits", key, entries, types] => {
                self.rss_limits = Some((key.parse()?, entries.parse()?, types.parse()?));
            }
            ["hash-report", kind] => self.hash_report = Some(kind.parse()?),
            ["partial-checksums"] => self.partial_checksums = true,
            ["header-length", bytes] => self.large = Some(Large::HeaderLength(bytes.parse()?)),
            ["segment-size", bytes] => self.large = Some(Large::SegmentSize(bytes.parse()?)),
            ["repeats", count] => self.repeats = count.parse()?,
            ["messages", count] => self.messages = Some(count.parse()?),
            ["queue-sizes", receive, transmit] => self.queue_sizes = [receive.parse()?, transmit.parse()?],
            ["insists"] => self.insists = true,
            ["drops"] => self.drops = true,
            ["station", address] => self.station = address.into(),
            ["real-time"] => self.real_time = true,
            ["keyword", name, value] => self.keywords.push((name.into(), value.into())),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        let default = Self::default();
        if self.path_mtu != default.path_mtu {
            writeln!(f, "path-mtu {}", self.path_mtu)?;
        }
        if self.processors != default.processors {
            writeln!(f, "processors {}", self.processors)?;
        }
        if self.group_size != default.group_size {
            writeln!(f, "group-size {}", self.group_size)?;
        }
        if self.pairs != default.pairs {
            writeln!(f, "pairs {}", self.pairs)?;
        }
        if self.packed {
            writeln!(f, "packed")?;
        }
        if self.without != 0 {
            writeln!(f, "without {:#x}", self.without)?;
        }
        if self.reset_millis != 0 {
            writeln!(f, "reset-millis {}", self.reset_millis)?;
        }
        let numbers =
            [("mtu", self.mtu.into()), ("speed", self.speed), ("command-micros", self.command_micros)];
        for (name, value) in numbers {
            if value != 0 {
                writeln!(f, "{name} {value}")?;
            }
        }
        if let Some((key, entries, types)) = self.rss_limits {
            writeln!(f, "rss-limits {key} {entries} {types}")?;
        }
        if let Some(kind) = self.hash_report {
            writeln!(f, "hash-report {kind}")?;
        }
        match self.large {
            None => {}
            Some(Large::HeaderLength(bytes)) => writeln!(f, "header-length {bytes}")?,
            Some(Large::SegmentSize(bytes)) => writeln!(f, "segment-size {bytes}")?,
        }
        if self.repeats != 0 {
            writeln!(f, "repeats {}", self.repeats)?;
        }
        if self.partial_checksums {
            writeln!(f, "partial-checksums")?;
        }
        let [receive, transmit] = self.queue_sizes;
        if self.queue_sizes != default.queue_sizes {
            writeln!(f, "queue-sizes {receive} {transmit}")?;
        }
        if let Some(count) = self.messages {
            writeln!(f, "messages {count}")?;
        }
        for (word, is_set) in
            [("insists", self.insists), ("drops", self.drops), ("real-time", self.real_time)]
        {
            if is_set {
                writeln!(f, "{word}")?;
            }
        }
        if !self.station.is_empty() {
            writeln!(f, "station {}", self.station)?;
        }
        for (name, value) in &self.keywords {
            writeln!(f, "keyword {name} {value}")?;
        }
        Ok(())
    }
}

/// A script.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    pub setup: Setup,
    pub steps: Vec<Step>,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.setup)?;
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

impl Script {
    fn read(&mut self, line: &str) -> Result<()> {
        if !line.is_empty() && !self.setup.read(line)? {
            self.steps.push(line.parse()?);
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut script = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            script.read(line).with_context(|| format!("line {number}: {line}"))?;
        }
        Ok(script)
    }
}
