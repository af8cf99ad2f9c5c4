// SPDX-License-Identifier: MIT OR Apache-2.0

//! The engine of a device with its link, and what any thread does to drive them.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::os::fd::AsFd;

use fallible::Arc;
use parking_lot::Mutex;
use roce::{ConnEvent, ConnId, CqFault, Engine, EngineEvent, Instant, QpFault};

use crate::Lock;
use crate::clock::Clock;
use crate::error::Error;
use crate::heard::Heard;
use crate::link::Link;
use crate::pace::{Pace, Pause, WAIT};
use crate::registry::{QpNumbers, Registry};
use crate::sys::{self, EventFd};

/// How long the progress thread leaves frames to an application that has polled.
pub const STAND_ASIDE: Duration = Duration::from_millis(1);

/// How long the end of the process waits for the messages that end its connections.
pub const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// Something that happened to an object.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Notice {
    /// A completion queue has completions, or a fault.
    Completions(Option<CqFault>),
    /// A shared receive queue fell below its limit.
    Limit,
    /// A queue pair failed.
    QpFailed(QpFault),
    /// The send queue of a queue pair is drained.
    QpDrained,
    /// An event of a connection or listener.
    Connection(ConnId, ConnEvent),
}

/// An object that is notified.
pub trait Subscriber: Send + Sync {
    /// Handles a notice. Called by any thread, without any lock of the engine.
    fn handle(&self, notice: Notice);
}

/// Engine, link and clock of a device.
pub struct Adapter {
    pub engine: Arc<Engine<Lock>>,
    pub link: Link,
    pub clock: Clock,
    pub numbers: QpNumbers,
    pub cqs: Registry<dyn Subscriber>,
    pub srqs: Registry<dyn Subscriber>,
    /// By the contexts of `numbers`.
    pub qps: Registry<dyn Subscriber>,
    pub connections: Registry<dyn Subscriber>,
    /// Held while events are delivered: one thread at a time, in their order.
    delivering: Mutex<()>,
    /// Wakes the progress thread.
    waker: EventFd,
    heard: Heard,
    /// When the application last polled and found nothing; 0 once it waits for an event.
    polled: AtomicU64,
    /// Until when the progress thread sleeps, if an earlier deadline is to wake it; 0 while it works, and before it looks at the deadlines.
    sleeps_until: AtomicU64,
    /// Whether it sleeps without waiting for frames.
    stands_aside: AtomicBool,
    /// How often it has slept.
    sleeps: AtomicU64,
    stopped: AtomicBool,
    /// The process ends.
    leaves: AtomicBool,
    /// Its connections are ended.
    has_left: AtomicBool,
}

impl Adapter {
    pub fn new(engine: Arc<Engine<Lock>>, link: Link) -> Result<Self, Error> {
        Ok(Self {
            engine,
            link,
            clock: Clock::new(),
            numbers: QpNumbers::new(),
            cqs: Registry::default(),
            srqs: Registry::default(),
            qps: Registry::default(),
            connections: Registry::default(),
            delivering: Mutex::new(()),
            waker: EventFd::flag()?,
            heard: Heard::default(),
            polled: AtomicU64::new(0),
            sleeps_until: AtomicU64::new(0),
            stands_aside: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        })
    }

    /// Receives, transmits and delivers what is there. Returns the number of frames received.
    pub fn drive(&self) -> usize {
        let now = self.clock.now();
        let received = self.link.receive(now, self.is_due(now), || self.engine.first_shard().receiver());
        self.heard.record(now, received);
        self.run(now);
        self.wake_for(self.link.due());
        received.frames
    }

    /// Transmits and delivers what is there, and handles deadlines. To be called after every command of the engine.
    pub fn follow_up(&self) {
        self.run(self.clock.now());
        self.wake_for(self.engine.first_shard().poll_timeout());
    }

    /// Wakes the progress thread if it sleeps beyond a deadline.
    fn wake_for(&self, deadline: Option<Instant>) {
        // Orders the deadline before the look at the thread, which looks at deadlines after it has said that it is going to sleep.
        fence(Ordering::SeqCst);
        if deadline.is_some_and(|deadline| deadline.as_nanos() < self.sleeps_until.load(Ordering::SeqCst)) {
            self.waker.add();
        }
    }

    /// Takes requests for a port that was claimed from now on, and those that have waited for it.
    pub fn listen(&self, port: u16) {
        self.link.listen(self.clock.now(), port);
        self.wake_for(self.link.due());
    }

    /// Receives frames that came to other processes at the same address, and requests that have waited for their listener.
    pub fn take_passed(&self) {
        let now = self.clock.now();
        self.link.take_over(now);
        self.link.serve(now);
        while self.link.take_passed(self.clock.now(), || self.engine.first_shard().receiver()) {
            self.run(self.clock.now());
        }
    }

    /// Handles the deadlines before which no frame is left that has arrived: one of those that wait may be the answer. Transmits and delivers
    /// what is there.
    fn run(&self, now: Instant) {
        self.run_until(now, now.min(self.heard.until()));
    }

    fn is_due(&self, now: Instant) -> bool {
        self.engine.first_shard().poll_timeout().is_some_and(|deadline| deadline <= now)
    }

    fn run_until(&self, now: Instant, due: Instant) {
        if self.is_due(due) {
            self.engine.first_shard().handle_timeout(due);
        }
        if self.engine.first_shard().wants_transmit() {
            self.link
                .transmit(now, |queue, budget| self.engine.first_shard().poll_transmit(now, queue, budget));
        }
        self.deliver();
    }

    /// Delivers the events of the engine.
    fn deliver(&self) {
        loop {
            // Orders an event of this thread before its attempt to lock, and the end of its delivery before its look for events of others:
            // of two threads, one sees what the other has done.
            fence(Ordering::SeqCst);
            if !self.engine.has_event() {
                return;
            }
            // The thread that delivers now looks again afterwards.
            let Some(guard) = self.delivering.try_lock() else { return };
            while let Some(event) = self.engine.poll_event() {
                self.dispatch(event);
            }
            drop(guard);
        }
    }

    fn dispatch(&self, event: EngineEvent<'_, Lock>) {
        match event {
            // The notice is dropped after its delivery.
            EngineEvent::Cq(notice) => {
                if let Some(cq) = self.cqs.get(notice.context()) {
                    cq.handle(Notice::Completions(notice.fault()));
                }
            }
            EngineEvent::Srq(notice) => {
                if let Some(srq) = self.srqs.get(notice.context()) {
                    srq.handle(Notice::Limit);
                }
            }
            EngineEvent::QpFailed { context, fault, .. } => {
                if let Some(qp) = self.qps.get(context) {
                    qp.handle(Notice::QpFailed(fault));
                }
            }
            EngineEvent::QpDrained { context, .. } => {
                if let Some(qp) = self.qps.get(context) {
                    qp.handle(Notice::QpDrained);
                }
            }
            EngineEvent::Conn { id, context, event } => match self.connections.get(context) {
                Some(connection) => connection.handle(Notice::Connection(id, event)),
                // Its owner has released it, or a listener is gone whose request was on its way.
                None => self.engine.connections().release(self.clock.now(), id),
            },
            // The link has no next hops, and there are no notice queues.
            EngineEvent::PathSuspect { .. }
            | EngineEvent::NoticesDue { .. }
            | EngineEvent::CqGone { .. }
            | EngineEvent::SrqGone { .. } => {}
        }
    }

    /// Waits until no event that was taken before is being delivered.
    pub fn finish_delivery(&self) {
        drop(self.delivering.lock());
    }

    /// Drives the engine for an application that has polled and found nothing. Now and then, lets others have the processor.
    pub fn poll(&self) {
        self.polled.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        if self.drive() > 0 {
            return;
        }
        match Pace::next_of_thread() {
            Pause::None => {}
            Pause::Yield => {
                let before = self.clock.now();
                sys::yield_processor();
                Pace::thread_yielded(self.clock.now().duration_since(before));
            }
            Pause::Wait => self.link.wait(WAIT),
        }
    }

    /// Lets the progress thread receive, because the application is going to wait.
    pub fn attend(&self) {
        self.polled.store(0, Ordering::SeqCst);
        if self.stands_aside.load(Ordering::SeqCst) {
            self.waker.add();
        }
    }

    /// Ends the progress thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.waker.add();
    }

    /// Lets the progress thread end the connections, as the kernel does with those of a process that ends. Takes no lock.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
        self.waker.add();
    }

    /// Returns whether the connections are ended after [`Adapter::leave`].
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::SeqCst)
    }

    /// Ends the connections if the process ends. Of the progress thread.
    pub fn end_connections(&self) {
        if !self.leaves.load(Ordering::SeqCst) || self.has_left() {
            return;
        }
        // Those of removed addresses end with one message to the peer. Fails for addresses that are added, here none.
        let _ = self.engine.connections().set_addresses(&[]);
        // The engine ends a bounded number at a time, and is due until it has ended all. The process waits no longer than that.
        let now = self.clock.now();
        while self.is_due(now) && self.clock.now() < now + LEAVE_LIMIT {
            self.run_until(now, now);
        }
        // What another thread has ended meanwhile.
        self.run(now);
        self.has_left.store(true, Ordering::SeqCst);
    }

    /// Returns whether the progress thread is to end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Sleeps until frames arrive, a deadline passes, or another thread has something to do. Of the progress thread.
    ///
    /// While the application polls, that thread only looks from time to time whether it still does: it handles deadlines itself, and two threads would
    /// be in each other's way. If it stops, they are late by [`STAND_ASIDE`].
    pub fn sleep(&self) {
        let now = self.clock.now();
        // Before it looks: an application that is going to wait says so, and then looks.
        self.stands_aside.store(true, Ordering::SeqCst);
        let polled = self.polled.load(Ordering::SeqCst);
        let stands_aside = now.as_nanos().saturating_sub(polled) < STAND_ASIDE.as_nanos() as u64;
        self.stands_aside.store(stands_aside, Ordering::SeqCst);
        let until = if stands_aside {
            Some(now + STAND_ASIDE)
        } else {
            // Before it looks at the deadlines.
            self.sleeps_until.store(u64::MAX, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let deadlines =
                [self.engine.first_shard().poll_timeout(), self.link.due(), self.link.next_takeover()];
            let until = deadlines.into_iter().flatten().min();
            self.sleeps_until.store(until.map_or(u64::MAX, Instant::as_nanos), Ordering::SeqCst);
            until
        };
        let timeout = until.map(|until| until.duration_since(self.clock.now()));
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.link.sleep(self.waker.as_fd(), !stands_aside, timeout);
        self.stands_aside.store(false, Ordering::SeqCst);
        self.sleeps_until.store(0, Ordering::SeqCst);
        // A flag: nothing to take is no error.
        let _ = self.waker.take();
    }

    /// Returns how often the progress thread has slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::Relaxed)
    }

    /// Returns whether the application leaves frames to the progress thread.
    pub fn is_unattended(&self) -> bool {
        let idle = self.clock.now().as_nanos().saturating_sub(self.polled.load(Ordering::Relaxed));
        idle >= STAND_ASIDE.as_nanos() as u64
    }
}
