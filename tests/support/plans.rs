// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plans of file copies, run on the image.

use std::sync::Arc;

use lab::{
    copy::{self, End, Outcome, Plan},
    image,
};

/// Runs a plan on the image. The verifier must not find a violation, and each request has to complete once.
pub fn run(plan: &Plan) -> Option<Outcome> {
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
pub fn copied(plan: &Plan) -> Option<Outcome> {
    let outcome = run(plan)?;
    assert_eq!(outcome.end, End::Complete);
    assert!(outcome.hashes_match(), "what came back is what was sent");
    Some(outcome)
}
