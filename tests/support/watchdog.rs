// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time that the driver spends at `DISPATCH_LEVEL` under load: bounded, so that other DPCs and threads run.
//!
//! The limits of the DPC watchdog are set to [`LIMITS`], so that it reports what would take seconds on Windows. Virtual
//! time: a call of a kernel function takes 20 ns, a DPC 300 ns.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::{NDK_OPERATION_TYPE, NDK_RESULT_EX};
use ndk_consumer::{Adapter, Completions, Connector, Cq, Listener, Pd, Qp, QpDepths, ReadLimits, Status};
use nt_sim::host::WatchdogLimits;

/// Longest DPC, and longest time at `DISPATCH_LEVEL` without a return below it, in virtual time.
pub const LIMITS: WatchdogLimits =
    WatchdogLimits { routine: Duration::from_millis(1), cumulative: Duration::from_millis(3) };

pub const MOMENT: Duration = Duration::from_secs(5);

pub fn started(options: Options) -> Option<Testbed> {
    let mut bed =
        Testbed::new(&image()?, &Options { watchdog: LIMITS, ..options }).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    Some(bed)
}

pub fn finish(mut bed: Testbed) {
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    bed.stop().expect("the drivers stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}

/// One end of a connection that answers each message with a message, in its notification callback.
pub struct Echo {
    pub ready: OnceLock<Ready>,
    pub stopped: AtomicBool,
    pub messages: AtomicU64,
    /// Requests that failed.
    pub failed: AtomicU64,
}

pub struct Ready {
    pub qp: Qp<SimOs>,
    pub completions: Mutex<Completions<SimOs>>,
}

impl Echo {
    pub fn new(adapter: &Arc<Adapter<SimOs>>) -> Arc<Self> {
        let echo = Arc::new(Self {
            ready: OnceLock::new(),
            stopped: false.into(),
            messages: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&echo);
        let handler = move || {
            if let Some(echo) = weak.upgrade() {
                echo.answer();
            }
        };
        let pd = Pd::new(adapter).expect("a protection domain");
        let (cq, mut completions) = Cq::with_handler(adapter, 64, Box::new(handler)).expect("a queue");
        let depths = QpDepths { receives: 16, requests: 16, receive_sges: 1, request_sges: 1, inline: 16 };
        let qp = Qp::new(&pd, &cq, &cq, 0, &depths).expect("a queue pair");
        for context in 0..8 {
            qp.receive(context, &[]).expect("the receive is posted");
        }
        completions.arm().expect("the queue is armed");
        let ready = Ready { qp, completions: Mutex::new(completions) };
        assert!(echo.ready.set(ready).is_ok());
        echo
    }

    pub fn ready(&self) -> &Ready {
        self.ready.get().expect("set at creation")
    }

    pub fn send(&self) {
        self.ready().qp.send_inline(100, &[], 0).expect("the send is posted");
    }

    /// Polls, answers and arms, at `DISPATCH_LEVEL`.
    pub fn answer(&self) {
        let Some(ready) = self.ready.get() else { return };
        let mut completions = ready.completions.lock().expect("one callback at a time");
        let mut results = [NDK_RESULT_EX::zeroed(); 16];
        let taken = completions.poll(&mut results).expect("the queue is good");
        for result in &results[..taken] {
            let receives = result.Type == NDK_OPERATION_TYPE::NdkOperationTypeReceive;
            if Status(result.Status) != Status::SUCCESS {
                self.failed.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            if !receives || self.stopped.load(Ordering::Relaxed) {
                continue;
            }
            self.messages.fetch_add(1, Ordering::Relaxed);
            ready.qp.receive(0, &[]).expect("the receive is posted");
            self.send();
        }
        completions.arm().expect("the queue is armed");
    }
}

/// Connects two ends on the adapter of `listener`.
pub fn connect(
    adapter: &Arc<Adapter<SimOs>>,
    listener: &Arc<Listener<SimOs>>,
    ends: [&Arc<Echo>; 2],
) -> [Connector<SimOs>; 2] {
    let remote = listener.local_address().expect("an address");
    let limits = ReadLimits { inbound: 0, outbound: 0 };
    let waker = |end: &Echo| end.ready().completions.lock().expect("no callback").waker();
    let wakers = ends.map(|end| waker(end));
    let accepted = Arc::new(Mutex::new(None));
    let passive = {
        let (accepted, end, listener) = (Arc::clone(&accepted), Arc::clone(ends[1]), Arc::clone(listener));
        let [_, waker] = wakers;
        let body = move || {
            let mut connector = listener.next(Some(MOMENT)).expect("a request");
            connector.accept(&end.ready().qp, limits, &[], waker).expect("accepted");
            *accepted.lock().expect("no other thread") = Some(connector);
        };
        adapter.os().host().spawn("accept", body)
    };
    let mut active = Connector::new(adapter).expect("a connector");
    let local = SocketAddr::new(remote.ip(), 0);
    active.connect(&ends[0].ready().qp, local, remote, limits, &[]).expect("connected");
    active.complete(waker(ends[0])).expect("completed");
    passive.join().expect("the host lives");
    let passive = accepted.lock().expect("the thread has ended").take().expect("a connector");
    [active, passive]
}
