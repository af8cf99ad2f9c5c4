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

use device_sim::{Quirks, virtio_net::Features};
use lab::{os::SimOs, testbed::Options};
use ndis_sim::NdisHost as _;
use ndk_abi::ndis::{NDIS_PACKET_TYPE_BROADCAST, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::{Adapter, Cq, Listener, Pd, Qp, QpDepths};
use nt_sim::{Host, JoinHandle, current, delays::Moment, host::WatchdogLimits};
use support::{
    bed, copying, scaling,
    watchdog::{Echo, MOMENT, Ready, connect, finish, started},
};

/// Both ends of loopback connections answer each message in a callback, without end. Each frame that the provider
/// processes makes another one.
//= R-IRQL-10
#[test]
fn endless_loopback_traffic_leaves_the_processors_to_others() {
    for seed in 0..2 {
        let Some(bed) = started(Options { seed, ..Options::default() }) else { return };
        let [machine, _] = bed.machines();
        let address = SocketAddr::new(machine.address(), 0);
        let messages = machine.consumer("consumer", move |adapter| {
            let ends = [Echo::new(adapter), Echo::new(adapter)];
            let listener = Listener::new(adapter, address).expect("a listener");
            let connectors = connect(adapter, &listener, [&ends[0], &ends[1]]);
            for _ in 0..4 {
                ends[0].send();
            }
            // This thread runs at PASSIVE_LEVEL, as do those that keep both processors busy.
            let turns = Arc::new(AtomicU64::new(0));
            let threads = [(); 2].map(|()| busy(adapter.os().host(), &turns));
            for thread in threads {
                thread.join().expect("the host lives");
            }
            nt_sim::nt::time::sleep(3_000_000);
            for end in &ends {
                end.stopped.store(true, Ordering::Relaxed);
            }
            nt_sim::nt::time::sleep(1_000_000);
            drop(connectors);
            ends.map(|end| end.messages.load(Ordering::Relaxed))
        });
        let messages =
            messages.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        println!("seed {seed}: {messages:?} messages in {:?}", bed.now());
        assert!(messages.iter().all(|&count| count > 1000), "{messages:?}");
        finish(bed);
    }
}

/// A thread that runs below `DISPATCH_LEVEL`, and the number of its turns.
fn busy(host: &Arc<Host>, turns: &Arc<AtomicU64>) -> JoinHandle<()> {
    let turns = Arc::clone(turns);
    host.spawn("busy", move || {
        for _ in 0..1000 {
            current().stall(10_000);
            turns.fetch_add(1, Ordering::Relaxed);
            current().yield_now();
        }
    })
}

/// The device has the next frame whenever the driver has returned a buffer.
//= R-IRQL-10
#[test]
fn device_that_floods_the_receive_queue_leaves_the_processors_to_others() {
    const FRAMES: u32 = 200_000;
    for seed in 0..2 {
        let quirks = Quirks { repeats: Some(FRAMES), ..Quirks::default() };
        let Some(bed) = started(Options { seed, quirks, ..Options::default() }) else { return };
        let [flooded, sender] = bed.machines();
        let miniport = flooded.miniport().expect("the adapter has started").clone();
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_BROADCAST.to_le_bytes()).unwrap();
        let frame = [&[0xFF; 6][..], &[2, 2, 0, 0, 0, 1, 0x88, 0xB5], &[0; 46]].concat();
        let sent = sender.miniport().expect("the adapter has started").send(&frame, MOMENT);
        assert_eq!(sent, Some(NDIS_STATUS_SUCCESS));
        let turns = Arc::new(AtomicU64::new(0));
        let threads = [(); 3].map(|()| busy(flooded.host(), &turns));
        for thread in threads {
            thread.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        }
        let received = flooded.nic().counters().received_frames;
        println!("seed {seed}: {received} frames in {:?}", bed.now());
        assert!(received > 1000, "{received} frames were processed meanwhile");
        finish(bed);
    }
}

/// A DPC of the driver takes the rest of a flood if NDIS calls the receive DPC without a limit, and only then: otherwise NDIS
/// calls again, and its limit holds.
#[test]
fn frames_that_a_receive_dpc_leaves_are_taken_by_the_next_call_or_without_a_limit_by_a_dpc_of_the_driver() {
    const FRAMES: u32 = 300;
    for limit in [Some(64), Some(100), None] {
        let quirks = Quirks { repeats: Some(FRAMES), ..Quirks::default() };
        let Some(bed) = started(Options { quirks, ..Options::default() }) else { return };
        let [flooded, sender] = bed.machines();
        flooded.host().set_receive_limit(limit);
        let miniport = flooded.miniport().expect("the adapter has started").clone();
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_BROADCAST.to_le_bytes()).unwrap();
        let own = flooded.host().delays.add(Moment::ReturnToDpc("KeInsertQueueDpc"), Duration::ZERO);
        let frame = [&[0xFF; 6][..], &[2, 2, 0, 0, 0, 1, 0x88, 0xB5], &[0; 46]].concat();
        let sent = sender.miniport().expect("the adapter has started").send(&frame, MOMENT);
        assert_eq!(sent, Some(NDIS_STATUS_SUCCESS));
        flooded.host().spawn("wait", || nt_sim::nt::time::sleep(20_000_000)).join().expect("the host lives");
        let frames = flooded.nic().counters().received_frames;
        assert_eq!(frames, u64::from(FRAMES) + 1, "limit {limit:?}");
        assert_eq!(miniport.received().len() as u64, frames, "limit {limit:?}");
        assert_eq!(own.is_reached(), limit.is_none(), "limit {limit:?}: a DPC of the driver is queued");
        finish(bed);
    }
}

/// The device fails while many connections are open: each has requests to flush and callbacks to make.
//= R-IRQL-10
#[test]
fn failure_of_the_device_with_many_connections_is_processed_in_batches() {
    const PAIRS: usize = 1500;
    let Some(bed) = started(Options::default()) else { return };
    let [machine, _] = bed.machines();
    let (address, nic) = (SocketAddr::new(machine.address(), 0), machine.nic().clone());
    let flushed = machine.consumer("consumer", move |adapter| {
        let ends: Vec<_> = (0..PAIRS).map(|_| [Echo::new(adapter), Echo::new(adapter)]).collect();
        let listener = Listener::new(adapter, address).expect("a listener");
        let connectors: Vec<_> =
            ends.iter().map(|[one, other]| connect(adapter, &listener, [one, other])).collect();
        nic.need_reset();
        nt_sim::nt::time::sleep(100_000_000);
        let connectors = connectors.iter().flatten();
        let ended = connectors.filter(|connector| connector.is_disconnected()).count();
        (ended, ends.iter().flatten().map(|end| end.failed.load(Ordering::Relaxed)).sum::<u64>())
    });
    let flushed = flushed.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert_eq!(flushed, (2 * PAIRS, 8 * 2 * PAIRS as u64), "disconnect events, and requests that failed");
    finish(bed);
}

/// A consumer whose callback has a receive flushed, which is the next event.
struct Refill {
    ready: OnceLock<Ready>,
    stopped: AtomicBool,
    callbacks: AtomicU64,
}

impl Refill {
    fn new(adapter: &Arc<Adapter<SimOs>>) -> Arc<Self> {
        let refill =
            Arc::new(Self { ready: OnceLock::new(), stopped: false.into(), callbacks: AtomicU64::new(0) });
        let weak = Arc::downgrade(&refill);
        let handler = move || {
            if let Some(refill) = weak.upgrade() {
                refill.again();
            }
        };
        let pd = Pd::new(adapter).expect("a protection domain");
        let (cq, mut completions) = Cq::with_handler(adapter, 64, Box::new(handler)).expect("a queue");
        let depths = QpDepths { receives: 16, requests: 16, receive_sges: 1, request_sges: 1, inline: 0 };
        let qp = Qp::new(&pd, &cq, &cq, 0, &depths).expect("a queue pair");
        completions.arm().expect("the queue is armed");
        qp.receive(0, &[]).expect("the receive is posted");
        assert!(refill.ready.set(Ready { qp, completions: Mutex::new(completions) }).is_ok());
        refill
    }

    fn flush(&self) {
        self.ready.get().expect("set at creation").qp.flush().expect("the receive is flushed");
    }

    /// Polls, arms, posts and flushes, at `DISPATCH_LEVEL`.
    fn again(&self) {
        self.callbacks.fetch_add(1, Ordering::Relaxed);
        let ready = self.ready.get().expect("set before the first event");
        let mut completions = ready.completions.lock().expect("one callback at a time");
        let mut results = [NDK_RESULT_EX::zeroed(); 4];
        completions.poll(&mut results).expect("the queue is good");
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        completions.arm().expect("the queue is armed");
        ready.qp.receive(0, &[]).expect("the receive is posted");
        self.flush();
    }
}

/// No frame is sent: the events alone keep the provider busy.
//= R-IRQL-10
#[test]
fn callbacks_that_cause_events_without_end_leave_the_processors_to_others() {
    let Some(bed) = started(Options::default()) else { return };
    let [machine, _] = bed.machines();
    let callbacks = machine.consumer("consumer", move |adapter| {
        let refill = Refill::new(adapter);
        refill.flush();
        let turns = Arc::new(AtomicU64::new(0));
        for thread in [(); 2].map(|()| busy(adapter.os().host(), &turns)) {
            thread.join().expect("the host lives");
        }
        refill.stopped.store(true, Ordering::Relaxed);
        nt_sim::nt::time::sleep(1_000_000);
        refill.callbacks.load(Ordering::Relaxed)
    });
    let callbacks = callbacks.join();
    let callbacks = callbacks.unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert!(callbacks > 1000, "{callbacks} callbacks were made meanwhile");
    finish(bed);
}

/// One sender holds the transmit lock for a millisecond, while another posts on the other processor.
#[test]
fn sender_that_finds_the_transmit_lock_taken_returns_at_its_own_level() {
    let Some(bed) = started(Options { watchdog: WatchdogLimits::default(), ..Options::default() }) else {
        return;
    };
    let [machine, _] = bed.machines();
    let address = SocketAddr::new(machine.address(), 0);
    let delayed = machine.consumer("consumer", move |adapter| {
        let ends = [Echo::new(adapter), Echo::new(adapter)];
        let listener = Listener::new(adapter, address).expect("a listener");
        let connectors = connect(adapter, &listener, [&ends[0], &ends[1]]);
        for end in &ends {
            end.stopped.store(true, Ordering::Relaxed);
        }
        let host = adapter.os().host();
        let locked = Moment::Return("KeTryToAcquireSpinLockAtDpcLevel");
        let locked = host.delays.add(locked, Duration::from_millis(1));
        let other = {
            let (end, locked) = (Arc::clone(&ends[1]), Arc::clone(&locked));
            host.spawn("other sender", move || {
                while !locked.is_reached() {
                    current().stall(1_000);
                    current().yield_now();
                }
                end.send();
                current().irql()
            })
        };
        ends[0].send();
        let level = other.join();
        nt_sim::nt::time::sleep(1_000_000);
        drop(connectors);
        (locked.is_reached(), level.ok())
    });
    let delayed = delayed.join();
    let delayed = delayed.unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert_eq!(delayed, (true, Some(nt_sim::Irql::PASSIVE_LEVEL)), "{}", bed.violations().join("\n"));
    finish(bed);
}

/// Users of NetKVM met processors that wait for one lock at `DISPATCH_LEVEL` until the DPC watchdog ends the system. Here each
/// holder of the transmit lock keeps it for 200 us, as if its virtual processor had none of the host's, and 60 processors post
/// requests to the same pair of queues. None waits for the others.
//= R-IRQL-10
#[test]
fn processors_that_post_at_once_do_not_wait_for_a_slow_holder_of_the_transmit_lock() {
    const SENDERS: usize = 60;
    const MESSAGES: usize = 6;
    let Some(bed) = started(Options { processors: SENDERS as u32, ..Options::default() }) else { return };
    let [machine, _] = bed.machines();
    let address = SocketAddr::new(machine.address(), 0);
    let outcome = machine.consumer("consumer", move |adapter| {
        let ends: Vec<_> = (0..SENDERS / 2).map(|_| [Echo::new(adapter), Echo::new(adapter)]).collect();
        let listener = Listener::new(adapter, address).expect("a listener");
        let connectors: Vec<_> =
            ends.iter().map(|[one, other]| connect(adapter, &listener, [one, other])).collect();
        let ends: Vec<_> = ends.into_iter().flatten().collect();
        for end in &ends {
            end.stopped.store(true, Ordering::Relaxed);
        }
        let host = adapter.os().host();
        let locked = Moment::Return("KeTryToAcquireSpinLockAtDpcLevel");
        let locked: Vec<_> =
            (0..SENDERS * MESSAGES).map(|_| host.delays.add(locked, Duration::from_micros(200))).collect();
        let sender = |end: &Arc<Echo>| {
            let end = Arc::clone(end);
            host.spawn("sender", move || {
                for _ in 0..MESSAGES {
                    end.send();
                    current().yield_now();
                }
            })
        };
        let senders: Vec<_> = ends.iter().map(sender).collect();
        let ended = senders.into_iter().filter_map(|sender| sender.join().ok()).count();
        nt_sim::nt::time::sleep(10_000_000);
        drop(connectors);
        (ended, locked.iter().filter(|delay| delay.is_reached()).count())
    });
    let (ended, held) =
        outcome.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    assert_eq!(ended, SENDERS, "{}", bed.violations().join("\n"));
    println!("{held} holders, {:?}", bed.now());
    assert!(held > 10, "{held} holders of the lock");
    finish(bed);
}

/// As above, with Ethernet frames: each sender copies 100 frames, which takes 200 us, while it has the transmit queue.
//= R-IRQL-10
#[test]
fn processors_that_send_frames_at_once_do_not_wait_for_each_other() {
    const SENDERS: u16 = 60;
    const CHAIN: u16 = 100;
    let Some(bed) = started(Options { processors: SENDERS.into(), ..Options::default() }) else { return };
    let miniport = bed::miniport(bed.machines()[0]);
    let host = miniport.host();
    // Called for each frame.
    let copied = Moment::Return("NdisGetDataBuffer");
    for _ in 0..SENDERS * CHAIN {
        host.delays.add(copied, Duration::from_micros(2));
    }
    let sender = |number: u16| {
        let miniport = miniport.clone();
        host.spawn("sender", move || {
            let frames: Vec<_> = (0..CHAIN).map(|flow| scaling::udp(flow, number.into())).collect();
            for id in miniport.send_chain(&frames, 0) {
                assert_eq!(miniport.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
            }
        })
    };
    let senders: Vec<_> = (0..SENDERS).map(sender).collect();
    for sender in senders {
        sender.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    }
    let sent = bed.machines()[0].nic().counters().sent_frames;
    println!("{sent} frames in {:?}", bed.now());
    assert!(sent >= u64::from(SENDERS * CHAIN), "{sent} frames");
    finish(bed);
}

/// On both hosts each of many processors sends Ethernet frames through one pair of queues, and receives those of its flows, beside RDMA.
//= R-IRQL-10
#[test]
fn many_processors_send_and_receive_through_one_pair_of_queues_within_the_limits() {
    const PROCESSORS: u32 = 32;
    for features in [Features::DEFAULT, Features::DEFAULT | Features::RING_PACKED] {
        let options = Options { processors: PROCESSORS, features, ..Options::default() };
        let Some(bed) = started(options) else { return };
        let miniports = bed.machines().map(bed::miniport);
        let table: Vec<u8> = (0..128).map(|entry| entry % PROCESSORS as u8).collect();
        for miniport in &miniports {
            scaling::receive_directed(miniport);
            miniport.scaling().set(Some(&scaling::parameters(scaling::ALL_TYPES, &table))).unwrap();
        }
        scaling::settle(&bed);
        let mut senders = Vec::new();
        for (number, miniport) in miniports.iter().enumerate() {
            for processor in 0..PROCESSORS {
                let miniport = miniport.clone();
                let body = move || {
                    for round in 0..10 {
                        let mut frames: Vec<_> =
                            (0..40).map(|flow| scaling::udp(flow * 100 + processor as u16, round)).collect();
                        if number == 1 {
                            // The other way.
                            for frame in &mut frames {
                                (frame[5], frame[11]) = (1, 2);
                            }
                        }
                        for id in miniport.send_chain(&frames, 0) {
                            assert_eq!(miniport.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
                        }
                    }
                };
                senders.push(miniports[number].host().spawn("sender", body));
            }
        }
        copying::copy(&bed);
        for sender in senders {
            sender.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        }
        let received = bed.machines().map(|machine| machine.nic().counters().received_frames);
        println!("{received:?} frames in {:?}", bed.now());
        assert!(received.iter().all(|&count| count > 12_800), "{received:?}");
        finish(bed);
    }
}
