// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK objects on the image: creation when memory allocations fail, and what registrations map.

use std::sync::Arc;

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_consumer::{
    Access, Adapter, Connector, Cq, FastMemory, Listener, Memory, Pd, Qp, QpDepths, Srq, Status,
};

pub type Sim = Adapter<SimOs>;

/// Number of an allocation that is never reached.
pub const NONE: u64 = u64::MAX / 2;

/// Calls `create` once for each of its allocations and lets that one fail, until no allocation fails.
pub fn survives<T>(adapter: &Arc<Sim>, what: &str, create: impl Fn() -> Result<T, Status>) {
    let low_resources = &adapter.os().host().low_resources;
    for victim in 0..1000 {
        let before = low_resources.asked();
        low_resources.fail_nth(victim);
        let outcome = create().map(drop);
        let spared = low_resources.asked() - before <= victim;
        low_resources.fail_nth(NONE);
        match outcome {
            Err(status) => assert_eq!(status, Status::INSUFFICIENT_RESOURCES, "{what}, allocation {victim}"),
            Ok(()) if spared => return,
            // An optional allocation failed.
            Ok(()) => {}
        }
    }
    panic!("{what} allocates without end");
}

pub fn depths() -> QpDepths {
    QpDepths { receives: 16, requests: 16, receive_sges: 2, request_sges: 2, inline: 64 }
}

/// Calls each create function of the provider, with each of its allocations failing in turn.
pub fn create_everything(adapter: &Arc<Sim>, address: std::net::IpAddr) {
    survives(adapter, "NdkCreatePd", || Pd::new(adapter));
    survives(adapter, "NdkCreateCq", || Cq::new(adapter, 64));
    survives(adapter, "NdkCreateConnector", || Connector::new(adapter));
    survives(adapter, "NdkListen", || Listener::new(adapter, (address, 0).into()));
    let pd = Pd::new(adapter).expect("allocations succeed again");
    survives(adapter, "NdkRegisterMr", || Memory::new(&pd, 100_000, Access::RemoteReadWrite));
    survives(adapter, "NdkInitializeFastRegisterMr", || FastMemory::new(&pd, 100_000));
    survives(adapter, "NdkCreateSrq", || Srq::new(&pd, 16, 2));
    let (cq, _completions) = Cq::new(adapter, 64).expect("allocations succeed again");
    survives(adapter, "NdkCreateQp", || Qp::new(&pd, &cq, &cq, 0, &depths()));
}

pub fn test_allocation_failures(keyword: &str) {
    let Some(image) = image() else { return };
    let keywords = vec![("NdkCreateCompletion", Keyword::Text(keyword.into()))];
    let mut bed =
        Testbed::new(&image, &Options { keywords, ..Options::default() }).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let address = machine.address();
    let done = machine.consumer("consumer", move |adapter| create_everything(adapter, address)).join();
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    done.expect("the consumer ends");
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}
