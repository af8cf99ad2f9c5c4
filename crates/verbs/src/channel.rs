// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion channels.

use core::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use verbs_core::cq::CompletionChannel;

use crate::abi::context::IbvContext;
use crate::abi::objects::{IbvCompChannel, IbvCq};
use crate::handles::{self, Handle};
use crate::{context, errno};

/// A completion channel.
#[repr(C)]
pub struct Channel {
    base: IbvCompChannel,
    pub core: Arc<CompletionChannel>,
}

// SAFETY: it is `repr(C)` and begins with an `IbvCompChannel`.
unsafe impl Handle for Channel {
    type C = IbvCompChannel;
}

/// Creates a channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel {
    let core = context::find(context).and_then(CompletionChannel::new);
    errno::pointer(core.map(|core| {
        let fd = core.as_fd().as_raw_fd();
        handles::create(Channel { base: IbvCompChannel { context, fd, refcnt: 0 }, core })
    }))
}

/// Destroys a channel. Fails as `EBUSY` if completion queues use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int {
    errno::status(handles::destroy::<Channel>(channel, |channel| channel.core.destroy()))
}

/// Waits for the next event of a channel, or returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // Kept while the call waits: another thread may destroy the channel meanwhile.
    let core = handles::get::<Channel>(channel).map(|channel| Arc::clone(&channel.core));
    let taken = core.and_then(|core| core.take());
    errno::flag(taken.map(|token| {
        let queue = core::ptr::with_exposed_provenance_mut::<IbvCq>(token as usize);
        // SAFETY: the token is the pointer of a completion queue, which is not destroyed before this event is acknowledged.
        let context = unsafe { (*queue).cq_context };
        // SAFETY: the program passes pointers that the call may write.
        unsafe { cq.write(queue) };
        // SAFETY: the program passes a second pointer that the call may write.
        unsafe { cq_context.write(context) };
    }))
}
