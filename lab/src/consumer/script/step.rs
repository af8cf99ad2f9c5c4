// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads and steps of scripts.

use std::{collections::BTreeSet, path::Path, time::Duration};

use super::{
    field::{self, Field},
    raw,
    variables::{Role, Variables},
};

/// A handle that a step does not name.
const HANDLE: &str = "device";
/// How long a step waits for something, unless it says otherwise.
const WITHIN: Duration = Duration::from_secs(10);

/// A thread of a program: its steps run one after the other.
#[derive(Debug)]
pub struct Thread {
    pub name: String,
    pub on: Role,
    pub steps: Vec<Step>,
}

#[derive(Debug)]
pub enum Step {
    /// Opens a device, or expects one of other statuses.
    Open {
        device: String,
        handle: String,
        status: Vec<u32>,
    },
    Ioctl(Ioctl),
    Close {
        handle: String,
    },
    /// Cancels an IOCTL that was started.
    Cancel {
        name: String,
    },
    /// Waits for an IOCTL that was started, and compares its outcome.
    Finish {
        name: String,
        compare: Compare,
    },
    /// Lets time pass.
    Wait(Duration),
    Signal(String),
    /// Waits for a signal of another thread.
    WaitFor {
        signal: String,
        within: Duration,
    },
    /// Waits for debug output of the host that contains a text.
    Debug {
        text: String,
        within: Duration,
    },
    /// Compares a file of the host.
    File {
        path: String,
        content: Content,
    },
    /// Makes a file of the host, or replaces it.
    Write {
        path: String,
        data: Vec<Field>,
    },
    /// Removes a file of the host, if it is there.
    Remove {
        path: String,
    },
    /// Compares the first pool block of this size.
    Pool {
        size: usize,
        fields: Vec<Field>,
    },
}

/// An IOCTL.
#[derive(Debug)]
pub struct Ioctl {
    pub code: u32,
    pub handle: String,
    pub input: Vec<Field>,
    /// Length of the input in bytes, if it does not end with the last field.
    pub size: Option<usize>,
    /// Content of the output buffer before the call: data of METHOD_IN_DIRECT.
    pub data: Vec<Field>,
    /// Length of the output buffer in bytes, if it is not that of the data.
    pub output: Option<usize>,
    /// The name under which it is started; otherwise the step waits for it.
    pub start: Option<String>,
    pub compare: Compare,
}

/// Expected outcome of an IOCTL.
#[derive(Debug, Default)]
pub struct Compare {
    /// Statuses; empty: any.
    pub status: Vec<u32>,
    /// Numbers of output bytes; empty: any.
    pub length: Vec<usize>,
    pub fields: Vec<Field>,
    /// Ranges that have to be equal: two offsets and a length.
    pub equal: Vec<(usize, usize, usize)>,
}

/// Expected content of a file.
#[derive(Debug)]
pub struct Content {
    /// Lengths in bytes; empty: any.
    pub length: Vec<usize>,
    pub fields: Vec<Field>,
    /// The file is this text, so many times.
    pub repeats: Option<(String, Vec<usize>)>,
}

/// Checks a thread.
pub fn thread(raw: raw::Thread, directory: &Path) -> Result<Thread, String> {
    let on = Role::parse(&raw.on).map_err(|reason| format!("thread '{}': {reason}", raw.name))?;
    let mut steps = Vec::new();
    for (number, step) in (1..).zip(raw.step) {
        let step = step_of(step, directory);
        steps.push(step.map_err(|reason| format!("thread '{}', step {number}: {reason}", raw.name))?);
    }
    Ok(Thread { name: raw.name, on, steps })
}

/// Checks names that threads use of each other: of threads, of signals, of IOCTLs that were started.
pub fn check_names(threads: &[Thread]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let signals: BTreeSet<&str> = threads.iter().flat_map(Thread::signals).collect();
    for thread in threads {
        let at = |reason: String| format!("thread '{}': {reason}", thread.name);
        if !names.insert(&thread.name) {
            return Err(format!("two threads are named '{}'", thread.name));
        }
        let mut started = BTreeSet::new();
        for step in &thread.steps {
            match step {
                Step::Ioctl(Ioctl { start: Some(name), .. }) if !started.insert(name.as_str()) => {
                    return Err(at(format!("'{name}' is started twice without a finish")));
                }
                Step::Cancel { name } if !started.contains(name.as_str()) => {
                    return Err(at(format!("no IOCTL was started as '{name}'")));
                }
                Step::Finish { name, .. } if !started.remove(name.as_str()) => {
                    return Err(at(format!("no IOCTL was started as '{name}'")));
                }
                Step::WaitFor { signal, .. } if !signals.contains(signal.as_str()) => {
                    return Err(at(format!("no thread signals '{signal}'")));
                }
                _ => {}
            }
        }
        if let Some(name) = started.first() {
            return Err(at(format!("'{name}' is started and never finished")));
        }
    }
    Ok(())
}

/// Reads a time: `20us`, `1.5s`, `200 ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parse = || {
        let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
        let scale = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            _ => return None,
        };
        Duration::try_from_secs_f64(number.trim().parse::<f64>().ok()? * scale).ok()
    };
    parse().ok_or_else(|| format!("'{text}' is not a time such as 200ms, 1.5s, 2min"))
}

impl Thread {
    /// Builds all buffers once, so that wrong values are found before anything runs.
    pub fn check(&self, variables: &Variables) -> Result<(), String> {
        for (number, step) in (1..).zip(&self.steps) {
            let at = |reason| format!("thread '{}', step {number}: {reason}", self.name);
            step.check(variables).map_err(at)?;
        }
        Ok(())
    }

    /// Returns the signals that it sets.
    pub fn signals(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Signal(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl Step {
    fn check(&self, variables: &Variables) -> Result<(), String> {
        match self {
            Self::Open { device, .. } => variables.expand(device).map(drop),
            Self::Ioctl(ioctl) => {
                field::bytes(&ioctl.input, ioctl.size, variables)?;
                field::bytes(&ioctl.data, ioctl.output, variables)?;
                ioctl.compare.check(variables)
            }
            Self::Finish { compare, .. } => compare.check(variables),
            Self::File { path, content } => {
                variables.expand(path)?;
                field::layout(&content.fields, variables).map(drop)
            }
            Self::Write { path, data } => {
                variables.expand(path)?;
                field::bytes(data, None, variables).map(drop)
            }
            Self::Remove { path } => variables.expand(path).map(drop),
            Self::Pool { size, fields } => field::bytes(fields, Some(*size), variables).map(drop),
            _ => Ok(()),
        }
    }
}

impl Compare {
    fn check(&self, variables: &Variables) -> Result<(), String> {
        field::layout(&self.fields, variables).map(drop)
    }
}

/// The members of a raw step that were not used yet: what is left at the end does not belong to the step.
struct Members(raw::Step);

impl Members {
    fn handle(&mut self) -> String {
        self.0.handle.take().unwrap_or_else(|| HANDLE.to_owned())
    }

    fn status(&mut self) -> Option<Vec<u32>> {
        self.0.status.take().map(raw::OneOrMore::list)
    }

    fn length(&mut self) -> Vec<usize> {
        self.0.length.take().map_or_else(Vec::new, raw::OneOrMore::list)
    }

    fn within(&mut self) -> Result<Duration, String> {
        self.0.within.take().map_or(Ok(WITHIN), |text| duration(&text))
    }

    fn compare(&mut self, directory: &Path) -> Result<Compare, String> {
        let equal = self.0.equal.take().unwrap_or_default();
        Ok(Compare {
            status: self.status().unwrap_or_else(|| vec![0]),
            length: self.length(),
            fields: fields(self.0.expect.take(), directory)?,
            equal: equal.iter().map(|equal| (equal.at, equal.to, equal.length)).collect(),
        })
    }

    /// Returns the name of a member that was not used.
    fn left(&self) -> Option<&'static str> {
        let step = &self.0;
        let left = [
            ("handle", step.handle.is_some()),
            ("start", step.start.is_some()),
            ("input", step.input.is_some()),
            ("size", step.size.is_some()),
            ("data", step.data.is_some()),
            ("output", step.output.is_some()),
            ("status", step.status.is_some()),
            ("length", step.length.is_some()),
            ("expect", step.expect.is_some()),
            ("equal", step.equal.is_some()),
            ("repeats", step.repeats.is_some()),
            ("times", step.times.is_some()),
            ("within", step.within.is_some()),
        ];
        left.into_iter().find_map(|(name, is_there)| is_there.then_some(name))
    }
}

fn fields(raw: Option<Vec<raw::Field>>, directory: &Path) -> Result<Vec<Field>, String> {
    raw.unwrap_or_default().into_iter().map(|field| Field::new(field, directory)).collect()
}

/// The members that say what a step does.
const VERBS: [&str; 13] = [
    "open", "ioctl", "close", "cancel", "finish", "wait", "signal", "wait_for", "debug", "file", "write",
    "remove", "pool",
];

/// Action of a step.
enum Verb {
    Open(String),
    Ioctl(u32),
    Close,
    Cancel(String),
    Finish(String),
    Wait(String),
    Signal(String),
    WaitFor(String),
    Debug(String),
    File(String),
    Write(String),
    Remove(String),
    Pool(usize),
}

/// Takes the member that says what a step does.
fn verb(raw: &mut raw::Step) -> Result<Verb, String> {
    let verbs = [
        raw.open.take().map(Verb::Open),
        raw.ioctl.take().map(Verb::Ioctl),
        raw.close.take().map(|_| Verb::Close),
        raw.cancel.take().map(Verb::Cancel),
        raw.finish.take().map(Verb::Finish),
        raw.wait.take().map(Verb::Wait),
        raw.signal.take().map(Verb::Signal),
        raw.wait_for.take().map(Verb::WaitFor),
        raw.debug.take().map(Verb::Debug),
        raw.file.take().map(Verb::File),
        raw.write.take().map(Verb::Write),
        raw.remove.take().map(Verb::Remove),
        raw.pool.take().map(Verb::Pool),
    ];
    let mut verbs = verbs.into_iter().flatten();
    match (verbs.next(), verbs.next()) {
        (Some(verb), None) => Ok(verb),
        (None, _) => Err(format!("it does nothing: it needs one of {}", VERBS.join(", "))),
        _ => Err("it does two things at once".to_owned()),
    }
}

fn step_of(mut raw: raw::Step, directory: &Path) -> Result<Step, String> {
    let verb = verb(&mut raw)?;
    let mut members = Members(raw);
    let step = match verb {
        Verb::Open(device) => Step::Open {
            device,
            handle: members.handle(),
            status: members.status().unwrap_or_else(|| vec![0]),
        },
        Verb::Ioctl(code) => Step::Ioctl(ioctl(code, &mut members, directory)?),
        Verb::Close => Step::Close { handle: members.handle() },
        Verb::Cancel(name) => Step::Cancel { name },
        Verb::Finish(name) => Step::Finish { name, compare: members.compare(directory)? },
        Verb::Wait(time) => Step::Wait(duration(&time)?),
        Verb::Signal(name) => Step::Signal(name),
        Verb::WaitFor(signal) => Step::WaitFor { signal, within: members.within()? },
        Verb::Debug(text) => Step::Debug { text, within: members.within()? },
        Verb::File(path) => Step::File { path, content: content(&mut members, directory)? },
        Verb::Write(path) => Step::Write { path, data: fields(members.0.data.take(), directory)? },
        Verb::Remove(path) => Step::Remove { path },
        Verb::Pool(size) => Step::Pool { size, fields: fields(members.0.expect.take(), directory)? },
    };
    match members.left() {
        Some(name) => Err(format!("'{name}' does not belong to such a step")),
        None => Ok(step),
    }
}

fn ioctl(code: u32, members: &mut Members, directory: &Path) -> Result<Ioctl, String> {
    let start = members.0.start.take();
    let has_outcome = members.0.status.is_some()
        || members.0.length.is_some()
        || members.0.expect.is_some()
        || members.0.equal.is_some();
    if start.is_some() && has_outcome {
        return Err("an IOCTL that is started has its outcome at its finish".to_owned());
    }
    Ok(Ioctl {
        code,
        handle: members.handle(),
        input: fields(members.0.input.take(), directory)?,
        size: members.0.size.take(),
        data: fields(members.0.data.take(), directory)?,
        output: members.0.output.take(),
        start,
        compare: members.compare(directory)?,
    })
}

fn content(members: &mut Members, directory: &Path) -> Result<Content, String> {
    let repeats = match (members.0.repeats.take(), members.0.times.take()) {
        (Some(text), Some(_)) if text.is_empty() => return Err("'repeats' is empty".to_owned()),
        (Some(text), Some(times)) => Some((text, times.list())),
        (None, None) => None,
        _ => return Err("'repeats' and 'times' belong together".to_owned()),
    };
    Ok(Content { length: members.length(), fields: fields(members.0.expect.take(), directory)?, repeats })
}
