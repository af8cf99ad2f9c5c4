// SPDX-License-Identifier: MIT OR Apache-2.0

//! Verdicts on the ends of a case's programs.

use std::os::unix::process::ExitStatusExt as _;

use super::{
    case::{Case, Expected, Faults},
    kind::Kind,
    process::Exited,
    rxe::REPEATS,
    tests_of_python::Results,
};

/// Of so many frames, some are lost and sent again, if 1 % is.
pub const MANY: u64 = 2000;

/// Packets that are transmitted again, at most, to a process that is stopped for a while: probes, not its window of 256. Other pauses of a
/// busy machine add some.
const PROBES: u64 = 64;

/// The setting by which processes at one address share no memory.
pub const WITHOUT_MEMORY: (&str, &str) = ("VIORDMA_SHARED_MEMORY", "0");

/// The fault of programs that did not use the library.
pub const NOT_USED: &str = "no frame was transmitted or received";

/// Texts that programs print when a request has run out of retries: rdma-core's, perftest with its data and with its parameters, rping.
const RETRIES_EXCEEDED: [&str; 4] = [
    "transport retry counter exceeded (12)",
    "Failed status 12",
    "Bad wc status 12",
    "cq completion failed status 12",
];

/// Texts of rping when one of its threads reads from an event channel that another one has destroyed: of the libraries, of rdma-core.
const CHANNEL_GONE: [&str; 2] =
    ["rdma_get_cm_event: Invalid argument", "rdma_get_cm_event: Bad file descriptor"];

/// The ends of the programs of a case.
pub struct Ends<'a> {
    /// None if the case has no server.
    pub server: Option<&'a Exited>,
    pub client: &'a Exited,
}

/// The verdict on a case.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it failed.
    pub fault: Option<String>,
    /// A few words about it: numbers of tests, for example.
    pub note: String,
    /// Parts of it that fail for a known reason: what fails, and the reason.
    pub known: Vec<String>,
}

impl Verdict {
    fn of(fault: Option<String>) -> Self {
        Self { fault, ..Self::default() }
    }
}

impl Ends<'_> {
    /// Returns the sum of a counter in the statistics of all devices, `viordma: 127.0.0.1: rx_frames=3 tx_frames=4`.
    pub fn counter(&self, name: &str) -> u64 {
        self.sides().map(|(_, exited)| counter(&exited.text, name)).sum()
    }

    fn sides(&self) -> impl Iterator<Item = (&'static str, &Exited)> {
        [("client", Some(self.client)), ("server", self.server)]
            .into_iter()
            .filter_map(|(name, exited)| Some((name, exited?)))
    }

    /// Returns that frames have not left as the place asks for: as Ethernet frames, but for a few until the kernel knows the neighbor; through
    /// memory on one address, but for those before the peer has mapped it.
    pub fn fault_of_link(&self, case: &Case, kind: Kind) -> Option<String> {
        // A single process has both ends of its connections.
        let server = self.server?;
        let sides = [server, self.client].into_iter().enumerate();
        sides.filter(|&(side, _)| !kind.is_in_guest(side)).find_map(|(side, exited)| {
            let sent = ["sent_ethernet_frames", "sent_through_memory", "sent_datagrams"];
            let [ethernet, memory, datagrams] = sent.map(|name| counter(&exited.text, name));
            let is_right = match (kind.interface(side), kind) {
                (Some(_), _) => ethernet >= datagrams && memory == 0,
                (None, Kind::One) if case.environment.contains(&WITHOUT_MEMORY) => ethernet + memory == 0,
                (None, Kind::One) => ethernet == 0 && (datagrams < MANY || memory > datagrams),
                (None, _) => ethernet == 0 && memory == 0,
            };
            let ways =
                format!("{ethernet} as Ethernet frames, {memory} through memory, {datagrams} as datagrams");
            (!is_right).then_some(format!("side {side} has sent frames in the wrong way: {ways}"))
        })
    }

    /// Judges how the programs ended.
    pub fn verdict(&self, case: &Case, faults: Faults) -> Verdict {
        match case.expected {
            Expected::Pass => Verdict::of(self.fault_of_pass(case, faults)),
            Expected::Refused { text, reason } => {
                Verdict { note: format!("refused: {reason}"), ..Verdict::of(self.fault_of_refusal(text)) }
            }
            Expected::ServerKilled => {
                let note = "a request of the client fails".to_owned();
                Verdict { note, ..Verdict::of(self.fault_of_survivor()) }
            }
            Expected::ServerStopped => {
                let count = self.counter("retransmissions");
                let fault = self.fault_of_pass(case, faults);
                let too_many = || format!("{count} packets were transmitted again, more than {PROBES}");
                let fault = fault.or_else(|| (count > PROBES).then(too_many));
                Verdict { note: format!("{count} packets transmitted again"), ..Verdict::of(fault) }
            }
            Expected::Tests { passed, known } => {
                let results = Results::read(&self.client.text);
                Verdict {
                    fault: results.fault(passed, known, self.client.status.is_some()),
                    note: results.to_string(),
                    known: results.known(known),
                }
            }
        }
    }

    fn fault_of_pass(&self, case: &Case, faults: Faults) -> Option<String> {
        if let Some((name, exited)) = self.sides().find(|(_, exited)| !exited.is_success()) {
            return Some(format!("{name}: {}", exited.description()));
        }
        if !self.client.text.contains(case.prints) {
            return Some(format!("client: it does not print {:?}", case.prints));
        }
        let frames = self.counter("tx_frames");
        // A side may receive datagrams alone.
        if frames + self.counter("rx_frames") == 0 && !case.server.is_empty() {
            return Some(NOT_USED.to_owned());
        }
        let is_missing = match faults {
            Faults::None => false,
            // What `rdma_rxe` asks for again is no retransmission of this side.
            Faults::Loss => {
                frames >= MANY && self.counter("retransmissions") + self.counter("lost_frames") == 0
            }
            // A frame that leaves alone is in no order.
            Faults::Reorder => frames >= MANY * 5 && self.counter("reordered_frames") == 0,
        };
        is_missing.then(|| format!("no frame had the faults asked for: {}", faults.name()))
    }

    fn fault_of_refusal(&self, text: &str) -> Option<String> {
        if let Some((name, exited)) = self.sides().find(|(_, exited)| signal(exited).is_some()) {
            Some(format!("{name}: {}", exited.description()))
        } else if self.client.status.is_none() {
            Some("client: no end in time".to_owned())
        } else if self.sides().all(|(_, exited)| exited.is_success()) {
            Some("it is not refused".to_owned())
        } else if !self.sides().any(|(_, exited)| exited.text.contains(text)) {
            Some(format!("no program prints {text:?}"))
        } else {
            None
        }
    }

    fn fault_of_survivor(&self) -> Option<String> {
        if self.client.status.is_none() {
            Some("client: no end in time".to_owned())
        } else if self.client.is_success() {
            Some("client: it ended without an error".to_owned())
        } else if signal(self.client).is_some() {
            Some(format!("client: {}", self.client.description()))
        } else if !has_exceeded_retries(self.client) {
            Some("client: no request ran out of retries".to_owned())
        } else {
            None
        }
    }

    /// Returns why a case that failed is to run again, if what made it fail is no fault of the libraries.
    pub fn reason_to_repeat(&self, case: &Case, faults: Faults) -> Option<&'static str> {
        if self.has_lost_last_ack(case, faults) {
            Some("the last ACK was lost")
        } else if self.has_lost_channel(case) {
            Some("a race of rping's threads at their end")
        } else {
            None
        }
    }

    /// Returns whether rping failed after its rounds, when one of its threads destroyed the event channel that another one reads.
    fn has_lost_channel(&self, case: &Case) -> bool {
        let is_raced = |exited: &Exited| {
            exited.status.and_then(|status| status.code()).is_some_and(|code| code != 0)
                && exited.text.contains("DISCONNECT EVENT")
                && CHANNEL_GONE.iter().any(|text| exited.text.contains(text))
        };
        case.name.starts_with("rping")
            && case.expected == Expected::Pass
            && self.sides().all(|(_, exited)| exited.is_success() || is_raced(exited))
    }

    /// Returns whether a case failed by the loss of the last ACK alone: a request of one side ran out of retries, and the other side had
    /// ended without an error, with the queue pair that would repeat the ACK.
    ///
    /// Most programs end when they have received the last message. The same happens between network cards. rdma-core's ask for 7 retries, which
    /// `rdma_rxe` takes for any number: such a program does not end.
    fn has_lost_last_ack(&self, case: &Case, faults: Faults) -> bool {
        let (Some(server), Expected::Pass, Faults::Loss) = (self.server, case.expected, faults) else {
            return false;
        };
        [(server, self.client), (self.client, server)].into_iter().any(|(failed, other)| {
            let has_failed = failed.status.and_then(|status| status.code()).is_some_and(|code| code != 0)
                && has_exceeded_retries(failed);
            let retries_on = failed.status.is_none() && failed.text.contains(REPEATS);
            other.is_success() && (has_failed || retries_on)
        })
    }
}

fn signal(exited: &Exited) -> Option<i32> {
    exited.status.and_then(|status| status.signal())
}

fn has_exceeded_retries(exited: &Exited) -> bool {
    RETRIES_EXCEEDED.iter().any(|text| exited.text.contains(text))
}

fn counter(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once("viordma: ")).map(|(_, counters)| counters);
    let values =
        lines.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.filter_map(|value| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::{super::cases::CASES, *};

    fn exited(code: i32, text: &str) -> Exited {
        Exited { status: Some(ExitStatus::from_raw(code << 8)), text: text.to_owned() }
    }

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    const FRAMES: &str = "viordma: 10.77.0.1: tx_frames=1500 retransmissions=1\n";
    const LOST: &str = "Failed status transport retry counter exceeded (12) for wr_id 2\n";

    #[test]
    fn counters_of_all_devices_are_added() {
        let text = "a line\n65536 500 0.006viordma: 10.77.0.1: tx_frames=3 retransmissions=1\nviordma: ::1: tx_frames=4";
        assert_eq!(counter(text, "tx_frames"), 7);
        assert_eq!(counter(text, "retransmissions"), 1);
        assert_eq!(counter(text, "frames"), 0);
    }

    #[test]
    fn only_the_lost_ack_of_a_peer_that_succeeded_is_a_known_failure() {
        let ping = case("ibv_rc_pingpong");
        let (passed, failed) = (exited(0, FRAMES), exited(1, LOST));
        let is_known = |server: &Exited, client: &Exited, faults| {
            Ends { server: Some(server), client }.has_lost_last_ack(ping, faults)
        };
        assert!(is_known(&passed, &failed, Faults::Loss));
        assert!(is_known(&failed, &passed, Faults::Loss));
        assert!(!is_known(&failed, &passed, Faults::None), "nothing was lost");
        assert!(!is_known(&failed, &failed, Faults::Loss), "both were there to repeat the ACK");
        assert!(!is_known(&exited(1, "another error"), &passed, Faults::Loss));
        let hung = |text: &str| Exited { status: None, text: text.to_owned() };
        assert!(!is_known(&hung(LOST), &passed, Faults::Loss));
        assert!(is_known(&hung(REPEATS), &passed, Faults::Loss));
        assert!(!is_known(&hung(REPEATS), &passed, Faults::None));
        assert!(!is_known(&hung(REPEATS), &failed, Faults::Loss));
        assert!(!is_known(&passed, &passed, Faults::Loss));
    }

    #[test]
    fn only_the_race_of_rping_at_its_end_is_repeated() {
        let reason = |name, server: &Exited| {
            let client = exited(0, FRAMES);
            Ends { server: Some(server), client: &client }.reason_to_repeat(case(name), Faults::None)
        };
        let text = "server DISCONNECT EVENT...\nrdma_get_cm_event: Invalid argument\n";
        assert!(reason("rping-q", &exited(255, text)).is_some());
        assert_eq!(reason("ucmatose", &exited(255, text)), None);
        assert_eq!(reason("rping-q", &exited(255, "rdma_get_cm_event: Invalid argument\n")), None);
        assert_eq!(reason("rping-q", &exited(255, "server DISCONNECT EVENT...\n")), None);
        assert_eq!(reason("rping-q", &Exited { status: None, text: text.to_owned() }), None);
    }

    #[test]
    fn a_case_passes_by_what_it_did() {
        let fault = |name, server: Option<&Exited>, client: &Exited, faults| {
            Ends { server, client }.verdict(case(name), faults).fault
        };
        let passed = exited(0, FRAMES);
        let both = |side: &Exited, faults| fault("ibv_rc_pingpong", Some(side), side, faults);
        assert_eq!(both(&passed, Faults::Loss), None);
        assert_eq!(both(&exited(0, ""), Faults::None).unwrap(), NOT_USED);
        assert_eq!(both(&exited(0, "viordma: ::1: rx_frames=1000 tx_frames=0\n"), Faults::None), None);
        let lossless = exited(0, "viordma: ::1: tx_frames=1500\n");
        assert_eq!(both(&lossless, Faults::None), None);
        assert_eq!(both(&lossless, Faults::Loss).unwrap(), "no frame had the faults asked for: 1 % loss");
        assert_eq!(both(&exited(0, "viordma: ::1: tx_frames=1500 lost_frames=9\n"), Faults::Loss), None);
        assert_eq!(both(&lossless, Faults::Reorder), None, "few frames");
        let ordered = exited(0, "viordma: ::1: tx_frames=9000 reordered_frames=0\n");
        assert_eq!(
            both(&ordered, Faults::Reorder).unwrap(),
            "no frame had the faults asked for: 1 % reordered"
        );
        let reordered = exited(0, "viordma: ::1: tx_frames=9000 reordered_frames=90\n");
        assert_eq!(both(&reordered, Faults::Reorder), None);
        assert!(
            fault("ibv_devices", None, &exited(0, "device"), Faults::None).unwrap().ends_with("\"viordma0\"")
        );
        let killed = |client: &Exited| fault("kill-ib_write_bw", Some(&passed), client, Faults::None);
        assert_eq!(killed(&exited(1, "Failed status 12: wr_id 0")), None);
        assert!(killed(&exited(1, "Couldn't read from the socket")).unwrap().ends_with("ran out of retries"));
        assert!(killed(&passed).unwrap().ends_with("without an error"));
    }
}
