// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests. (windows-packaging §8.3)

use std::{error::Error, fmt, sync::Arc};

use ndk_abi::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID, NDIS_OID_REQUEST, NDIS_OID_REQUEST_QUERY,
    NDIS_OID_REQUEST_REVISION_1, NDIS_OID_REQUEST_SET, NDIS_REQUEST_TYPE, NDIS_SIZEOF_OID_REQUEST_REVISION_1,
    NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
    NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG, OID_GEN_RECEIVE_HASH, OID_GEN_RECEIVE_SCALE_PARAMETERS,
    OID_GEN_STATISTICS, OID_OFFLOAD_ENCAPSULATION, OID_TCP_OFFLOAD_PARAMETERS,
};

use nt_sim::{current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, adapter},
    rules::{self, broken, require},
    statistics,
    wait::wait,
};

/// A failed OID request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OidError {
    pub status: NDIS_STATUS,
    /// `BytesNeeded`, as the miniport set it.
    pub needed: u32,
}

impl fmt::Display for OidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the miniport failed the OID request with {:#010x}, BytesNeeded {}",
            self.status, self.needed
        )
    }
}

impl Error for OidError {}

/// The miniport's handler for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OidPath {
    Regular,
    Direct,
}

/// Returns a request of the contents of `buffer`, or for them.
pub(crate) fn new_request(
    kind: NDIS_REQUEST_TYPE,
    oid: NDIS_OID,
    buffer: &mut [u8],
) -> Box<NDIS_OID_REQUEST> {
    // SAFETY: integers, addresses and arrays of them: all zeroes is a value.
    let mut request: Box<NDIS_OID_REQUEST> = Box::new(unsafe { std::mem::zeroed() });
    request.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_OID_REQUEST,
        Revision: NDIS_OID_REQUEST_REVISION_1,
        Size: NDIS_SIZEOF_OID_REQUEST_REVISION_1,
    };
    request.RequestType = kind;
    let (pointer, length) = (buffer.as_mut_ptr().cast(), buffer.len() as u32);
    if kind == NDIS_REQUEST_TYPE::NdisRequestSetInformation {
        request.DATA.SET_INFORMATION = NDIS_OID_REQUEST_SET {
            Oid: oid,
            InformationBuffer: pointer,
            InformationBufferLength: length,
            BytesRead: 0,
            BytesNeeded: 0,
        };
    } else {
        request.DATA.QUERY_INFORMATION = NDIS_OID_REQUEST_QUERY {
            Oid: oid,
            InformationBuffer: pointer,
            InformationBufferLength: length,
            BytesWritten: 0,
            BytesNeeded: 0,
        };
    }
    request
}

/// Returns what a request says of its buffer.
pub(crate) fn information(request: Guest<NDIS_OID_REQUEST>) -> NDIS_OID_REQUEST_QUERY {
    // SAFETY: query and set have the same layout, of integers and addresses.
    unsafe { request.read().DATA.QUERY_INFORMATION }
}

/// Returns the result of a request that was completed with a status: the number of bytes written or read.
pub(crate) fn result(request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) -> Result<u32, OidError> {
    let of = information(request);
    if status == NDIS_STATUS_SUCCESS {
        Ok(of.BytesWritten)
    } else {
        Err(OidError { status, needed: of.BytesNeeded })
    }
}

/// Checks the number of bytes that a request which has succeeded says to have written into its buffer.
pub(crate) fn check_written(request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
    let of = information(request);
    let is_within = status != NDIS_STATUS_SUCCESS || of.BytesWritten <= of.InformationBufferLength;
    require(is_within, rules::BYTES_WRITTEN, || {
        format!(
            "OID {:#x}: BytesWritten is {}, but the buffer has {} bytes",
            of.Oid, of.BytesWritten, of.InformationBufferLength
        )
    });
}

impl Adapter {
    /// Runs `body` while the miniport has no request: NDIS sends one at a time, and none to an adapter that is being halted.
    pub(crate) fn without_oids<T>(&self, body: impl FnOnce() -> T) -> T {
        self.miniport_oid.during(body)
    }

    /// Passes a request to the miniport, which has no other one; returns the status of its completion.
    pub(crate) fn carry_out(self: &Arc<Self>, request: Guest<NDIS_OID_REQUEST>) -> NDIS_STATUS {
        let Some(handler) = self.driver.characteristics.OidRequestHandler else {
            return NDIS_STATUS_NOT_SUPPORTED;
        };
        let (kind, of) = (request.read().RequestType, information(request));
        let oid = of.Oid;
        let contents = |length: u32| {
            let mut contents = vec![0; length as usize];
            if !contents.is_empty() {
                Guest::<u8>::new(of.InformationBuffer.cast()).read_bytes(&mut contents);
            }
            contents
        };
        *self.oid_status.lock() = NDIS_STATUS_PENDING;
        *self.oid_request.lock() = request.address();
        self.oid_done.reset();
        let reports = self.offload_reports();
        let is_set = kind == NDIS_REQUEST_TYPE::NdisRequestSetInformation;
        let is_rss = is_set && [OID_GEN_RECEIVE_SCALE_PARAMETERS, OID_GEN_RECEIVE_HASH].contains(&oid);
        let value = if is_set { contents(of.InformationBufferLength) } else { Vec::new() };
        let groups = current().host().cpus.groups();
        let refusal = match oid {
            _ if !is_rss => None,
            OID_GEN_RECEIVE_HASH => self.rss.lock().begin_hash(&value),
            _ => self.rss.lock().begin(&value, groups),
        };
        let changes_offloads =
            is_set && [OID_TCP_OFFLOAD_PARAMETERS, OID_OFFLOAD_ENCAPSULATION].contains(&oid);
        let is_encapsulation = is_set && oid == OID_OFFLOAD_ENCAPSULATION;
        if changes_offloads {
            self.offloads.lock().begin_request(is_encapsulation.then_some(&*value));
        }
        *self.in_oid.lock() = Some(current().id());
        let status = call("MiniportOidRequest", || {
            // SAFETY: the image registered the function under this contract; the request lives until it is completed.
            unsafe { handler(self.context() as *mut _, request.as_ptr()) }
        });
        *self.in_oid.lock() = None;
        if status != NDIS_STATUS_PENDING {
            let completed = std::mem::take(&mut *self.oid_request.lock()) == 0;
            require(!completed, rules::OID_COMPLETED, || {
                format!("OID {oid:#x} was completed, and MiniportOidRequest returned {status:#010x} for it")
            });
        }
        let status = if status == NDIS_STATUS_PENDING { self.await_oid() } else { status };
        if is_rss {
            let succeeded = status == NDIS_STATUS_SUCCESS;
            require(!succeeded || refusal.is_none(), rules::RSS_PARAMETERS, || {
                let name = if oid == OID_GEN_RECEIVE_HASH {
                    "OID_GEN_RECEIVE_HASH"
                } else {
                    "OID_GEN_RECEIVE_SCALE_PARAMETERS"
                };
                format!("{name} succeeded, although {}", refusal.unwrap_or_default())
            });
            let me = current();
            let (now, real_time) = (me.world().now(), !me.world().clock.is_deterministic());
            self.rss.lock().end(succeeded, now, real_time);
        }
        if changes_offloads {
            let succeeded = is_encapsulation && status == NDIS_STATUS_SUCCESS;
            self.offloads.lock().end_request(succeeded.then_some(&*value), current().world().now());
        }
        check_written(request, status);
        if status != NDIS_STATUS_SUCCESS {
            return status;
        }
        if changes_offloads {
            require(self.offload_reports() > reports, rules::OFFLOAD_REPORTED, || {
                format!("OID {oid:#x} succeeded without NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG")
            });
        }
        if is_set {
            self.hang.note(oid, &value);
        } else if oid == OID_GEN_STATISTICS
            && let Err(wrong) = statistics::check(&contents(information(request).BytesWritten))
        {
            broken(rules::STATISTICS, wrong);
        }
        status
    }

    /// Returns how often the miniport has reported the task offloads in force.
    fn offload_reports(&self) -> usize {
        let is_report = |code: NDIS_STATUS| code == NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG;
        self.indications.lock().iter().filter(|indication| is_report(indication.code)).count()
    }

    fn await_oid(&self) -> NDIS_STATUS {
        wait(&self.oid_done);
        *self.oid_status.lock()
    }

    fn complete_oid(&self, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
        require(status != NDIS_STATUS_PENDING, rules::OID_COMPLETED, || {
            "an OID request was completed with NDIS_STATUS_PENDING".into()
        });
        let pending = std::mem::take(&mut *self.oid_request.lock());
        require(pending != 0, rules::OID_COMPLETED, || {
            "an OID request was completed twice, or does not pend".into()
        });
        require(pending == request.address(), rules::OID_COMPLETED, || {
            format!("the OID request {:#x} was completed; {pending:#x} pends", request.address())
        });
        *self.oid_status.lock() = status;
        self.oid_done.set();
    }
}

imports! { IMPORTS: "ndis.sys" =>
    /// Completes an OID request that pended.
    [<= DISPATCH_LEVEL]
    fn NdisMOidRequestComplete(handle: usize, request: Guest<NDIS_OID_REQUEST>, status: NDIS_STATUS) {
        adapter(handle).complete_oid(request, status);
    }
}
