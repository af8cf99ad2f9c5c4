// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answer to an OID query, written into the request's buffer.
#![allow(unsafe_code, reason = "writes to a request's buffer")]

use ndk_abi::ndis::{
    NDIS_OID_REQUEST_QUERY, NDIS_STATUS, NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_NOT_SUPPORTED,
    NDIS_STATUS_SUCCESS,
};

/// The answer to a query: written once, into the request's buffer, if it is large enough.
pub struct Answer {
    buffer: *mut u8,
    room: usize,
    /// Length of the answer, or the status of a query that fails.
    outcome: Result<usize, NDIS_STATUS>,
    /// Length that the buffer needs, reported if it is shorter.
    needed: usize,
}

impl Answer {
    /// Returns an answer that is not given yet: the query fails with `NDIS_STATUS_NOT_SUPPORTED`.
    pub fn new(request: &NDIS_OID_REQUEST_QUERY) -> Self {
        Self {
            buffer: request.InformationBuffer.cast(),
            room: request.InformationBufferLength as usize,
            outcome: Err(NDIS_STATUS_NOT_SUPPORTED),
            needed: 0,
        }
    }

    /// Answers with plain data.
    pub fn value<T: Copy>(&mut self, value: &T) {
        if self.fits(size_of::<T>()) {
            self.put(0, value);
        }
    }

    /// Answers with bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.fits(bytes.len()) {
            // SAFETY: `fits` has compared the length with the buffer's, which NDIS lends to the driver alone until the request is completed.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer, bytes.len()) };
        }
    }

    /// Answers with a counter: 64 bits if the buffer is large enough, otherwise the low 32.
    pub fn counter(&mut self, counter: u64) {
        if self.room >= size_of::<u64>() { self.value(&counter) } else { self.value(&(counter as u32)) }
    }

    /// Begins an answer of `len` bytes, which [`put`](Self::put) writes. If it does not fit, returns `false`, and the request
    /// reports the length needed.
    //= R-OIDNDK-18
    pub fn fits(&mut self, len: usize) -> bool {
        let fits = len <= self.room;
        self.needed = len;
        self.outcome = if fits { Ok(len) } else { Err(NDIS_STATUS_BUFFER_TOO_SHORT) };
        fits
    }

    /// Writes plain data at `offset` of an answer that fits.
    pub fn put<T: Copy>(&mut self, offset: usize, value: &T) {
        let Ok(len) = self.outcome else { return };
        if offset.checked_add(size_of::<T>()).is_some_and(|end| end <= len) {
            // SAFETY: the end is inside the answer by the comparison, and `fits` has compared the answer with the buffer.
            let at = unsafe { self.buffer.add(offset) };
            // SAFETY: `T` ends inside the buffer; NDIS lends the buffer to the driver alone until the request is completed.
            unsafe { at.cast::<T>().write_unaligned(*value) };
        }
    }

    /// Shortens an answer that fits.
    pub fn shorten(&mut self, len: usize) {
        self.outcome = self.outcome.map(|old| old.min(len));
    }

    /// Fails the query with `status`.
    pub fn refuse(&mut self, status: NDIS_STATUS) {
        self.outcome = Err(status);
    }

    /// Writes the lengths into the request. Returns its status.
    pub fn finish(self, request: &mut NDIS_OID_REQUEST_QUERY) -> NDIS_STATUS {
        match self.outcome {
            Ok(len) => {
                request.BytesWritten = len as u32;
                NDIS_STATUS_SUCCESS
            }
            Err(status) => {
                request.BytesWritten = 0;
                request.BytesNeeded = self.needed as u32;
                status
            }
        }
    }
}
