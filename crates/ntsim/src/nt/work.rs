//! Worker threads and the work items that run on them.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::{
    clock::Clock,
    host::Host,
    thread::{JoinHandle, ThreadShared, current},
};

/// Worker threads per host.
const WORKERS: usize = 2;

type Item = Box<dyn FnOnce() + Send>;

/// Work that waits for a worker.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    idle: VecDeque<Arc<ThreadShared>>,
}

impl Queue {
    pub fn push(&self, clock: &Clock, item: Item) {
        let worker = {
            let mut state = self.state.lock();
            state.items.push_back(item);
            state.idle.pop_front()
        };
        if let Some(worker) = worker {
            clock.unpark(&worker);
        }
    }

    pub(crate) fn stop(&self, clock: &Clock) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        for worker in idle {
            clock.unpark(&worker);
        }
    }

    fn run(&self, host: &Host) {
        let me = current();
        while !host.world().is_stopping() {
            let item = {
                let mut state = self.state.lock();
                let item = state.items.pop_front();
                if item.is_none() {
                    state.idle.push_back(me.shared().clone());
                }
                item
            };
            match item {
                Some(item) => item(),
                None => {
                    me.park(None);
                    self.state.lock().idle.retain(|idle| idle.id != me.id());
                }
            }
        }
    }
}

/// Starts the workers of a host.
pub(crate) fn start(host: &Arc<Host>) -> Vec<JoinHandle<()>> {
    (0..WORKERS)
        .map(|index| {
            let this = host.clone();
            host.spawn(&format!("worker {index}"), move || this.nt.work.run(&this))
        })
        .collect()
}
