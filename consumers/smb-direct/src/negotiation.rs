// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contents of negotiation messages, and what of a peer's is acceptable ([MS-SMBD] 3.1.5.2, 3.1.5.3, 3.1.5.6, 3.1.5.7).

use crate::config::Config;
use crate::reason::Reason;
use crate::wire::{
    MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE, NegotiateRequest, NegotiateResponse, VERSION, status,
};

/// Parameters that both sides have agreed on. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) max_send_size: u32,
    pub(crate) max_receive_size: u32,
    pub(crate) max_fragmented_send_size: u32,
    pub(crate) max_read_write_size: u32,
    /// Credits that the peer requests.
    pub(crate) receive_credit_target: u16,
    /// Credits that the peer grants.
    pub(crate) send_credits: u16,
}

/// Why a Negotiate Request is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// `Status` of the answer; without, the connection ends without an answer.
    pub(crate) status: Option<u32>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reason, status: None }
    }
}

//= R-SMBD-11
pub(crate) const fn request(config: &Config) -> NegotiateRequest {
    NegotiateRequest {
        min_version: VERSION,
        max_version: VERSION,
        credits_requested: config.send_credit_target,
        preferred_send_size: config.max_send_size,
        max_receive_size: config.max_receive_size,
        max_fragmented_size: config.max_fragmented_receive_size,
    }
}

pub(crate) fn accept_request(config: &Config, message: &[u8]) -> Result<Agreement, Refusal> {
    let request = NegotiateRequest::parse(message)?;
    //= R-SMBD-16
    if !(request.min_version..=request.max_version).contains(&VERSION) {
        return Err(Refusal { reason: Reason::Version, status: Some(status::NOT_SUPPORTED) });
    }
    //= R-SMBD-17
    check_credits(request.credits_requested)?;
    //= R-SMBD-18, R-SMBD-19
    check_sizes(request.max_receive_size, request.max_fragmented_size)?;
    Ok(Agreement {
        //= R-SMBD-21
        max_send_size: config.max_send_size.min(request.max_receive_size),
        //= R-SMBD-20
        max_receive_size: receive_size(config, request.preferred_send_size),
        //= R-SMBD-22
        max_fragmented_send_size: request.max_fragmented_size,
        max_read_write_size: config.max_read_write_size,
        //= R-SMBD-44
        receive_credit_target: request.credits_requested,
        send_credits: 0,
    })
}

//= R-SMBD-12, R-SMBD-14
pub(crate) const fn response(config: &Config, agreement: &Agreement, credits: u16) -> NegotiateResponse {
    NegotiateResponse {
        min_version: VERSION,
        max_version: VERSION,
        negotiated_version: VERSION,
        credits_requested: config.send_credit_target,
        credits_granted: credits,
        status: status::SUCCESS,
        max_read_write_size: agreement.max_read_write_size,
        preferred_send_size: agreement.max_send_size,
        max_receive_size: agreement.max_receive_size,
        max_fragmented_size: config.max_fragmented_receive_size,
    }
}

//= R-SMBD-13
pub(crate) fn refusal(status: u32) -> NegotiateResponse {
    NegotiateResponse { min_version: VERSION, max_version: VERSION, status, ..NegotiateResponse::default() }
}

pub(crate) fn accept_response(config: &Config, message: &[u8]) -> Result<Agreement, Reason> {
    let response = NegotiateResponse::parse(message)?;
    //= R-SMBD-30
    if response.status != status::SUCCESS {
        return Err(Reason::Status);
    }
    //= R-SMBD-26
    if response.negotiated_version != VERSION {
        return Err(Reason::Version);
    }
    //= R-SMBD-28
    check_credits(response.credits_granted)?;
    check_credits(response.credits_requested)?;
    //= R-SMBD-27
    check_sizes(response.max_receive_size, response.max_fragmented_size)?;
    //= R-SMBD-29
    if response.preferred_send_size > config.max_receive_size {
        return Err(Reason::Size);
    }
    Ok(Agreement {
        //= R-SMBD-31
        max_send_size: config.max_send_size.min(response.max_receive_size),
        max_receive_size: receive_size(config, response.preferred_send_size),
        //= R-SMBD-22
        max_fragmented_send_size: response.max_fragmented_size,
        //= R-SMBD-32
        max_read_write_size: config.max_read_write_size.min(response.max_read_write_size),
        //= R-SMBD-44
        receive_credit_target: response.credits_requested,
        //= R-SMBD-33
        send_credits: response.credits_granted,
    })
}

fn receive_size(config: &Config, preferred_send_size: u32) -> u32 {
    config.max_receive_size.min(preferred_send_size).max(MIN_RECEIVE_SIZE)
}

const fn check_credits(credits: u16) -> Result<(), Reason> {
    if credits == 0 { Err(Reason::ZeroCredits) } else { Ok(()) }
}

const fn check_sizes(max_receive_size: u32, max_fragmented_size: u32) -> Result<(), Reason> {
    if max_receive_size < MIN_RECEIVE_SIZE || max_fragmented_size < MIN_FRAGMENTED_SIZE {
        return Err(Reason::Size);
    }
    Ok(())
}
