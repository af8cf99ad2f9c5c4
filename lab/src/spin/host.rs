// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host of a script: what it does to its adapter and its device, and what may be expected of them then.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use device_sim::{
    Nic,
    virtio_net::{Features, UsedQuirk},
};
use ndis_sim::{AdapterState, Miniport, offload::encapsulation};
use ndk_abi::{
    ndis::{OID_GEN_VLAN_ID, OID_OFFLOAD_ENCAPSULATION},
    ndk::OID_NDK_SET_STATE,
};
use nt_sim::{JoinHandle, nt::time::sleep};
use viordma_inf::events::{Message, Severity};

use super::{
    misbehavior::Misbehavior,
    reasons::Reasons,
    requests,
    script::Setup,
    silence::Silence,
    step::{Act, Side},
    traffic::{self, Sends},
};
use crate::{machine::Machine, testbed::Testbed, trace::TracedEvent};

/// How long an adapter may take until it works again, in virtual time: the longest pause of one that fails again and again, and its resets.
const LONGEST: Duration = Duration::from_mins(2);
/// The longest pause of a script.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// How much later than the step before an act for later can be.
pub const LATER: Duration = Duration::from_millis(5);
/// How long a stack keeps received lists once the adapter is to be paused.
const SLOW_RETURN: u64 = 3_000_000;
/// The corrupt rings within [`SHORT_TIME`] after which the driver gives up its device.
const FAILURES: usize = 4;
/// A minute, and the time until the driver has noticed a failure.
const SHORT_TIME: Duration = Duration::from_secs(65);
/// The number of an allocation that is not reached.
const NEVER: u64 = u64::MAX / 2;

/// A host, and what has happened to it.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct HostUnderTest {
    side: Side,
    nic: Arc<Nic>,
    /// Since the last check: what may end traffic.
    disturbed: bool,
    /// The adapter is in D3.
    is_asleep: bool,
    /// The adapter is shut down.
    is_off: bool,
    /// The device must be replaced before an adapter can start on it.
    is_broken: bool,
    /// The stack keeps received lists.
    keeps: bool,
    /// Since the last check: the device has failed.
    has_failed: bool,
    /// When the device may have corrupted a ring since the adapter was started.
    corruptions: Vec<Duration>,
    /// The driver may have its adapter removed.
    may_be_removed: bool,
    /// Times in which the device takes no frames to send.
    silence: Silence,
    /// Since the last check: resets of queues take longer than usual.
    has_slow_queue_resets: bool,
    /// Pairs whose transmit queue the device has stalled.
    stalled: Vec<usize>,
    /// Since the last check: the device has misbehaved.
    misbehaved: bool,
    /// A buffer was returned twice since the last check.
    has_repeated: bool,
    /// The VLAN of the adapter's configuration.
    vlan: u16,
    reasons: Reasons,
    sends: Vec<(Sends, bool)>,
    later: Vec<JoinHandle<Option<Sends>>>,
}

impl HostUnderTest {
    /// Creates a host of a script.
    pub fn new(side: Side, nic: Arc<Nic>, setup: &Setup) -> Self {
        Self {
            side,
            nic,
            disturbed: false,
            is_asleep: false,
            is_off: false,
            is_broken: false,
            keeps: false,
            has_failed: false,
            corruptions: Vec::new(),
            may_be_removed: false,
            silence: Silence::default(),
            has_slow_queue_resets: false,
            stalled: Vec::new(),
            misbehaved: false,
            has_repeated: false,
            vlan: setup.vlan(),
            reasons: Reasons::new(setup, side),
            sends: Vec::new(),
            later: Vec::new(),
        }
    }

    pub fn is_disturbed(&self) -> bool {
        self.disturbed
    }

    /// Does an act. Returns `false` if the adapter's state does not allow it.
    ///
    /// # Errors
    /// The adapter does not do what it has to do.
    pub fn act(&mut self, bed: &mut Testbed, act: &Act) -> Result<bool> {
        let machine = bed.machine_mut(self.side.number());
        let miniport =
            machine.miniport().filter(|miniport| miniport.state() != AdapterState::Halted).cloned();
        if act.can_be_later() {
            let Some(miniport) = miniport else { return Ok(false) };
            let is_offered = *act != Act::Announce || self.may_announce();
            if self.is_asleep && act.is_request() || !is_offered {
                return Ok(false);
            }
            self.expect(bed.now(), act);
            let outcome = act_now(&self.nic, &miniport, act, self.route(bed));
            self.sends.extend(outcome.map(|sends| (sends, self.disturbed)));
            return Ok(true);
        }
        let is_started = miniport.is_some();
        self.reasons.note(act);
        match act {
            Act::Unsteady(on) => {
                self.nic.misbehavior().set_config_unsteady(*on);
                self.has_failed = true;
            }
            Act::Stuck => {
                self.nic.misbehavior().stop_resetting();
                self.is_broken = true;
            }
            Act::Shortage(share) => {
                machine.host().low_resources.fail_per_mille(u64::from(*share));
                self.has_failed = true;
            }
            Act::FailNth(number) => {
                machine.host().low_resources.fail_nth(u64::from(*number));
                self.has_failed = true;
            }
            Act::Start if !is_started && !self.is_off => self.start(machine)?,
            Act::Insert if !is_started => self.insert(),
            _ => {
                let Some(miniport) = miniport.filter(|_| !self.is_off) else { return Ok(false) };
                return self.transition(machine, &miniport, act);
            }
        }
        self.disturbed = true;
        Ok(true)
    }

    /// Acts of the PnP and the power manager on a started adapter.
    fn transition(&mut self, machine: &mut Machine, miniport: &Miniport, act: &Act) -> Result<bool> {
        if let Act::Keep(on) = act {
            self.keep(miniport, *on);
            return Ok(true);
        }
        let allowed = match act {
            Act::Restart | Act::Sleep => !self.is_asleep,
            Act::Wake => self.is_asleep,
            Act::Halt | Act::Reenable | Act::Remove | Act::ShutDown => true,
            _ => false,
        };
        if !allowed {
            return Ok(false);
        }
        self.return_soon(machine, miniport);
        self.disturbed = true;
        match act {
            Act::Restart => {
                miniport.pause()?;
                self.restart(miniport)?;
            }
            Act::Sleep => {
                miniport.sleep()?;
                self.is_asleep = true;
            }
            Act::Wake => self.wake(miniport)?,
            Act::Remove => {
                machine.surprise_remove_adapter()?;
                (self.is_broken, self.is_asleep) = (true, false);
            }
            Act::ShutDown => {
                miniport.shut_down()?;
                (self.is_off, self.is_broken) = (true, true);
            }
            _ => {
                machine.halt_adapter()?;
                self.is_asleep = false;
                if *act == Act::Reenable {
                    self.start(machine)?;
                }
            }
        }
        Ok(true)
    }

    /// Has an act done on a thread of the host, `micros` microseconds from now. Returns `false` if the adapter is not started.
    pub fn act_later(&mut self, bed: &Testbed, micros: u64, act: &Act) -> bool {
        let machine = bed.machines()[self.side.number()];
        let Some(miniport) = machine.miniport().cloned() else { return false };
        if *act == Act::Announce && !self.may_announce() {
            return false;
        }
        self.expect(bed.now(), act);
        let (nic, act, route) = (self.nic.clone(), act.clone(), self.route(bed));
        self.later.push(machine.host().spawn("later", move || {
            sleep(micros * 1000);
            act_now(&nic, &miniport, &act, route)
        }));
        true
    }

    /// Notes what an act at the time `now` may lead to.
    fn expect(&mut self, now: Duration, act: &Act) {
        self.reasons.note(act);
        match act {
            Act::Misbehave(misbehavior) => {
                // The driver notices it later, or not at all.
                self.corruptions.push(now);
                (self.has_failed, self.disturbed, self.misbehaved) = (true, true, true);
                self.has_repeated |= matches!(misbehavior, Misbehavior::Corrupt(_, UsedQuirk::IdTwice));
                let is_withdrawn = matches!(misbehavior, Misbehavior::Withdrawn(_));
                self.may_be_removed |= is_withdrawn;
                self.is_broken |= is_withdrawn;
            }
            Act::Vanish => {
                (self.is_broken, self.may_be_removed, self.disturbed) = (true, true, true);
            }
            Act::Fail => (self.has_failed, self.disturbed) = (true, true),
            Act::Stall(pair) => {
                self.stalled.push(self.pair(*pair));
                self.disturbed = true;
            }
            Act::PauseSending(time) => {
                // An act for later begins by then.
                self.silence.add(now, millis(*time) + LATER);
                self.note_silence();
            }
            Act::QueueResetTime(_) => {
                self.has_slow_queue_resets = true;
                self.note_silence();
            }
            Act::Link(_) | Act::Rdma(_) | Act::Set(..) | Act::Vlan(_) | Act::Cancel => self.disturbed = true,
            _ => {}
        }
    }

    /// A connection may end if the device takes no frames for as long as its retries take. The stack loses no frame in a shorter time, either.
    fn note_silence(&mut self) {
        let is_prolonged = self.has_slow_queue_resets && self.silence.resets_queues();
        self.disturbed |= is_prolonged || self.silence.ends_connections();
    }

    /// Returns a pair of the device.
    fn pair(&self, number: u16) -> usize {
        usize::from(number % self.nic.options().pairs)
    }

    /// Returns the station addresses of a frame to the other host, destination first. That of a host without an adapter is its
    /// device's.
    fn route(&self, bed: &Testbed) -> [[u8; 6]; 2] {
        let station = |number: usize| {
            let machine = bed.machines()[number];
            machine.miniport().map_or_else(|| machine.nic().options().mac, traffic::station)
        };
        let own = self.side.number();
        [1 - own, own].map(station)
    }

    /// Whether the device can ask for announcements: it does so in its status.
    fn may_announce(&self) -> bool {
        self.nic.options().features.contains(Features::GUEST_ANNOUNCE | Features::STATUS)
    }

    fn keep(&mut self, miniport: &Miniport, on: bool) {
        miniport.stack().keep(on);
        self.keeps = on;
        self.disturbed = true;
    }

    /// Has the stack return what it keeps while the adapter is being paused.
    fn return_soon(&mut self, machine: &Machine, miniport: &Miniport) {
        if std::mem::take(&mut self.keeps) {
            let miniport = miniport.clone();
            self.later.push(machine.host().spawn("return", move || {
                sleep(SLOW_RETURN);
                miniport.stack().keep(false);
                None
            }));
        }
    }

    fn may_fail(&self) -> bool {
        self.may_be_removed || self.is_broken || self.has_failed
    }

    fn start(&mut self, machine: &mut Machine) -> Result<()> {
        self.corruptions.clear();
        self.is_asleep = false;
        match machine.start_adapter() {
            Err(error) if !self.may_fail() => Err(error.context("the adapter does not start")),
            _ => Ok(()),
        }
    }

    fn restart(&self, miniport: &Miniport) -> Result<()> {
        match miniport.restart() {
            Err(error) if !self.may_fail() => {
                Err(anyhow::Error::from(error).context("the adapter does not restart"))
            }
            _ => Ok(()),
        }
    }

    fn wake(&mut self, miniport: &Miniport) -> Result<()> {
        self.is_asleep = false;
        match miniport.wake() {
            Err(error) if !self.may_fail() => {
                Err(anyhow::Error::from(error).context("the adapter does not wake"))
            }
            _ => Ok(()),
        }
    }

    fn insert(&mut self) {
        self.nic.insert();
        self.is_broken = false;
    }

    /// Brings the adapter back to work.
    ///
    /// # Errors
    /// It does not work, or it was removed without a reason.
    pub fn restore(&mut self, bed: &mut Testbed) -> Result<()> {
        for later in std::mem::take(&mut self.later) {
            let sends = later.join()?;
            self.sends.extend(sends.map(|sends| (sends, true)));
        }
        let machine = bed.machine_mut(self.side.number());
        let resources = &machine.host().low_resources;
        resources.fail_per_mille(0);
        resources.fail_nth(NEVER);
        self.nic.misbehavior().set_config_unsteady(false);
        if let Some(miniport) = machine.miniport().cloned() {
            self.return_soon(machine, &miniport);
            if self.is_asleep {
                self.wake(&miniport)?;
            }
        }
        if self.is_broken {
            machine.halt_adapter()?;
            self.insert();
            self.is_off = false;
        }
        self.await_pauses(bed);
        self.nic.behave();
        self.await_settled(bed)?;
        self.await_commands(bed)?;
        // A change of the link that the driver could not read is followed by one that it can.
        self.nic.set_link(false);
        self.nic.set_link(true);
        self.end_stalls(bed)?;
        self.restore_vlan(bed)?;
        self.await_rdma(bed)?;
        self.await_announcement(bed)
    }

    /// Waits until pauses of the device have ended, except those that last beyond each script.
    fn await_pauses(&self, bed: &Testbed) {
        let left = self.nic.pause_left();
        if left <= LONGEST_PAUSE {
            let _ = bed.event().wait(left);
        }
    }

    /// Waits until the driver has reset a device that has left commands without an answer.
    fn await_commands(&mut self, bed: &mut Testbed) -> Result<()> {
        let deadline = bed.now() + LONGEST;
        while self.nic.misbehavior().left_commands() > 0 {
            ensure!(
                bed.now() < deadline,
                "{}: a command is not answered, and the device not reset",
                self.side
            );
            let _ = bed.event().wait(Duration::from_millis(10));
            self.await_settled(bed)?;
        }
        Ok(())
    }

    /// Returns whether the device has misbehaved since the last check.
    pub fn has_misbehaved(&self) -> bool {
        self.misbehaved
    }

    /// Sends frames of many flows, of which the peer need not get any.
    pub fn probe(&mut self, bed: &Testbed) {
        if let Some(miniport) = bed.machines()[self.side.number()].miniport() {
            self.sends.push((Sends::to_all_queues(miniport, self.route(bed)), true));
        }
    }

    /// Waits until the driver has answered what it has found in the rings since the device misbehaved.
    pub fn settle(&mut self, bed: &mut Testbed) -> Result<()> {
        self.corruptions.push(bed.now());
        self.await_settled(bed)?;
        self.await_commands(bed)?;
        self.await_rdma(bed)
    }

    /// Has the driver begin with new rings after a buffer was returned twice. If the driver had made the buffer available again, it has
    /// noticed nothing, and does so whenever the device uses the buffer twice between two polls.
    pub fn renew_rings(&mut self, bed: &mut Testbed) -> Result<()> {
        if !std::mem::take(&mut self.has_repeated) {
            return Ok(());
        }
        if let Some(miniport) = bed.machines()[self.side.number()].miniport().cloned() {
            miniport.sleep()?;
            self.wake(&miniport)?;
        }
        self.settle(bed)
    }

    /// Puts the adapter into the VLAN of its configuration.
    fn restore_vlan(&self, bed: &Testbed) -> Result<()> {
        let machine = bed.machines()[self.side.number()];
        let miniport = machine.miniport().context("the adapter has started")?;
        // One that has no VLANs refuses it.
        let _ = miniport.set(OID_GEN_VLAN_ID, &u32::from(self.vlan).to_le_bytes());
        Ok(())
    }

    /// Sends frames until the driver has noticed the queues that are stalled, and has reset them or the device.
    fn end_stalls(&mut self, bed: &mut Testbed) -> Result<()> {
        let deadline = bed.now() + LONGEST;
        let stalled = std::mem::take(&mut self.stalled);
        // The driver sends by fewer pairs than the device has if there are fewer processors.
        let is_used = |nic: &Nic, pair| pair < nic.active_pairs() && nic.misbehavior().is_hung(pair);
        while stalled.iter().any(|&pair| is_used(&self.nic, pair)) {
            ensure!(bed.now() < deadline, "{}: a stalled transmit queue is not reset", self.side);
            self.await_settled(bed)?;
            if let Some(miniport) = bed.machines()[self.side.number()].miniport() {
                let sends = Sends::to_all_queues(miniport, self.route(bed));
                self.sends.push((sends, true));
            }
            let _ = bed.event().wait(Duration::from_millis(200));
        }
        self.await_settled(bed)
    }

    /// Waits until the driver has acknowledged that it has announced its addresses.
    fn await_announcement(&self, bed: &Testbed) -> Result<()> {
        let deadline = bed.now() + LONGEST;
        while self.may_announce() && self.nic.is_announcement_asked() {
            ensure!(bed.now() < deadline, "{}: an announcement is not acknowledged", self.side);
            let _ = bed.event().wait(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Waits until the adapter works; starts it if it is halted.
    fn await_settled(&mut self, bed: &mut Testbed) -> Result<()> {
        let deadline = bed.now() + LONGEST;
        loop {
            let recent = bed.now().saturating_sub(SHORT_TIME);
            let machine = bed.machine_mut(self.side.number());
            let state = machine.miniport().map_or(AdapterState::Halted, Miniport::state);
            let miniport = machine.miniport().cloned();
            match (state, miniport) {
                (AdapterState::Running, _) if self.nic.is_running() => return Ok(()),
                (AdapterState::Paused, Some(miniport)) => {
                    let _ = miniport.restart();
                }
                (AdapterState::Halted, miniport) => {
                    // Halted by NDIS at the request of the driver.
                    let removed = miniport.is_some();
                    let corruptions = self.corruptions.iter().filter(|&&at| at >= recent).count();
                    ensure!(
                        !removed || self.may_be_removed || corruptions >= FAILURES,
                        "the adapter of {} was removed after {corruptions} corrupt rings",
                        self.side
                    );
                    machine.start_adapter().with_context(|| format!("{} does not start again", self.side))?;
                    self.corruptions.clear();
                }
                _ => {}
            }
            if bed.now() >= deadline {
                bail!(
                    "the adapter of {} is {state:?} after {} s, its device {}",
                    self.side,
                    LONGEST.as_secs(),
                    if self.nic.is_running() { "runs" } else { "does not run" }
                );
            }
            let _ = bed.event().wait(Duration::from_millis(10));
        }
    }

    /// Enables RDMA, and waits until it is.
    fn await_rdma(&self, bed: &Testbed) -> Result<()> {
        let machine = bed.machines()[self.side.number()];
        let miniport = machine.miniport().context("the adapter has started")?;
        miniport.set(OID_NDK_SET_STATE, &[1]).context("RDMA cannot be enabled")?;
        let deadline = bed.now() + LONGEST;
        loop {
            match miniport.ndk().open(2, 0) {
                Ok(opened) => return Ok(miniport.ndk().close(opened)?),
                Err(status) => {
                    ensure!(bed.now() < deadline, "{}: RDMA is not available: {status:#010x}", self.side);
                }
            }
            let _ = bed.event().wait(Duration::from_millis(10));
        }
    }

    /// Requires that each send was completed and that the events have reasons, and forgets the disturbances.
    ///
    /// # Errors
    /// A send was not, or an event has none.
    pub fn end_disturbances(&mut self, bed: &Testbed) -> Result<()> {
        for (sends, disturbed) in std::mem::take(&mut self.sends) {
            sends.join(disturbed || self.disturbed).with_context(|| self.side.to_string())?;
        }
        let machine = bed.machines()[self.side.number()];
        self.reasons.judge(&logged(machine)).with_context(|| self.side.to_string())?;
        (self.disturbed, self.may_be_removed, self.has_failed) = (false, false, false);
        (self.misbehaved, self.has_slow_queue_resets) = (false, false);
        Ok(())
    }
}

/// Returns the numbers of the warnings and errors that a driver had for the system log. They are those of its trace, which also has the events that are
/// left out of the log because they come too often.
fn logged(machine: &Machine) -> Vec<u32> {
    let events = TracedEvent::of(&[machine.host()]);
    let of_log = events.iter().filter(|event| event.name() == "EventLogged");
    let numbers = of_log.filter_map(|event| event.field("Number").parse().ok());
    let is_information = |message: &Message| message.event.severity() == Severity::Information;
    numbers.filter(|&number| !Message::of(number).is_some_and(is_information)).collect()
}

fn millis(time: u32) -> Duration {
    Duration::from_millis(time.into())
}

/// Does an act that needs no thread of the PnP manager. Returns the sends that it has begun.
fn act_now(nic: &Arc<Nic>, miniport: &Miniport, act: &Act, route: [[u8; 6]; 2]) -> Option<Sends> {
    match act {
        Act::Vanish => {
            nic.remove();
            nic.interrupt(0);
        }
        Act::Fail => nic.need_reset(),
        Act::Interrupt(vector) => nic.interrupt(*vector),
        Act::Link(up) => nic.set_link(*up),
        Act::Rdma(on) => {
            let _ = miniport.set(OID_NDK_SET_STATE, &[u8::from(*on)]);
        }
        Act::Rss(processors) => requests::set_rss(miniport, *processors),
        Act::ReceiveHash(on) => requests::set_receive_hash(miniport, *on),
        Act::RssPart(part) => requests::set_rss_part(miniport, *part),
        Act::Coalescing(versions) => requests::set_coalescing(miniport, *versions),
        Act::Encapsulation(versions) => {
            let _ = miniport.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation(*versions));
        }
        Act::Stall(pair) => nic.misbehavior().hang(usize::from(pair % nic.options().pairs)),
        Act::PauseCommands(time) => nic.pause_commands(millis(*time)),
        Act::PauseSending(time) => nic.pause_sending(millis(*time)),
        Act::CommandTime(time) => nic.set_command_time(millis(*time)),
        Act::ResetTime(time) => nic.set_reset_time(millis(*time)),
        Act::QueueResetTime(time) => nic.set_queue_reset_time(millis(*time)),
        Act::Announce => nic.announce(),
        Act::Misbehave(misbehavior) => misbehavior.begin(nic),
        Act::Speed(megabits) => nic.set_speed(*megabits),
        Act::Vlan(id) => {
            let _ = miniport.set(OID_GEN_VLAN_ID, &u32::from(*id).to_le_bytes());
        }
        Act::Query(oid, length) => {
            let _ = miniport.query(*oid, *length);
        }
        Act::Set(oid, bytes) => {
            let _ = miniport.set(*oid, bytes);
        }
        Act::Frames { count, length } => {
            let longest = miniport.attributes().general.map_or(1514, |general| general.MtuSize as usize + 14);
            return Some(Sends::begin(miniport, route, *count, (*length).min(longest)));
        }
        Act::Cancel => miniport.cancel_sends(1),
        _ => {}
    }
    None
}
