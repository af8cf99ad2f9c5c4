// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a script: each of its threads on a thread of its host.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ndis_sim::NdisHost as _;
use nt_sim::{
    Event, Host, JoinHandle,
    nt::io::{File, IoResult, Pending},
};
use parking_lot::Mutex;

use super::{
    bed::Bed,
    outcome::{self, Line, Log},
    script::{Compare, Field, Ioctl, Script, Step, Thread, Variables, bytes},
};

/// Time between two looks at something that changes without a notification.
const POLL: Duration = Duration::from_millis(1);
/// Time between two looks at a script that has not ended.
const LOOK: Duration = Duration::from_millis(100);
/// Time in which the threads of other hosts must end when a host has died.
const AFTER_DEATH: Duration = Duration::from_secs(10);
/// A driver has this long, in units of `POLL`, to let an IOCTL pend that is to be cancelled.
const CANCEL_POLLS: u32 = 10_000;
/// `STATUS_CANCELLED`.
const CANCELLED: i32 = 0xc000_0120_u32.cast_signed();
/// Longer than any script.
const FOREVER: Duration = Duration::from_secs(1 << 32);

/// State that the threads of a script share.
struct ScriptRun {
    log: Log,
    variables: Variables,
    signals: BTreeMap<String, Event>,
    /// Threads that have not ended.
    left: Mutex<usize>,
    all_ended: Event,
    /// Lines of debug output that were there before the script began, by host.
    debug_before: BTreeMap<String, usize>,
}

/// An IOCTL that was started.
struct Started {
    thread: JoinHandle<IoResult>,
    /// Set when the driver's dispatch routine has returned.
    pending: Arc<Mutex<Option<Arc<Pending>>>>,
}

/// A running thread of a script.
struct Player {
    shared: Arc<ScriptRun>,
    host: Arc<Host>,
    name: String,
    files: BTreeMap<String, File>,
    started: BTreeMap<String, Started>,
}

/// Runs a script to its end; returns what happened. With `cut`, the wire is cut after this time.
#[must_use]
pub fn play(bed: &Bed, script: &Arc<Script>, cut: Option<Duration>) -> Vec<Line> {
    let world = bed.sim().world().clone();
    if let Some(after) = cut {
        let wire = bed.wire().clone();
        let at = world.now().saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX));
        world.at(at, move || (0..2).for_each(|end| wire.cut(end)));
    }
    let mut variables = bed.variables();
    variables.add(&script.variables);
    let signals = script.threads.iter().flat_map(Thread::signals);
    let lines = |host: &Arc<Host>| (host.name().to_owned(), host.debug_output().len());
    let shared = Arc::new(ScriptRun {
        log: Log::new(&world),
        variables,
        signals: signals.map(|name| (name.to_owned(), bed.sim().event())).collect(),
        left: Mutex::new(script.threads.len()),
        all_ended: bed.sim().event(),
        debug_before: bed.hosts().iter().map(lines).collect(),
    });
    let mut threads = Vec::new();
    for (number, thread) in script.threads.iter().enumerate() {
        let host = bed.host(thread.on).clone();
        let player = Player {
            shared: shared.clone(),
            host: host.clone(),
            name: thread.name.clone(),
            files: BTreeMap::new(),
            started: BTreeMap::new(),
        };
        let script = script.clone();
        let running = host.spawn(&thread.name, move || player.run(&script.threads[number]));
        threads.push((host, running));
    }
    wait(bed, script, &shared, &threads);
    for (_, thread) in threads {
        if let Err(lost) = thread.join() {
            shared.log.failure("script", lost.to_string());
        }
    }
    shared.log.take()
}

/// Waits until all threads have ended, or are lost with their hosts. Switches the hosts off on which threads are left when
/// the script's time is over.
fn wait(bed: &Bed, script: &Script, shared: &ScriptRun, threads: &[(Arc<Host>, JoinHandle<()>)]) {
    let world = bed.sim().world();
    let after =
        |time: Duration| world.now().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let mut deadline = after(script.limit);
    let mut is_dead = false;
    let runs = |(host, thread): &&(Arc<Host>, JoinHandle<()>)| !thread.is_finished() && !host.is_dead();
    while threads.iter().any(|thread| runs(&thread)) && world.now() < deadline && !world.clock.is_stuck() {
        let _ = shared.all_ended.wait(LOOK);
        if !is_dead && bed.hosts().iter().any(|host| host.is_dead()) {
            is_dead = true;
            deadline = deadline.min(after(AFTER_DEATH));
        }
    }
    if world.clock.is_stuck() {
        return;
    }
    for (host, _) in threads.iter().filter(runs) {
        if !is_dead {
            let text = format!("it has not ended after {:?}; {} is switched off", script.limit, host.name());
            shared.log.failure("script", text);
        }
        host.kill();
    }
}

impl Player {
    fn run(mut self, thread: &Thread) {
        for step in &thread.steps {
            if let Err(reason) = self.step(step) {
                self.shared.log.failure(&self.name, reason);
            }
        }
        // A program that ends closes its handles, which cancels what is pending.
        for file in std::mem::take(&mut self.files).into_values() {
            file.close();
        }
        let mut left = self.shared.left.lock();
        *left -= 1;
        let is_last = *left == 0;
        drop(left);
        if is_last {
            self.shared.all_ended.set();
        }
    }

    /// Runs a step; returns why it is not as the script says.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let variables = &self.shared.variables;
        match step {
            Step::Open { device, handle, status } => self.open(&variables.expand(device)?, handle, status),
            Step::Ioctl(ioctl) => self.ioctl(ioctl),
            Step::Close { handle } => {
                let file = self.files.remove(handle).ok_or_else(|| no_handle(handle))?;
                file.close();
                self.note(format!("closed {handle}"));
                Ok(())
            }
            Step::Cancel { name } => self.cancel(name),
            Step::Finish { name, compare } => {
                let started = self.started.remove(name).ok_or_else(|| format!("'{name}' was not started"))?;
                let result = started.thread.join().map_err(|lost| lost.to_string())?;
                self.compare(name, &result, compare)
            }
            Step::Wait(time) => {
                let _ = self.host.event().wait(*time);
                Ok(())
            }
            Step::Signal(name) => {
                if let Some(signal) = self.shared.signals.get(name) {
                    signal.set();
                }
                Ok(())
            }
            Step::WaitFor { signal, within } => {
                let event = self.shared.signals.get(signal).ok_or("there is no such signal")?;
                if event.wait(*within) {
                    Ok(())
                } else {
                    Err(format!("no signal '{signal}' within {within:?}"))
                }
            }
            Step::Debug { text, within } => self.debug(text, *within),
            Step::File { path, content } => {
                let path = variables.expand(path)?;
                let bytes =
                    self.host.files().read(&path).ok_or_else(|| format!("there is no file {path}"))?;
                outcome::check_file(&bytes, content, variables)?;
                self.note(format!("{path}: {} bytes, as expected", bytes.len()));
                Ok(())
            }
            Step::Write { path, data } => {
                let (path, data) = (variables.expand(path)?, bytes(data, None, variables)?);
                let written = self.host.files().write(&path, &data);
                written.map_err(|status| format!("{path}: {}", outcome::status(status.cast_unsigned())))
            }
            Step::Remove { path } => {
                self.host.files().remove(&variables.expand(path)?);
                Ok(())
            }
            Step::Pool { size, fields } => self.pool(*size, fields),
        }
    }

    fn note(&self, text: String) {
        self.shared.log.note(&self.name, text);
    }

    fn open(&mut self, device: &str, handle: &str, expected: &[u32]) -> Result<(), String> {
        let opened = self.host.open_device(device);
        let status = opened.as_ref().err().copied().unwrap_or(0).cast_unsigned();
        if let Ok(file) = opened {
            if self.files.contains_key(handle) {
                file.close();
                return Err(format!("the handle '{handle}' is open already"));
            }
            self.files.insert(handle.to_owned(), file);
        }
        let text = format!("open {device}: {}", outcome::status(status));
        if expected.is_empty() || expected.contains(&status) {
            self.note(text);
            return Ok(());
        }
        Err(format!("{text}, not {}", outcome::statuses(expected)))
    }

    fn ioctl(&mut self, ioctl: &Ioctl) -> Result<(), String> {
        let variables = &self.shared.variables;
        let input = bytes(&ioctl.input, ioctl.size, variables)?;
        let data = bytes(&ioctl.data, ioctl.output, variables)?;
        let file = self.files.get(&ioctl.handle).ok_or_else(|| no_handle(&ioctl.handle))?.clone();
        let code = ioctl.code;
        let Some(name) = &ioctl.start else {
            let result = file.start_ioctl(code, &input, data).wait();
            return self.compare(&format!("IOCTL {code:#010x}"), &result, &ioctl.compare);
        };
        let pending = Arc::new(Mutex::new(None));
        let place = pending.clone();
        let thread = self.host.spawn(&format!("{} {name}", self.name), move || {
            let pending = Arc::new(file.start_ioctl(code, &input, data));
            *place.lock() = Some(pending.clone());
            let lost = IoResult { status: CANCELLED, information: 0, output: Vec::new() };
            pending.wait_for(FOREVER).unwrap_or(lost)
        });
        self.note(format!("IOCTL {code:#010x} started as '{name}'"));
        self.started.insert(name.clone(), Started { thread, pending });
        Ok(())
    }

    fn cancel(&self, name: &str) -> Result<(), String> {
        let started = self.started.get(name).ok_or_else(|| format!("'{name}' was not started"))?;
        // Its driver may still be in its dispatch routine.
        for _ in 0..CANCEL_POLLS {
            if let Some(pending) = started.pending.lock().clone() {
                let outcome =
                    if pending.cancel() { "cancelled" } else { "cannot be cancelled, or is complete" };
                self.note(format!("'{name}': {outcome}"));
                return Ok(());
            }
            let _ = self.host.event().wait(POLL);
        }
        Err(format!("'{name}' does not pend: the driver keeps the calling thread"))
    }

    fn debug(&self, text: &str, within: Duration) -> Result<(), String> {
        let before = self.shared.debug_before.get(self.host.name()).copied().unwrap_or(0);
        let deadline =
            self.host.world().now().saturating_add(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let output = self.host.debug_output();
            if output.iter().skip(before).any(|line| line.contains(text)) {
                self.note(format!("debug output: {text}"));
                return Ok(());
            }
            if self.host.world().now() >= deadline {
                return Err(format!("no debug output \"{text}\" within {within:?}"));
            }
            let _ = self.host.event().wait(POLL);
        }
    }

    fn pool(&self, size: usize, fields: &[Field]) -> Result<(), String> {
        let block = self.host.memory.pool.find(size, None);
        let mut contents = vec![0; size];
        block.ok_or_else(|| format!("there is no pool block of {size} bytes"))?.read_bytes(&mut contents);
        outcome::check_block(&contents, fields, &self.shared.variables)?;
        self.note(format!("the pool block of {size} bytes is as expected"));
        Ok(())
    }

    fn compare(&self, what: &str, result: &IoResult, compare: &Compare) -> Result<(), String> {
        let status = outcome::status(result.status.cast_unsigned());
        outcome::check_result(result, compare, &self.shared.variables)
            .map_err(|reason| format!("{what}: {status}; {reason}"))?;
        self.note(format!("{what}: {status}, {} bytes", result.information));
        Ok(())
    }
}

fn no_handle(handle: &str) -> String {
    format!("there is no handle '{handle}'")
}
