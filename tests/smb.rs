// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct between two hosts: a file goes to the peer and back by SMB2 requests, whose data the peer reads and writes by RDMA.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use lab::{
    copy::{self, End, Faults, Outcome, Plan, Protocol},
    image,
};
use smb_consumer::Options;
use smb_direct::Config;

fn plan(bytes: u64, options: Options) -> Plan {
    Plan { protocol: Protocol::SmbDirect(options), ..Plan::of(bytes) }
}

/// Runs a plan on the image. The verifier must not find a violation, and each request has to complete once.
fn run(plan: &Plan) -> Option<Outcome> {
    let progress: Arc<dyn Fn(copy::Progress) + Send + Sync> = Arc::new(|_| {});
    let outcome = copy::run(&image()?, plan, &progress).expect("the run comes to its end");
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
    for (kind, operation) in &outcome.operations {
        let completed = operation.succeeded + operation.flushed + operation.failed;
        assert_eq!(operation.posted, completed, "every {kind} posted completes exactly once");
    }
    Some(outcome)
}

/// Runs a plan that has to succeed.
fn copied(plan: &Plan) -> Option<Outcome> {
    let outcome = run(plan)?;
    assert_eq!(outcome.end, End::Complete);
    assert!(outcome.hashes_match(), "what came back is what was sent");
    Some(outcome)
}

#[test]
fn requests_of_8_mib_arrive_complete_by_one_rdma_request_per_descriptor() {
    let options = Options { chunk: 8 << 20, outstanding: 2, ..Options::default() };
    let Some(outcome) = copied(&plan(24 << 20, options)) else { return };
    // A fast registration holds 2 MiB.
    assert_eq!(outcome.operations["read"].succeeded, 12);
    assert_eq!(outcome.operations["write"].succeeded, 12);
    assert_eq!(outcome.operations["fast-register"].succeeded, 24);
    // Each response invalidates the first of four.
    assert_eq!(outcome.operations["invalidate"].succeeded, 18);
}

#[test]
fn lengths_around_the_rdma_threshold_and_the_request_arrive_complete() {
    for bytes in [0, 1, 1340, 1341, 4095, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1, (2 << 20) + 4095] {
        if copied(&plan(bytes, Options::default())).is_none() {
            return;
        }
    }
}

#[test]
fn file_with_64_requests_in_flight_arrives_complete() {
    let options = Options { chunk: 64 << 10, outstanding: 64, ..Options::default() };
    let Some(outcome) = copied(&plan(16 << 20, options)) else { return };
    assert_eq!(outcome.operations["fast-register"].succeeded, 512);
    assert!(!outcome.operations.contains_key("invalidate"), "the responses invalidate");
}

#[test]
fn endpoints_with_few_credits_do_not_stall() {
    for credits in [1, 2, 3] {
        let config = Config { receive_credit_max: credits, send_credit_target: credits, ..Config::default() };
        // 4000 bytes travel in messages: three fragments.
        let options = Options { config, chunk: 4000, outstanding: 16, ..Options::default() };
        if copied(&plan(100_000, options)).is_none() {
            return;
        }
    }
}

#[test]
fn file_arrives_complete_at_each_path_mtu_and_with_loss() {
    for path_mtu in [1024, 4096] {
        for loss in [0.0, 0.01, 0.05] {
            let faults = Faults { loss, ..Faults::NONE };
            let plan = Plan { path_mtu, faults, ..plan(4 << 20, Options::default()) };
            let Some(outcome) = copied(&plan) else { return };
            assert_eq!(outcome.wire.lost > 0, loss > 0.0);
        }
    }
}

#[test]
fn file_arrives_complete_with_racing_threads() {
    copied(&Plan { real_time: true, ..plan(32 << 20, Options::default()) });
}
