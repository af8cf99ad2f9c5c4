// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter's work item: runs the pending transitions one at a time, at `PASSIVE_LEVEL`.

use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use nt::Work;

use super::adapter::Adapter;
use super::transitions::Step;
use super::{announce, power, recovery};

impl Work for Adapter {
    unsafe fn work(this: *const Self) {
        // SAFETY: `Transitions::close` waits for the work item, and precedes the end of the adapter.
        let adapter = unsafe { &*this };
        while let Some(step) = adapter.transitions.next() {
            match step {
                Step::Sleep(request) => {
                    power::sleep(adapter);
                    power::complete(adapter, &request, NDIS_STATUS_SUCCESS);
                }
                Step::Wake(request) => {
                    let status = power::wake(adapter);
                    power::complete(adapter, &request, status);
                }
                Step::Reset(pause) => recovery::reset(adapter, pause),
                Step::Start(start) => recovery::start(adapter, start),
                Step::GiveUp => recovery::give_up(adapter),
                Step::ResetQueues(queues) => recovery::reset_queues(adapter, queues),
                Step::Announce => announce::run(adapter),
            }
        }
    }
}
