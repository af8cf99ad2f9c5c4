// SPDX-License-Identifier: MIT OR Apache-2.0

//! The dispatch token of one CPU.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, RawMutex, lock_api::RawMutex as _};

use crate::{clock::Clock, thread::shared::ThreadShared};

/// A lock without a guard. Blocks through the clock if that is deterministic.
pub enum Token {
    /// The operating system selects the next owner.
    Threaded(RawMutex),
    /// The next owner is the thread that has waited longest.
    Deterministic(Mutex<Owner>),
}

#[derive(Default)]
pub struct Owner {
    held: bool,
    waiting: VecDeque<Arc<ThreadShared>>,
    /// The thread the token was passed to, until it wakes up.
    heir: Option<Arc<ThreadShared>>,
}

impl Token {
    pub fn new(deterministic: bool) -> Self {
        if deterministic { Self::Deterministic(Mutex::default()) } else { Self::Threaded(RawMutex::INIT) }
    }

    pub fn try_acquire(&self) -> bool {
        match self {
            Self::Threaded(lock) => lock.try_lock(),
            Self::Deterministic(owner) => !std::mem::replace(&mut owner.lock().held, true),
        }
    }

    pub fn acquire(&self, clock: &Clock, me: &Arc<ThreadShared>) {
        match self {
            Self::Threaded(lock) => lock.lock(),
            Self::Deterministic(owner) => {
                {
                    let mut owner = owner.lock();
                    if !std::mem::replace(&mut owner.held, true) {
                        return;
                    }
                    owner.waiting.push_back(me.clone());
                }
                loop {
                    clock.park(me, None);
                    let mut owner = owner.lock();
                    if owner.heir.as_ref().is_some_and(|heir| heir.id == me.id) {
                        owner.heir = None;
                        return;
                    }
                }
            }
        }
    }

    pub fn release(&self, clock: &Clock) {
        match self {
            // SAFETY: the token is held by the thread that lowers its IRQL below DISPATCH_LEVEL: it
            // was acquired when that thread's IRQL rose.
            Self::Threaded(lock) => unsafe { lock.unlock() },
            Self::Deterministic(owner) => {
                let heir = {
                    let mut owner = owner.lock();
                    owner.heir = owner.waiting.pop_front();
                    owner.held = owner.heir.is_some();
                    owner.heir.clone()
                };
                if let Some(heir) = heir {
                    clock.unpark(&heir);
                }
            }
        }
    }
}
