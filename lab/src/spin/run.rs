// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a script on two hosts.
//!
//! Traffic that was begun and has ended without a disturbance must be complete. Traffic beside one may be lost, with a status that says so. At
//! each [`Step::Check`], and at the end, the disturbances are over: both adapters must work then.

use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use device_sim::link::Faults;
use ndis_sim::{Keyword, NdisHost as _, tcp_stack::TcpStack};

use super::{
    host::HostUnderTest,
    script::{Script, Setup},
    step::{LinkFaults, Side, Step},
    traffic::{self, Copying, Tcp},
};
use crate::{
    machine::Machine,
    testbed::{Options, Testbed},
    trace,
    workspace::Images,
};

/// How long traffic may take to end, in virtual time.
const LONGEST: Duration = Duration::from_mins(3);
/// Bytes that have to arrive at a check, by RDMA and by TCP.
const SAMPLE: usize = 1 << 16;
/// Faults per thousand frames that RDMA and TCP have to recover from.
const RECOVERABLE: u16 = 30;
/// How long a driver takes to notice a corrupt ring in which it gets buffers, at most.
const NOTICED: Duration = Duration::from_millis(500);
/// Events of the drivers' trace that are printed of a script that fails.
const LAST_EVENTS: usize = 20;
/// First port of copies; each has its own.
const FIRST_PORT: u16 = 5445;

/// Result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    pub steps: usize,
    pub skipped: usize,
    pub checks: usize,
    /// Copies and TCP connections that were complete, and those that a disturbance has ended.
    pub complete: usize,
    pub lost: usize,
    /// Frames on the link.
    pub frames: u64,
    /// Virtual time.
    pub time: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, skipped, checks, complete, lost, frames, time } = self;
        let seconds = time.as_secs_f64();
        write!(
            f,
            "{steps} steps, {skipped} skipped, {checks} checks; {complete} transfers complete, {lost} lost; {frames} frames in \
             {seconds:.1} s"
        )
    }
}

/// Runs a script on the image of the edition that has its keywords.
///
/// # Errors
/// The script has found a defect: violations of the verifier, or what does not work.
pub fn run(images: &Images, script: &Script) -> Result<Summary> {
    let options = Options { trace: Some(trace::ORDINARY), ..script.setup.options() };
    let mut bed = Testbed::new(images.with(&options.keywords), &options)?;
    if !script.setup.station.is_empty() {
        let station = Keyword::Text(script.setup.station.clone());
        bed.machines()[0].host().set_keyword("NetworkAddress", station);
    }
    let mut at = None;
    // A host that dies ends the calls of its harness by a panic.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        bed.start()?;
        let mut player = Player::new(bed.machines().map(|machine| machine.nic().clone()), &script.setup);
        for (number, step) in script.steps.iter().enumerate() {
            at = Some(number);
            player.step(&mut bed, step)?;
        }
        at = None;
        player.check(&mut bed)?;
        bed.stop()?;
        player.summary.frames = bed.wire_figures().frames;
        player.summary.time = bed.now();
        Ok(player.summary)
    }));
    let violations = bed.violations();
    let place = || match at.and_then(|number| script.steps.get(number).map(|step| (number + 1, step))) {
        Some((number, step)) => format!("step {number}: {step}"),
        None => "at the end".to_owned(),
    };
    // The violations first: the other errors follow from them.
    ensure!(violations.is_empty(), "{}\n{}", violations.join("\n"), place());
    match outcome {
        Ok(outcome) => outcome.map_err(|error: anyhow::Error| {
            let last = trace::last_lines(&bed.trace(), LAST_EVENTS);
            anyhow!("{error:#}\n{}\n{}\n{last}", place(), bed.events().join("\n"))
        }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(anyhow!("{}\n{}", text.unwrap_or_else(|| "a panic".into()), place()))
        }
    }
}

/// Traffic, and whether there was a disturbance since it began.
struct Watched<T> {
    traffic: T,
    disturbed: bool,
}

struct Player {
    hosts: [HostUnderTest; 2],
    copies: Vec<Watched<Copying>>,
    tcp: Option<Watched<Tcp>>,
    /// The link loses more than transports recover from.
    is_lossy: bool,
    next_port: u16,
    summary: Summary,
}

impl Player {
    fn new(nics: [std::sync::Arc<device_sim::Nic>; 2], setup: &Setup) -> Self {
        let [first, second] = nics;
        Self {
            hosts: [
                HostUnderTest::new(Side::Alpha, first, setup),
                HostUnderTest::new(Side::Beta, second, setup),
            ],
            copies: Vec::new(),
            tcp: None,
            is_lossy: false,
            next_port: FIRST_PORT,
            summary: Summary::default(),
        }
    }

    fn step(&mut self, bed: &mut Testbed, step: &Step) -> Result<()> {
        self.collect(bed)?;
        let done = match step {
            Step::Wait(micros) => {
                let _ = bed.event().wait(Duration::from_micros(*micros));
                true
            }
            Step::Faults(faults) => {
                self.set_faults(bed, *faults);
                true
            }
            Step::Copy(bytes) => {
                self.begin_copy(bed, *bytes);
                true
            }
            Step::Tcp(bytes) => self.begin_tcp(bed, *bytes),
            Step::Check => {
                self.check(bed)?;
                true
            }
            Step::On(side, act) => {
                let done = self.hosts[side.number()].act(bed, act)?;
                self.note_disturbance();
                done
            }
            Step::Later(micros, side, act) => {
                let done = self.hosts[side.number()].act_later(bed, *micros, act);
                self.note_disturbance();
                done
            }
        };
        let count = if done { &mut self.summary.steps } else { &mut self.summary.skipped };
        *count += 1;
        ensure!(bed.violations().is_empty(), "violations");
        Ok(())
    }

    fn set_faults(&mut self, bed: &Testbed, faults: LinkFaults) {
        let share = |per_mille: u16| f64::from(per_mille) / 1000.0;
        let LinkFaults { loss, duplication, corruption, reordering } = faults;
        let options = Faults {
            loss: share(loss),
            duplication: share(duplication),
            corruption: share(corruption),
            reordering: share(reordering),
            ..Faults::NONE
        };
        for end in [0, 1] {
            bed.wire().set_faults(end, options);
        }
        self.is_lossy = loss + corruption > RECOVERABLE;
        self.note_disturbance();
    }

    fn is_disturbed(&self) -> bool {
        self.is_lossy || self.hosts.iter().any(HostUnderTest::is_disturbed)
    }

    /// Marks the traffic that runs beside a disturbance.
    fn note_disturbance(&mut self) {
        if self.is_disturbed() {
            self.copies.iter_mut().for_each(|copy| copy.disturbed = true);
            self.tcp.iter_mut().for_each(|tcp| tcp.disturbed = true);
        }
    }

    fn begin_copy(&mut self, bed: &Testbed, bytes: usize) {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_PORT);
        let traffic = Copying::begin(bed, bytes, port);
        self.copies.push(Watched { traffic, disturbed: self.is_disturbed() });
    }

    /// Returns `false` if there is a connection, or a host has no adapter.
    fn begin_tcp(&mut self, bed: &Testbed, bytes: usize) -> bool {
        let [alpha, beta] = bed.machines();
        let (Some(first), Some(second), None) = (alpha.miniport(), beta.miniport(), &self.tcp) else {
            return false;
        };
        let traffic = Tcp::begin([(alpha, first), (beta, second)], bytes);
        self.tcp = Some(Watched { traffic, disturbed: self.is_disturbed() });
        true
    }

    /// Judges the traffic that has ended.
    fn collect(&mut self, bed: &Testbed) -> Result<()> {
        let (ended, running) =
            std::mem::take(&mut self.copies).into_iter().partition(|copy| copy.traffic.is_finished());
        self.copies = running;
        for copy in ended {
            self.end_copy(copy)?;
        }
        if let Some(tcp) = self.tcp.take_if(|tcp| tcp.traffic.is_finished()) {
            self.end_tcp(tcp)?;
        }
        ensure!(bed.violations().is_empty(), "violations");
        Ok(())
    }

    fn end_copy(&mut self, copy: Watched<Copying>) -> Result<()> {
        let complete = copy.traffic.join(copy.disturbed)?;
        self.count(complete);
        Ok(())
    }

    fn end_tcp(&mut self, tcp: Watched<Tcp>) -> Result<()> {
        let complete = tcp.traffic.join(tcp.disturbed)?;
        ensure!(complete || tcp.disturbed, "a TCP connection ended early");
        self.count(complete);
        Ok(())
    }

    fn count(&mut self, complete: bool) {
        let count = if complete { &mut self.summary.complete } else { &mut self.summary.lost };
        *count += 1;
    }

    /// Ends disturbances and traffic, and requires that everything works.
    fn check(&mut self, bed: &mut Testbed) -> Result<()> {
        self.set_faults(bed, LinkFaults::default());
        for host in &mut self.hosts {
            host.restore(bed)?;
        }
        self.find_corruption(bed)?;
        // A step may have changed the filter, and the connection would never end.
        for miniport in bed.machines().into_iter().filter_map(Machine::miniport) {
            TcpStack::set_filter(miniport).context("the packet filter")?;
        }
        self.end_traffic(bed)?;
        self.hosts.iter_mut().try_for_each(|host| host.end_disturbances(bed))?;
        self.exchange(bed)?;
        self.summary.checks += 1;
        Ok(())
    }

    /// Has the drivers look at each ring, so that they notice now what a device has done wrong.
    fn find_corruption(&mut self, bed: &mut Testbed) -> Result<()> {
        if self.hosts.iter().any(HostUnderTest::has_misbehaved) {
            self.hosts.iter_mut().for_each(|host| host.probe(bed));
            let _ = bed.event().wait(NOTICED);
            self.hosts.iter_mut().try_for_each(|host| host.settle(bed))?;
            self.hosts.iter_mut().try_for_each(|host| host.renew_rings(bed))?;
        }
        Ok(())
    }

    fn end_traffic(&mut self, bed: &Testbed) -> Result<()> {
        let deadline = bed.now() + LONGEST;
        loop {
            self.collect(bed)?;
            if let Some(tcp) = &self.tcp {
                let current = bed
                    .machines()
                    .map(|machine| machine.miniport().map(|miniport| miniport.adapter().clone()));
                let is_current = |(used, current): (&ndis_sim::Miniport, &Option<_>)| {
                    current.as_ref().is_some_and(|current| std::sync::Arc::ptr_eq(used.adapter(), current))
                };
                // A connection ends with its adapter.
                if !tcp.traffic.miniports().iter().zip(&current).all(is_current) {
                    tcp.traffic.stop();
                }
            }
            if self.copies.is_empty() && self.tcp.is_none() {
                return Ok(());
            }
            ensure!(bed.now() < deadline, "traffic has not ended after {} s: {self:?}", LONGEST.as_secs());
            let _ = bed.event().wait(Duration::from_millis(10));
        }
    }

    /// Frames both ways, a copy and a TCP connection.
    fn exchange(&mut self, bed: &Testbed) -> Result<()> {
        {
            let ends = bed.machines().map(|machine| (machine, machine.miniport()));
            let [(alpha, Some(first)), (beta, Some(second))] = ends else {
                return Err(anyhow!("an adapter is not there"));
            };
            let longest = first.attributes().general.map_or(1514, |general| general.MtuSize as usize + 14);
            traffic::exchange(bed, [(alpha, first), (beta, second)], longest)?;
            traffic::exchange(bed, [(beta, second), (alpha, first)], longest)?;
        }
        self.begin_copy(bed, SAMPLE);
        self.end_traffic(bed)?;
        self.begin_tcp(bed, SAMPLE);
        self.end_traffic(bed)
    }
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} copies, TCP: {}", self.copies.len(), self.tcp.is_some())
    }
}
