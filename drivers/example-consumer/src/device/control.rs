// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handlers of the IOCTLs. All run in the caller's thread at `PASSIVE_LEVEL`, and return the number of output bytes.

use core::sync::atomic::Ordering;

use driver_support::status::{Result, no_memory};
use fallible::Arc;
use ndk_abi::netio::SOCKADDR_INET;
use ndk_abi::nt::{
    STATUS_DEVICE_BUSY, STATUS_DEVICE_NOT_READY, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER,
};

use super::file::Request;
use super::input::{self, ADDRESS, MAX_TRANSFER};
use super::state::{Device, Running};
use crate::client::{Client, Direction};
use crate::server::Server;
use crate::statistics::STATISTICS;

impl Device {
    /// Handles an IOCTL.
    pub fn control(&self, request: &Request) -> Result<usize> {
        match request.code() {
            input::LISTEN => self.listen(request),
            input::RUN => self.run(request),
            input::STOP => self.stop(request),
            input::CONNECT => self.connect(request),
            input::EXCHANGE => exchange(request),
            input::WRITE => transfer(request, Direction::Write),
            input::READ => transfer(request, Direction::Read),
            input::DISCONNECT => disconnect(request),
            input::STATISTICS => statistics(request),
            _ => Err(STATUS_INVALID_DEVICE_REQUEST),
        }
    }

    /// Starts the server. Output, if there is room: its address.
    fn listen(&self, request: &Request) -> Result<usize> {
        let options = input::listen(&request.input()?)?;
        if request.output_length() != 0 {
            request.check_output(ADDRESS)?;
        }
        if self.server.lock().is_some() {
            return Err(STATUS_DEVICE_BUSY);
        }
        let server = Server::start(&self.wsk, self.object.as_ptr(), &options)?;
        let address = server.address()?;
        let mut running = self.server.lock();
        if running.is_some() {
            drop(running);
            // Another thread was first. Stopped without the lock.
            drop(server);
            return Err(STATUS_DEVICE_BUSY);
        }
        let number = self.servers.fetch_add(1, Ordering::Relaxed);
        *running = Some(Running { server, owner: request.file(), number });
        drop(running);
        if request.output_length() == 0 { Ok(0) } else { request.output(bytes_of(&address)) }
    }

    /// Pends until the server is stopped.
    fn run(&self, request: &Request) -> Result<usize> {
        request.input::<0>()?;
        // Held until the request is in the list: a server that is stopped meanwhile completes it.
        let running = self.server.lock();
        let server = running.as_ref().ok_or(STATUS_DEVICE_NOT_READY)?;
        self.waiting.pend(request, server.number)
    }

    fn stop(&self, request: &Request) -> Result<usize> {
        request.input::<0>()?;
        let running = self.server.lock().take();
        if running.is_none() {
            return Err(STATUS_DEVICE_NOT_READY);
        }
        self.stopped(running);
        Ok(0)
    }

    /// Connects the file to a server. Output, if there is room: bytes of the store, bytes of one request, requests at a
    /// time.
    fn connect(&self, request: &Request) -> Result<usize> {
        let options = input::connect(&request.input()?)?;
        if request.output_length() != 0 {
            request.check_output(12)?;
        }
        let file = request.file_context().ok_or(STATUS_INVALID_PARAMETER)?;
        let client = Arc::try_new(Client::connect(&self.wsk, &options)?).map_err(no_memory)?;
        let output = [client.store(), client.part(), client.requests()];
        file.connect(client)?;
        if request.output_length() == 0 { Ok(0) } else { request.output(words(output).as_flattened()) }
    }
}

/// Writes generated data and reads it back. Output: bytes written and read (64 bits each), their checksums.
fn exchange(request: &Request) -> Result<usize> {
    let input = input::exchange(&request.input()?)?;
    request.check_output(24)?;
    let client = request.file_context().ok_or(STATUS_INVALID_PARAMETER)?.client()?;
    let outcome = client.exchange(input.length, input.offset, input.seed)?;
    let mut output = [0; 24];
    let (bytes, checksums) = output.split_at_mut(16);
    bytes.copy_from_slice([outcome.written, outcome.read].map(u64::to_le_bytes).as_flattened());
    checksums.copy_from_slice(words([outcome.crc_written, outcome.crc_read]).as_flattened());
    request.output(&output)
}

/// Transfers the locked buffer. Input: position in the store (64 bits).
fn transfer(request: &Request, direction: Direction) -> Result<usize> {
    let offset = u64::from_le_bytes(request.input()?);
    let (mdl, length) = request.direct().ok_or(STATUS_INVALID_PARAMETER)?;
    if length > MAX_TRANSFER {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let client = request.file_context().ok_or(STATUS_INVALID_PARAMETER)?.client()?;
    // SAFETY: the I/O manager has locked the buffer until the request is completed.
    unsafe { client.transfer(direction, mdl, length, offset) }?;
    Ok(length)
}

/// Ends the file's connection.
fn disconnect(request: &Request) -> Result<usize> {
    request.input::<0>()?;
    drop(request.file_context().ok_or(STATUS_INVALID_PARAMETER)?.take_client()?);
    Ok(0)
}

/// Output: the counters, 64 bits each.
fn statistics(request: &Request) -> Result<usize> {
    request.input::<0>()?;
    request.output(STATISTICS.values().map(u64::to_le_bytes).as_flattened())
}

fn words<const N: usize>(values: [u32; N]) -> [[u8; 4]; N] {
    values.map(u32::to_le_bytes)
}

fn bytes_of(address: &SOCKADDR_INET) -> &[u8; ADDRESS] {
    // SAFETY: a union of plain integers of this size, without padding, and zeroed before it was written.
    unsafe { &*(&raw const *address).cast() }
}
