// SPDX-License-Identifier: MIT OR Apache-2.0

//! Records each call of a dispatch table with its status and the level at which it was made, in a file. `cargo xtask objects`
//! compares it with the pages in `docs/objects`.
//!
//! Recording allocates nothing once it has started: some tests exhaust the memory.

use core::cell::Cell;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

/// A member of a dispatch table, by the table's type and the member's name.
pub type Member = (&'static str, &'static str);

/// A call: the member, its status if it has one, and whether it was made at `DISPATCH_LEVEL`.
type Observation = (Member, Option<i32>, bool);

/// The most observations that differ.
const MOST: usize = 2048;

/// Modules whose calls break rules on purpose, that of the IRQL among them.
const MISUSES: [&str; 2] = ["provider::mistakes", "provider::bad_calls"];

struct Observations {
    found: [Option<Observation>; MOST],
    file: Option<File>,
}

static OBSERVATIONS: Mutex<Observations> = Mutex::new(Observations { found: [None; MOST], file: None });

thread_local! {
    /// The last call of this thread.
    static LAST: Cell<Member> = const { Cell::new(("", "")) };
    /// The call that this thread recorded last. A loop of one call takes no lock, so that calls of two threads overlap.
    static RECORDED: Cell<Option<Observation>> = const { Cell::new(None) };
}

/// A value that a call returns: a status, or something else, which is not recorded.
pub trait Answer {
    fn status(&self) -> Option<i32> {
        None
    }
}

impl Answer for i32 {
    fn status(&self) -> Option<i32> {
        Some(*self)
    }
}

impl Answer for u32 {}

impl Answer for () {}

/// Creates the file.
pub fn start() {
    let mut observations = OBSERVATIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if observations.file.is_none() && !cfg!(miri) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(folder).expect("the folder can be created");
        let file = File::create(folder.join("ndk-calls.txt"));
        observations.file = Some(file.expect("the file can be created"));
    }
}

/// Records a call of a member of the table `T`, made by a module of the tests.
pub fn call<T, A: Answer>(_table: &T, member: &'static str, answer: &A, module: &str) {
    let member = (core::any::type_name::<T>(), member);
    LAST.set(member);
    let is_misuse = MISUSES.iter().any(|misuse| module.starts_with(misuse));
    record((member, answer.status(), !is_misuse && nt::irql::current() == nt::irql::DISPATCH_LEVEL));
}

/// Returns the last call of this thread.
pub fn last() -> Member {
    LAST.get()
}

/// Records the status that the callback of a pended call reports.
pub fn completion(member: Member, status: i32) {
    record((member, Some(status), false));
}

fn record(observation: Observation) {
    if RECORDED.get() == Some(observation) {
        return;
    }
    let mut guard = OBSERVATIONS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Observations { found, file } = &mut *guard;
    let Some(file) = file else { return };
    RECORDED.set(Some(observation));
    for slot in found {
        match slot {
            Some(known) if *known == observation => return,
            Some(_) => {}
            None => {
                *slot = Some(observation);
                let ((table, member), status, raised) = observation;
                let mut line = [0_u8; 160];
                let mut rest = &mut line[..];
                let written = match status {
                    Some(status) => writeln!(rest, "{table} {member} {status:#010x} {raised}"),
                    None => writeln!(rest, "{table} {member} - {raised}"),
                };
                written.expect("a line is short");
                let unused = rest.len();
                file.write_all(&line[..160 - unused]).expect("the file can be written");
                return;
            }
        }
    }
    panic!("more than {MOST} observations");
}
