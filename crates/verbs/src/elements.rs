// SPDX-License-Identifier: MIT OR Apache-2.0

//! Elements and options of work requests, and receives, which have nothing else.

use core::ffi::{c_int, c_uint};

use verbs_core::{Error, RecvRequest, SendData, SendFlags, Sge, limits};

use crate::abi::flags::{IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED};
use crate::abi::objects::{IbvRecvWr, IbvSge};
use crate::errno;

const MAX_ELEMENTS: usize = limits::ELEMENTS as usize;

/// The elements of a request, copied.
pub struct Elements {
    list: [Sge; MAX_ELEMENTS],
    count: usize,
}

impl Elements {
    /// Copies elements.
    pub fn of(elements: &[IbvSge]) -> Result<Self, Error> {
        let mut list = [Sge::default(); MAX_ELEMENTS];
        let places = list.get_mut(..elements.len()).ok_or(Error::Invalid)?;
        for (place, element) in places.iter_mut().zip(elements) {
            *place = Sge { address: element.addr, length: element.length, key: element.lkey };
        }
        Ok(Self { list, count: elements.len() })
    }

    /// Returns the elements.
    pub fn as_slice(&self) -> &[Sge] {
        &self.list[..self.count]
    }

    /// Calls `post` with the data of a request.
    ///
    /// # Safety
    /// If `inline`, the elements are readable memory.
    pub unsafe fn with_data<T>(&self, inline: bool, post: impl FnOnce(SendData<'_>) -> T) -> T {
        if !inline {
            return post(SendData::Sges(self.as_slice()));
        }
        let mut pieces = [&[][..]; MAX_ELEMENTS];
        for (piece, element) in pieces.iter_mut().zip(self.as_slice()) {
            if element.length > 0 {
                let address = core::ptr::with_exposed_provenance::<u8>(element.address as usize);
                // SAFETY: readable by the contract of this function; copied before the post returns.
                *piece = unsafe { core::slice::from_raw_parts(address, element.length as usize) };
            }
        }
        post(SendData::Inline(&pieces[..self.count]))
    }
}

/// Returns the elements that a request points to.
///
/// # Safety
/// `list` points to `count` elements, or `count` is not positive.
pub unsafe fn elements<'a>(list: *const IbvSge, count: c_int) -> Result<&'a [IbvSge], Error> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= MAX_ELEMENTS && !list.is_null() => {
            // SAFETY: by the contract of this function.
            Ok(unsafe { core::slice::from_raw_parts(list, count) })
        }
        _ => Err(Error::Invalid),
    }
}

/// Posts a list of receives with `post`. The first one that fails ends the call.
///
/// # Safety
/// The list is one of a program, and `bad_wr` may be written.
pub unsafe fn post_receives(
    list: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
    mut post: impl FnMut(&RecvRequest<'_>) -> Result<(), Error>,
) -> c_int {
    let mut next = list;
    // SAFETY: the program passes a list of requests that ends with a null pointer.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the program passes as many elements as it says.
        let posted = unsafe { elements(wr.sg_list, wr.num_sge) }
            .and_then(Elements::of)
            .and_then(|elements| post(&RecvRequest { context: wr.wr_id, sges: elements.as_slice() }));
        if let Err(error) = posted {
            // SAFETY: by the contract of this function.
            unsafe { bad_wr.write(next) };
            return errno::number(error);
        }
        next = wr.next;
    }
    0
}

/// Returns the options of a request.
///
/// # Errors
/// [`Error::Invalid`] if there are others: checksums of raw packets are not offered.
pub fn flags(flags: c_uint) -> Result<SendFlags, Error> {
    if flags & !(IBV_SEND_FENCE | IBV_SEND_INLINE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED) != 0 {
        return Err(Error::Invalid);
    }
    let mut all = SendFlags::empty();
    all.set(SendFlags::FENCE, flags & IBV_SEND_FENCE != 0);
    all.set(SendFlags::SILENT, flags & IBV_SEND_SIGNALED == 0);
    all.set(SendFlags::SOLICITED, flags & IBV_SEND_SOLICITED != 0);
    Ok(all)
}
